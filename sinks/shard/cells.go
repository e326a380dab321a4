package shard

import (
	"runtime"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// cells are merged changes of a section, on their way to the rows. Nearly every
// row is a cache miss: asked for many at once, the misses overlap, where a change
// after the other would wait for each.
//
// Operations on sets, lists and outboxes wait in the same way, and changes of cells that
// come behind them with them, so that all stays in order.
type cells struct {
	n          int
	list       [cellsMax]cellChange
	operations int
	waiting    [cellsMax]operation
}

type cellChange struct {
	column pipeline.Column
	id     uint64
	delta  pipeline.Delta
}

// operation is one on a set or a list; or where there is none, a post for an outbox, or a
// change of a cell.
type operation struct {
	id uint64

	cell   bool
	column pipeline.Column
	delta  pipeline.Delta

	post     uint64
	position pipeline.Position

	set    *set
	op     pipeline.Op
	member pipeline.Member // or the identity of an item
	actor  uint64          // of an item; post is as well
	print  hot.Print
	by     int64
	now    int64 // the log second of the event
}

// cellsMax rows are in the processor's caches at once (about three lines each).
const cellsMax = 64

// addLocked takes a change in; flushLocked must follow before anything else is applied.
func (s *Shard) addLocked(column pipeline.Column, id uint64, d pipeline.Delta) error {
	var err error
	c := &s.cells
	if c.operations > 0 {
		return s.waitLocked(operation{id: id, cell: true, column: column, delta: d})
	}
	if c.n == cellsMax {
		err = s.flushLocked()
	}
	c.list[c.n] = cellChange{column, id, d}
	c.n++
	return err
}

// waitLocked takes an operation in, as addLocked does a change.
func (s *Shard) waitLocked(o operation) error {
	var err error
	c := &s.cells
	if c.operations == cellsMax || c.n > 0 {
		err = s.flushLocked()
	}
	c.waiting[c.operations] = o
	c.operations++
	return err
}

// flushLocked applies what was taken in, in its order.
func (s *Shard) flushLocked() error {
	if s.cells.operations > 0 {
		return s.operateWaitingLocked()
	}
	list := s.cells.list[:s.cells.n]
	s.cells.n = 0
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
	return nil
}

func (s *Shard) operateWaitingLocked() error {
	waiting := s.cells.waiting[:s.cells.operations]
	s.cells.operations = 0
	touched := uint64(0)
	for i := range waiting {
		switch o := &waiting[i]; {
		case o.cell:
			touched += s.rows[s.schema.Columns[o.column].Counter].Touch(o.id)
		case o.set == nil:
			touched += s.outboxes.Touch(o.id)
		case o.set.filter == nil:
			touched += s.rows[s.schema.Columns[o.set.column].Counter].Touch(o.id)
		default:
			touched += o.set.filter.Touch(o.print) + s.rows[s.schema.Columns[o.set.column].Counter].Touch(o.id)
		}
	}
	runtime.KeepAlive(touched)
	for i := range waiting {
		var err error
		switch o := &waiting[i]; {
		case o.cell:
			s.changeLocked(o.column, o.id, o.delta)
		case o.set == nil:
			err = s.postLocked(o.id, o.post, o.position)
		default:
			err = s.changeMemberLocked(o)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
