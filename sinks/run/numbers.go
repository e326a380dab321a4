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

// AppendItem appends the value of an Item, all uvarint; what of its end is 0 is left out:
//
//	second<<1 | read by itself │ identity, 1 or 2 words │ actor │ post
func AppendItem(dst []byte, second uint64, read bool, words ...uint64) []byte {
	head := second << 1
	if read {
		head |= 1
	}
	for len(words) > 0 && words[len(words)-1] == 0 {
		words = words[:len(words)-1]
	}
	return AppendNumbers(binary.AppendUvarint(dst, head), words...)
}

// ReadItem reads what AppendItem has appended, so many words.
func ReadItem(value []byte, words []uint64) (second uint64, read bool, err error) {
	head, n := binary.Uvarint(value)
	if n <= 0 {
		return 0, false, fmt.Errorf("%w: the value of an item is cut short", ErrCorrupt)
	}
	value = value[n:]
	for i := range words {
		if words[i] = 0; len(value) == 0 {
			continue
		}
		if words[i], n = binary.Uvarint(value); n <= 0 {
			return 0, false, fmt.Errorf("%w: the value of an item is cut short", ErrCorrupt)
		}
		value = value[n:]
	}
	if len(value) > 0 {
		return 0, false, fmt.Errorf("%w: %d bytes after the value of an item", ErrCorrupt, len(value))
	}
	return head >> 1, head&1 != 0, nil
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
