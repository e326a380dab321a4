package pipeline

import (
	"encoding/binary"
)

// A section is a run of changes for one shard: first the merged changes of
// cells, each cell once, in the order in which the window first touched them;
// then what must keep its log order.
//
//	change     tag = column<<2 | form      form 0  Add     n (zigzag)
//	           id                               1  Set     v (zigzag)
//	           form's numbers                   2  Delta   From, Low, High (zigzag)
//	                                            3  operation: tag>>2 is its Op
const (
	formAdd = iota
	formSet
	formDelta
	formOp
)

// AppendChange appends one change of a cell to a section. column is an index
// in the window's Columns.
func AppendChange(dst []byte, column int, id uint64, d Delta) []byte {
	tag := uint64(column) << 2
	if n, ok := d.Amount(); ok {
		dst = binary.AppendUvarint(dst, tag+formAdd)
		dst = binary.AppendUvarint(dst, id)
		return binary.AppendVarint(dst, n)
	}
	if v, ok := d.Value(); ok {
		dst = binary.AppendUvarint(dst, tag+formSet)
		dst = binary.AppendUvarint(dst, id)
		return binary.AppendVarint(dst, v)
	}
	dst = binary.AppendUvarint(dst, tag+formDelta)
	dst = binary.AppendUvarint(dst, id)
	dst = binary.AppendVarint(dst, d.From)
	dst = binary.AppendVarint(dst, d.Low)
	return binary.AppendVarint(dst, d.High)
}

// Change is one change of a cell, or stands for the reader's Operation.
type Change struct {
	Op     Op
	Column int // index in the window's Columns
	ID     uint64
	Delta  Delta
}

// SectionReader walks a section.
type SectionReader struct {
	// Operation has the details of a Change whose Op is not OpCell, until the
	// next one.
	Operation Operation

	r    reader
	from Position
	last Position // of an operation
}

// ReadSection begins at the first change of a section of a window that covers
// what is after from.
func ReadSection(section []byte, from Position) SectionReader {
	return SectionReader{r: reader{b: section}, from: from, last: from}
}

// Next reads the next change; ok is false at the end or on malformed bytes,
// which Err distinguishes. What it gives is what a router can have written:
// deltas are canonical, positions ascend, names of channels are short. That an
// id and a member are not 0, a column is one that has a set, and a position is within
// the window is left to the code that applies it.
func (s *SectionReader) Next() (c Change, ok bool) {
	if len(s.r.b) == 0 {
		return Change{}, false
	}
	tag := s.r.uvarint()
	if tag&3 == formOp {
		op := Op(min(tag>>2, uint64(opsEnd)))
		s.operation(op)
		return Change{Op: op, ID: s.Operation.ID}, s.r.err == nil
	}
	c.Column = int(tag >> 2)
	c.ID = s.r.uvarint()
	switch tag & 3 {
	case formAdd:
		c.Delta = Add(s.varint())
	case formSet:
		c.Delta = Set(s.varint())
	case formDelta:
		c.Delta = Delta{s.varint(), s.varint(), s.varint()}
		if !c.Delta.canon() {
			s.r.fail("%+v is no change", c.Delta)
		}
	}
	return c, s.r.err == nil
}

// Err is the complaint that ended the walk, if any.
func (s *SectionReader) Err() error { return s.r.err }

func (s *SectionReader) varint() int64 {
	u := s.r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}
