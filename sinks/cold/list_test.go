package cold

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"reflect"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/run"
)

func TestListRoundTrip(t *testing.T) {
	for _, runs := range [][]listed{
		nil,
		{{file: 1, at: 0, info: run.Info{Entries: 1, Blocks: 1, Bytes: 200, IndexAt: 100, Checksum: 0xfffefdfc}}, {file: 1 << 63, at: 1 << 40, info: run.Info{Entries: 1 << 40, Blocks: 1 << 30, Bytes: 1 << 50, IndexAt: 1 << 49}}},
	} {
		for _, state := range []State{{}, {Applied: pipeline.PositionMax, Sequence: 1<<64 - 1, Time: -1 << 63}} {
			key := shardKey(3)
			b := appendList(nil, key, state, runs)
			gotState, got, err := decodeList(key, b)
			if err != nil || gotState != state || !reflect.DeepEqual(got, runs) {
				t.Errorf("%+v %+v became %+v %+v, %v", state, runs, gotState, got, err)
			}
			if _, _, err := decodeList(shardKey(4), b); !errors.Is(err, ErrCorrupt) {
				t.Errorf("the value of another shard's key is %v", err)
			}
			for i := range b {
				b[i] ^= 0x20
				if _, _, err := decodeList(key, b); !errors.Is(err, ErrCorrupt) {
					t.Errorf("byte %d changed: %v", i, err)
				}
				b[i] ^= 0x20
				if _, _, err := decodeList(key, b[:i]); !errors.Is(err, ErrCorrupt) {
					t.Errorf("%d bytes left: %v", i, err)
				}
			}
		}
	}
}

// Whatever bytes a shard's key holds, they are refused, or are one way to write
// what they say.
func FuzzList(f *testing.F) {
	key := shardKey(1)
	good := appendList(nil, key, State{Applied: 1, Sequence: 2, Time: 3}, []listed{{file: 7, at: 9, info: run.Info{Entries: 1, Blocks: 1, Bytes: 20, IndexAt: 10}}})
	f.Add(good[:len(good)-4])
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		sum := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, b)
		value := binary.LittleEndian.AppendUint32(bytes.Clone(b), sum)
		state, runs, err := decodeList(key, value)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Error(err)
			}
			return
		}
		again, more, err := decodeList(key, appendList(nil, key, state, runs))
		if err != nil || again != state || !reflect.DeepEqual(runs, more) {
			t.Errorf("%+v %+v: %+v %+v %v", state, runs, again, more, err)
		}
	})
}
