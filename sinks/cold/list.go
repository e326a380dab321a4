package cold

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/run"
)

// Keys:
//
//	meta     00 "meta"          JSON
//	shard    01 │ shard 2 B     state and runs
//
// The value of a shard is the state, then the runs, newest first, in LEB128:
//
//	applied │ sequence │ time (zigzag) │ runs
//	file │ at │ entries │ blocks │ bytes │ index at │ checksum of the index 4 B     each run
//	CRC-32C of the key and all of it 4 B
const prefixShard = 0x01

var metaKey = []byte{0x00, 'm', 'e', 't', 'a'}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// listed is a run as a shard's key lists it.
type listed struct {
	file uint64 // its number
	at   int64  // where in the file the run begins
	info run.Info
}

func shardKey(number pipeline.Shard) []byte {
	return binary.BigEndian.AppendUint16([]byte{prefixShard}, uint16(number))
}

func parseShardKey(key []byte) (pipeline.Shard, error) {
	if len(key) != 3 || key[0] != prefixShard {
		return 0, fmt.Errorf("%w: the key %x", ErrCorrupt, key)
	}
	return pipeline.Shard(binary.BigEndian.Uint16(key[1:])), nil
}

// appendList appends the value of a shard's key.
func appendList(dst, key []byte, state State, runs []listed) []byte {
	begin := len(dst)
	dst = binary.AppendUvarint(dst, uint64(state.Applied))
	dst = binary.AppendUvarint(dst, state.Sequence)
	dst = binary.AppendVarint(dst, state.Time)
	dst = binary.AppendUvarint(dst, uint64(len(runs)))
	for _, r := range runs {
		for _, n := range [...]uint64{r.file, uint64(r.at), uint64(r.info.Entries), uint64(r.info.Blocks), uint64(r.info.Bytes), uint64(r.info.IndexAt)} {
			dst = binary.AppendUvarint(dst, n)
		}
		dst = binary.LittleEndian.AppendUint32(dst, r.info.Checksum)
	}
	return binary.LittleEndian.AppendUint32(dst, listSum(key, dst[begin:]))
}

func listSum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
}

// decodeList reads what appendList wrote.
func decodeList(key, value []byte) (state State, runs []listed, err error) {
	body := len(value) - 4
	if body < 0 || listSum(key, value[:body]) != binary.LittleEndian.Uint32(value[body:]) {
		return state, nil, fmt.Errorf("%w: the list of runs does not match its checksum", ErrCorrupt)
	}
	b := value[:body]
	short := false
	number := func(most uint64) uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > most {
			short = true
			return 0
		}
		b = b[n:]
		return v
	}
	state.Applied, state.Sequence = pipeline.Position(number(uint64(pipeline.PositionMax))), number(math.MaxUint64)
	time, n := binary.Varint(b)
	if n <= 0 {
		return state, nil, errList
	}
	state.Time, b = time, b[n:]
	count := number(uint64(len(b)))
	for range count {
		r := listed{file: number(math.MaxUint64), at: int64(number(math.MaxInt64))}
		r.info.Entries, r.info.Blocks = int(number(math.MaxInt64)), int(number(math.MaxInt64))
		r.info.Bytes, r.info.IndexAt = int64(number(math.MaxInt64)), int64(number(math.MaxInt64))
		if short || len(b) < 4 || r.info.IndexAt > r.info.Bytes || r.at > math.MaxInt64-r.info.Bytes {
			return state, nil, errList
		}
		r.info.Checksum, b = binary.LittleEndian.Uint32(b), b[4:]
		runs = append(runs, r)
	}
	if short || len(b) > 0 {
		return state, nil, errList
	}
	return state, runs, nil
}

var errList = fmt.Errorf("%w: the list of runs cannot be read", ErrCorrupt)

// errEnd ends a scan early.
var errEnd = errors.New("enough")
