package run

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
)

// The value of a row. Equal contents have equal bytes, so that runs merged in
// any grouping are the same (the delta law): a column that says nothing is not
// there, a bitmap does not end in zeros, and a change is Mixed only where it
// has to be.
//
//	bitmap                                       what the columns hold,
//	┌───┬───────────────────┬────────┐           one after another
//	│ + │ columns 4…0       │ form   │ byte 0    whole    value (zigzag), not 0
//	├───┼───────────────────┴────────┤           adds     n (zigzag), not 0
//	│ + │ columns 11…5               │ byte 1    mixed    00 │ n (zigzag)              Add(n)
//	├───┼────────────────────────────┤                    01 │ v (zigzag)              Set(v)
//	│ 0 │ columns 18…12              │ …                  02 │ From │ Low │ High  any other
//	└───┴────────────────────────────┘           +: one more byte of bitmap follows
const (
	formAdds  = 0 // a change: sums only
	formMixed = 1 // a change: at least one column is no sum
	formWhole = 2 // the row itself: other columns are 0
	formMask  = 3

	formBits  = 2                // of byte 0
	headFirst = 7 - formBits     // columns in byte 0
	headMore  = 0x80             // one more byte of bitmap follows
	headBits  = 0x80 - 1         // columns in each of the other bytes
	headWidth = 7                // so many
	placesMax = 128              // columns that are put in order on the stack
	deltaMax  = 1 + 10 + 10 + 10 // bytes
)

const (
	tagAdd byte = iota
	tagSet
	tagDelta
)

// appendHead appends a bitmap without columns, long enough for a last one; -1
// is none.
func appendHead(dst []byte, form byte, last int) []byte {
	dst = append(dst, form)
	for reach := headFirst; last >= reach; reach += headWidth {
		dst[len(dst)-1] |= headMore
		dst = append(dst, 0)
	}
	return dst
}

// mark adds a column to the bitmap at the start of row.
func mark(row []byte, column int) {
	bit := column + formBits
	row[bit/headWidth] |= 1 << (bit % headWidth)
}

// AppendWhole appends the value of a whole row: the cells that are not 0.
// numbers are the columns' dictionary numbers, by cell, in any order.
func AppendWhole(dst []byte, numbers []int, cells []int64) []byte {
	last := -1
	for i, v := range cells {
		if v == 0 {
			continue
		}
		if numbers[i] < last {
			return appendWholeAnyOrder(dst, numbers, cells)
		}
		last = numbers[i]
	}
	start := len(dst)
	dst = appendHead(dst, formWhole, last)
	for i, v := range cells {
		if v != 0 {
			mark(dst[start:], numbers[i])
			dst = binary.AppendVarint(dst, v)
		}
	}
	return dst
}

func appendWholeAnyOrder(dst []byte, numbers []int, cells []int64) []byte {
	var room [placesMax]uint16
	start := len(dst)
	places := inOrder(&room, numbers)
	last := len(places) - 1
	for ; places[last] == 0 || cells[places[last]-1] == 0; last-- {
	}
	dst = appendHead(dst, formWhole, last)
	for column, place := range places {
		if place != 0 && cells[place-1] != 0 {
			mark(dst[start:], column)
			dst = binary.AppendVarint(dst, cells[place-1])
		}
	}
	return dst
}

// inOrder is by column number the cell that has it, plus one; 0 is none.
func inOrder(room *[placesMax]uint16, numbers []int) []uint16 {
	places := room[:]
	if n := slices.Max(numbers) + 1; n <= placesMax {
		places = places[:n]
	} else {
		places = make([]uint16, n)
	}
	for i, number := range numbers {
		places[number] = uint16(i + 1)
	}
	return places
}

