package run

import (
	"encoding/binary"
	"fmt"

	"github.com/tidemark-io/tidemark/pipeline"
)

// AppendNumbers appends the value of an entry of another kind than Row, all
// uvarint.
func AppendNumbers(dst []byte, numbers ...uint64) []byte {
	for _, n := range numbers {
		dst = binary.AppendUvarint(dst, n)
	}
	return dst
}

// ReadNumbers reads the value of an entry of another kind than Row: the
// position of Following, Cursor, Notice and Second, the post of a Post, the
// four marks, the second of Kept; of the others nothing.
func ReadNumbers(kind Kind, value []byte) (numbers [4]uint64, err error) {
	for i := range forms[kind&kindMask].numbers {
		v, n := binary.Uvarint(value)
		switch {
		case n <= 0:
			return numbers, fmt.Errorf("%w: the value of a %v is cut short", ErrCorrupt, kind)
		case kind == Post && v == 0:
			return numbers, fmt.Errorf("%w: a post of id 0", ErrCorrupt)
		case kind != Post && v > uint64(pipeline.PositionMax):
			return numbers, fmt.Errorf("%w: the number %d of a %v", ErrCorrupt, v, kind)
		}
		numbers[i], value = v, value[n:]
	}
	if len(value) > 0 {
		return numbers, fmt.Errorf("%w: %d bytes after the value of a %v", ErrCorrupt, len(value), kind)
	}
	return numbers, nil
}
