package cold

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"reflect"
	"testing"

	"github.com/tidemark-io/tidemark/sinks/run"
)

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