// AppendChange appends the value of a change of a row: the deltas that are not
// pipeline.Identity. numbers are as those of AppendWhole.
func AppendChange(dst []byte, numbers []int, deltas []pipeline.Delta) []byte {
	var room [8]change
	changes := room[:0]
	last, ascending := -1, true
	for i, d := range deltas {
		if d == pipeline.Identity {
			continue
		}
		ascending = ascending && numbers[i] > last
		last = numbers[i]
		changes = append(changes, change{numbers[i], d})
	}
	if !ascending {
		slices.SortFunc(changes, func(a, b change) int { return a.column - b.column })
	}
	return appendChanges(dst, changes)
}

// change is what happens to one column.
type change struct {
	column int
	delta  pipeline.Delta
}

// appendChanges appends a change of a row; columns ascend, none is Identity.
func appendChanges(dst []byte, changes []change) []byte {
	form, last := byte(formAdds), -1
	for i := range changes {
		if _, ok := changes[i].delta.Amount(); !ok {
			form = formMixed
		}
		last = changes[i].column
	}
	start := len(dst)
	dst = appendHead(dst, form, last)
	for i := range changes {
		mark(dst[start:], changes[i].column)
		d := changes[i].delta
		if n, ok := d.Amount(); ok {
			if form == formMixed {
				dst = append(dst, tagAdd)
			}
			dst = binary.AppendVarint(dst, n)
		} else if v, ok := d.Value(); ok {
			dst = binary.AppendVarint(append(dst, tagSet), v)
		} else {
			dst = appendBound(append(dst, tagDelta), d.From)
			dst = appendBound(dst, d.Low)
			dst = appendBound(dst, d.High)
		}
	}
	return dst
}

// appendBound appends a number that is near 0 or near a Limit, as the bounds of
// deltas are: a like that is taken back is [-Limit, Limit-1], and has few bytes
// nevertheless.
//
//	distance << 2 │ 1: from ±Limit, 0: from 0 │ 1: negative
func appendBound(dst []byte, v int64) []byte {
	code := uint64(0)
	if v < 0 {
		code, v = 1, -v
	}
	if v > pipeline.Limit/2 {
		code, v = code|2, pipeline.Limit-v
	}
	return binary.AppendUvarint(dst, uint64(v)<<2|code)
}

// IsWhole says whether the value of a row is that of a whole one.
func IsWhole(row []byte) bool { return len(row) > 0 && row[0]&formMask == formWhole }

// says is false for a value that has no columns.
func says(row []byte) bool { return len(row) != 1 }

// ApplyRow brings cells as of older runs to where row leaves them; a whole row
// clears them first. places has the cell of each dictionary number, -1 for a
// column to pass over. After an error cells hold anything.
func ApplyRow(row []byte, places []int, cells []int64) error {
	var r rowReader
	if err := r.open(row); err != nil {
		return err
	}
	if r.form == formWhole {
		clear(cells)
	}
	for {
		column, ok := r.next()
		if !ok {
			return r.end()
		}
		if column >= len(places) {
			return fmt.Errorf("%w: column %d of %d", ErrCorrupt, column, len(places))
		}
		place := places[column]
		if r.form == formWhole {
			v, err := r.number()
			if err != nil {
				return err
			}
			if place >= 0 {
				cells[place] = v
			}
			continue
		}
		d, err := r.delta()
		if err != nil {
			return err
		}
		if place >= 0 {
			cells[place] = d.Apply(cells[place])
		}
	}
}

