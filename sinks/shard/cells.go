package shard

import (
	"runtime"

	"github.com/tidemark-io/tidemark/pipeline"
)

// cells are merged changes of a section, on their way to the rows. Nearly every
// row is a cache miss: asked for many at once, the misses overlap, where a change
// after the other would wait for each.
//
// Operations on sets wait in the same way. Of one kind or the other some may wait,
// and not of both, so that all stays in order.
type cells struct {
	n          int
	list       [cellsMax]cellChange
	operations int
	members    [cellsMax]memberChange
}

type cellChange struct {
	column pipeline.Column
	id     uint64
	delta  pipeline.Delta
}

// cellsMax rows are in the processor's caches at once (about three lines each).
const cellsMax = 64

// addLocked takes a change in; flushLocked must follow before anything else is applied.
func (s *Shard) addLocked(column pipeline.Column, id uint64, d pipeline.Delta) error {
	var err error
	if s.cells.n == cellsMax || s.cells.operations > 0 {
		err = s.flushLocked()
	}
	s.cells.list[s.cells.n] = cellChange{column, id, d}
	s.cells.n++
	return err
}

// flushLocked applies what was taken in, in its order.
func (s *Shard) flushLocked() error {
	if s.cells.operations > 0 {
		return s.flushMembersLocked()
	}
	list := s.cells.list[:s.cells.n]
	touched := uint64(0)
	for i := range list {
		c := &list[i]
		touched += s.rows[s.schema.Columns[c.column].Counter].Touch(c.id)
	}
	runtime.KeepAlive(touched)
	for i := range list {
		c := &list[i]
		s.changeLocked(c.column, c.id, c.delta)
	}
	s.cells.n = 0
	return nil
}
