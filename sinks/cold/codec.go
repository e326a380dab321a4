package cold

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Keys. Everything of a shard has one prefix, so that it can be scanned,
// moved or dropped alone; integers in keys are big-endian, so that keys sort
// as numbers do.
//
//	node     00 "meta"                                     JSON
//	shard    01 │ shard 2 B │ 00                           state
//	row      01 │ shard 2 B │ 01 │ counter 1 B │ id 8 B    cells
//
// cells are those that are not 0, all LEB128:
//
//	column │ value (zigzag) │ column │ value │ …
//
// Counters and columns go by the numbers that the node's dictionary gave them
// when it first saw their names; numbers are never reused.
const (
	prefixNode  = 0x00
	prefixShard = 0x01

	kindState = 0x00
	kindRow   = 0x01
)

var metaKey = []byte{prefixNode, 'm', 'e', 't', 'a'}

// ErrCorrupt wraps every complaint about stored bytes.
var ErrCorrupt = errors.New("cold: corrupt value")

func shardKey(shard pipeline.Shard, kind byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{prefixShard}, uint16(shard)), kind)
}

func rowKey(shard pipeline.Shard, counter uint8, id uint64) []byte {
	key := make([]byte, 0, rowKeyBytes)
	key = append(key, prefixShard)
	key = binary.BigEndian.AppendUint16(key, uint16(shard))
	key = append(key, kindRow, counter)
	return binary.BigEndian.AppendUint64(key, id)
}

const rowKeyBytes = 1 + 2 + 1 + 1 + 8

// parseRowKey is the counter and id of a row's key.
func parseRowKey(key []byte) (counter uint8, id uint64, err error) {
	if len(key) != rowKeyBytes {
		return 0, 0, fmt.Errorf("%w: a row's key of %d bytes", ErrCorrupt, len(key))
	}
	return key[4], binary.BigEndian.Uint64(key[5:]), nil
}

// appendCells encodes a row; a row of zeros is empty. numbers are the
// columns' dictionary numbers.
func appendCells(dst []byte, numbers []uint64, cells []int64) []byte {
	for i, v := range cells {
		if v != 0 {
			dst = binary.AppendUvarint(dst, numbers[i])
			dst = binary.AppendVarint(dst, v)
		}
	}
	return dst
}

// decodeCells fills a row; places maps dictionary numbers to cells.
func decodeCells(b []byte, places []int, cells []int64) error {
	for len(b) > 0 {
		number, n := binary.Uvarint(b)
		if n <= 0 || number >= uint64(len(places)) {
			return fmt.Errorf("%w: column %d of %d", ErrCorrupt, number, len(places))
		}
		v, m := binary.Varint(b[n:])
		if m <= 0 {
			return fmt.Errorf("%w: a value is cut short", ErrCorrupt)
		}
		cells[places[number]] = v
		b = b[n+m:]
	}
	return nil
}

// State is how far a shard has come. It commits together with the rows (I4).
type State struct {
	Applied  pipeline.Position // To of the last window applied
	Sequence uint64            // of that window in DELTAS
	Time     int64             // log time, Unix milliseconds
}

func (s State) encode() []byte {
	b := binary.AppendUvarint(nil, uint64(s.Applied))
	b = binary.AppendUvarint(b, s.Sequence)
	return binary.AppendVarint(b, s.Time)
}

func decodeState(b []byte) (State, error) {
	var s State
	applied, n := binary.Uvarint(b)
	if n <= 0 {
		return s, fmt.Errorf("%w: a shard's state", ErrCorrupt)
	}
	sequence, m := binary.Uvarint(b[n:])
	if m <= 0 {
		return s, fmt.Errorf("%w: a shard's state", ErrCorrupt)
	}
	s.Applied, s.Sequence = pipeline.Position(applied), sequence
	t, k := binary.Varint(b[n+m:])
	if k <= 0 {
		return s, fmt.Errorf("%w: a shard's state", ErrCorrupt)
	}
	s.Time = t
	return s, nil
}