// MergeRows appends what newer over older makes, two values of one row. dst
// shares nothing with them.
func MergeRows(dst, newer, older []byte) ([]byte, error) {
	if IsWhole(newer) {
		return append(dst, newer...), nil
	}
	if merged, ok := mergeSums(dst, newer, older); ok {
		return merged, nil
	}
	var n, o rowReader
	if err := n.open(newer); err != nil {
		return dst, err
	}
	if err := o.open(older); err != nil {
		return dst, err
	}
	var room [8]change
	changes := room[:0]
	nc, nok := n.next()
	oc, ook := o.next()
	for nok || ook {
		c := change{nc, pipeline.Identity}
		fromOlder, fromNewer := ook && (!nok || oc <= nc), nok && (!ook || nc <= oc)
		var err error
		if fromOlder {
			c.column = oc
			if c.delta, err = o.change(); err != nil {
				return dst, err
			}
			oc, ook = o.next()
		} else if o.form == formWhole {
			c.delta = pipeline.Set(0)
		}
		if fromNewer {
			d, err := n.change()
			if err != nil {
				return dst, err
			}
			c.delta = c.delta.Then(d)
			nc, nok = n.next()
		}
		if c.delta != pipeline.Identity {
			changes = append(changes, c)
		}
	}
	if err := n.end(); err != nil {
		return dst, err
	}
	if err := o.end(); err != nil {
		return dst, err
	}
	if o.form == formWhole {
		return appendSet(dst, changes), nil
	}
	return appendChanges(dst, changes), nil
}

// mergeSums is MergeRows for what is common, without deltas: sums over a row or
// over sums. ok is false where anything is not common: a sum of 0, one of
// different signs (it is no sum: it remembers at which Limit it stopped), one
// beyond Limit, damage.
func mergeSums(dst, newer, older []byte) (merged []byte, ok bool) {
	var n, o rowReader
	if n.open(newer) != nil || o.open(older) != nil || n.form != formAdds || o.form == formMixed {
		return dst, false
	}
	longer := newer[:len(newer)-len(n.body)]
	if len(o.head) > len(n.head) {
		longer = older[:len(older)-len(o.body)]
	}
	start := len(dst)
	dst = append(dst, longer...)
	bitmap := len(longer)
	dst[start] = dst[start]&^formMask | o.form
	nc, nok := n.next()
	oc, ook := o.next()
	for nok || ook {
		var sum int64
		if ook && (!nok || oc <= nc) {
			v, err := o.number()
			if err != nil {
				return dst[:start], false
			}
			sum = v
			if nok && nc == oc {
				v, err := n.number()
				if err != nil || (sum^v < 0 && o.form == formAdds) {
					return dst[:start], false
				}
				// Numbers of different signs do not overflow.
				if total := sum + v; sum^v < 0 || total^v >= 0 && total >= -pipeline.Limit {
					sum = total
				} else {
					return dst[:start], false
				}
				nc, nok = n.next()
			}
			mark(dst[start:start+bitmap], oc)
			oc, ook = o.next()
		} else {
			v, err := n.number()
			if err != nil {
				return dst[:start], false
			}
			sum = v
			mark(dst[start:start+bitmap], nc)
			nc, nok = n.next()
		}
		if sum == 0 {
			return dst[:start], false
		}
		dst = binary.AppendVarint(dst, sum)
	}
	return dst, n.end() == nil && o.end() == nil
}

// appendSet appends the whole row that changes make of any other; each of them
// is a Set.
func appendSet(dst []byte, changes []change) []byte {
	last := -1
	for i := range changes {
		if changes[i].delta.Low != 0 {
			last = changes[i].column
		}
	}
	start := len(dst)
	dst = appendHead(dst, formWhole, last)
	for i := range changes {
		if v := changes[i].delta.Low; v != 0 {
			mark(dst[start:], changes[i].column)
			dst = binary.AppendVarint(dst, v)
		}
	}
	return dst
}

// zeros is the whole row without a cell that is not 0.
var zeros = []byte{formWhole}

// Settle appends what is left of a row where nothing is older: the cells that
// are not 0. zero says that there are none: then nothing is appended.
func Settle(dst, row []byte) (settled []byte, zero bool, err error) {
	start := len(dst)
	if IsWhole(row) {
		dst = append(dst, row...)
	} else if dst, err = MergeRows(dst, row, zeros); err != nil {
		return dst[:start], false, err
	}
	if !says(dst[start:]) {
		return dst[:start], true, nil
	}
	return dst, false, nil
}
