package run

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/tidemark-io/tidemark/pipeline"
)

// checkRow says what is wrong with the value of a row.
func checkRow(row []byte) error {
	var r rowReader
	if err := r.open(row); err != nil {
		return err
	}
	for {
		if _, ok := r.next(); !ok {
			return r.end()
		}
		if _, err := r.change(); err != nil {
			return err
		}
	}
}

// rowReader takes the value of a row apart, column by column.
type rowReader struct {
	form  byte
	other bool   // a column was no sum
	bits  uint   // columns of this byte of the bitmap that are still to come
	base  int    // number of the first column of this byte
	head  []byte // the bitmap's bytes after this one
	body  []byte
}

func (r *rowReader) open(row []byte) error {
	n := 0
	for ; n < len(row) && row[n]&headMore != 0; n++ {
	}
	if n >= len(row) {
		return fmt.Errorf("%w: a row's bitmap is cut short", ErrCorrupt)
	}
	if n > 0 && row[n] == 0 {
		return fmt.Errorf("%w: a row's bitmap ends in zeros", ErrCorrupt)
	}
	r.form = row[0] & formMask
	if r.form > formWhole {
		return fmt.Errorf("%w: a row of form %d", ErrCorrupt, r.form)
	}
	r.bits, r.base = uint(row[0]&headBits)>>formBits, 0
	r.head, r.body = row[1:n+1], row[n+1:]
	return nil
}

// next is the number of the next column; what it holds must be read before the
// one after it.
func (r *rowReader) next() (column int, ok bool) {
	for r.bits == 0 {
		if len(r.head) == 0 {
			return 0, false
		}
		if r.base == 0 {
			r.base = headFirst
		} else {
			r.base += headWidth
		}
		r.bits, r.head = uint(r.head[0]&headBits), r.head[1:]
	}
	column = r.base + bits.TrailingZeros(r.bits)
	r.bits &= r.bits - 1
	return column, true
}

// signed reads a zigzag that a cell can hold.
func (r *rowReader) signed() (int64, error) {
	if b := r.body; len(b) > 0 && b[0] < 0x80 {
		r.body = b[1:]
		return int64(b[0]>>1) ^ -int64(b[0]&1), nil
	}
	v, n := binary.Varint(r.body)
	if n <= 0 || v == math.MinInt64 {
		return 0, fmt.Errorf("%w: a number in a row", ErrCorrupt)
	}
	r.body = r.body[n:]
	return v, nil
}

// number reads a zigzag that is not 0.
func (r *rowReader) number() (int64, error) {
	v, err := r.signed()
	if err == nil && v == 0 {
		err = fmt.Errorf("%w: a column that says nothing", ErrCorrupt)
	}
	return v, err
}

// delta reads what a change does to a column.
func (r *rowReader) delta() (pipeline.Delta, error) {
	tag := tagAdd
	if r.form == formMixed {
		if len(r.body) == 0 {
			return pipeline.Delta{}, fmt.Errorf("%w: a change is cut short", ErrCorrupt)
		}
		tag, r.body = r.body[0], r.body[1:]
	}
	switch tag {
	case tagAdd:
		n, err := r.number()
		return pipeline.Add(n), err
	case tagSet:
		r.other = true
		v, err := r.signed()
		return pipeline.Set(v), err
	case tagDelta:
		r.other = true
		return r.general()
	}
	return pipeline.Delta{}, fmt.Errorf("%w: a change of form %d", ErrCorrupt, tag)
}

// general reads a delta that is neither a sum nor a constant.
func (r *rowReader) general() (d pipeline.Delta, err error) {
	for _, v := range []*int64{&d.From, &d.Low, &d.High} {
		if *v, err = r.bound(); err != nil {
			return d, err
		}
	}
	if d.Low >= d.High || uint64(d.High)-uint64(d.Low) > pipeline.Limit-uint64(d.From) {
		return d, fmt.Errorf("%w: a change's bounds", ErrCorrupt)
	}
	if _, sum := d.Amount(); sum {
		return d, fmt.Errorf("%w: a sum is written as another change", ErrCorrupt)
	}
	return d, nil
}

// bound reads what appendBound appends.
func (r *rowReader) bound() (int64, error) {
	code, n := binary.Uvarint(r.body)
	v := int64(code >> 2)
	if n <= 0 || code == 1 || v > pipeline.Limit/2 {
		return 0, fmt.Errorf("%w: a change's bounds", ErrCorrupt)
	}
	r.body = r.body[n:]
	if code&2 != 0 {
		v = pipeline.Limit - v
	}
	if code&1 != 0 {
		v = -v
	}
	return v, nil
}

// change reads a column of any form as a change.
func (r *rowReader) change() (pipeline.Delta, error) {
	if r.form == formWhole {
		v, err := r.number()
		return pipeline.Set(v), err
	}
	return r.delta()
}

// end is after the last column.
func (r *rowReader) end() error {
	if len(r.body) > 0 {
		return fmt.Errorf("%w: %d bytes after a row", ErrCorrupt, len(r.body))
	}
	if r.form == formMixed && !r.other {
		return fmt.Errorf("%w: sums are written as other changes", ErrCorrupt)
	}
	return nil
}
