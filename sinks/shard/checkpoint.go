package shard

import (
	"unsafe"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// A checkpoint goes in three steps:
//
//	HandOver  owner's goroutine: what is dirty is taken and marked clean
//	Write     the commit's goroutine: it goes into a Sink
//	Settle    owner's goroutine: committed and published, or dirty again
//
// Of a whole row a copy flies; it stays in the table, and is not evicted until then. Of
// a partial row the changes themselves fly: they move out of the table, and what comes
// in between gathers there as a partial row again. So no row is read in order to write,
// and a row is
//
//	what is published ∘ what is in flight ∘ what is in the table

// flight is what has been handed over and is not yet known to be committed.
// Nobody changes it between HandOver and Settle.
type flight struct {
	open    bool
	state   State
	whole   []wholeRows  // by counter
	partial []*hot.Table // by counter: changes of rows; nil where there are none
	changed *changes
	marks   [][marksCount]uint64 // of changed, in their order
}

// wholeRows are rows of one counter: the cells of each after those of the one
// before.
type wholeRows struct {
	ids   []uint64
	cells []int64
}

// deltas fills in what of a row is in flight as changes.
func (f *flight) deltas(counter int, id uint64, deltas []pipeline.Delta) (some bool) {
	return f.partial != nil && f.partial[counter] != nil && f.partial[counter].Deltas(id, deltas) != hot.None
}

func (f *flight) bytes() int {
	n := f.changed.bytes() + cap(f.marks)*int(unsafe.Sizeof([marksCount]uint64{}))
	for i := range f.whole {
		n += 8 * (cap(f.whole[i].ids) + cap(f.whole[i].cells))
	}
	for _, t := range f.partial {
		if t != nil {
			n += t.Bytes()
		}
	}
	return n
}

// Dirty is the number of rows and entries that changed since they were last
// handed over. Owner only.
func (s *Shard) Dirty() int {
	n := s.changed.list.Len()
	for _, t := range s.rows {
		n += t.Dirty()
	}
	return n
}

// Moved says whether there is anything to hand over. Owner only.
func (s *Shard) Moved() bool { return s.state != s.gathered || s.Dirty() > 0 }

// Durable is the last window of DELTAS whose changes are committed, Kept its
// end. Owner only.
func (s *Shard) Durable() uint64         { return s.durable.Sequence }
func (s *Shard) Kept() pipeline.Position { return s.durable.Applied }

// HandOver takes everything dirty, and the state, and marks it clean; Write
// and Settle must follow. Owner only.
func (s *Shard) HandOver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := flight{
		open: true, state: s.state, changed: s.changed,
		whole: make([]wholeRows, len(s.rows)), partial: make([]*hot.Table, len(s.rows)),
	}
	for counter := range s.rows {
		s.handOverRowsLocked(counter, &f)
	}
	for _, e := range f.changed.list.All {
		if e.kind == kindMarks {
			f.marks = append(f.marks, s.handOverMarks(e.a))
		}
	}
	s.flight, s.changed = f, new(changes)
	s.gathered = s.state
	s.measureLocked()
}

func (s *Shard) handOverRowsLocked(counter int, f *flight) {
	t, n := s.rows[counter], s.schema.Counters[counter].Count
	deltas, cells, whole := make([]pipeline.Delta, n), make([]int64, n), &f.whole[counter]
	if s.residency.rows[counter].all { // so they are all whole
		whole.ids, whole.cells = make([]uint64, 0, t.Dirty()), make([]int64, 0, t.Dirty()*n)
	}
	t.Clean(cells, func(id uint64, state hot.State) {
		if state == hot.Partial {
			if f.partial[counter] == nil {
				f.partial[counter] = hot.NewTable(s.bits(counter))
			}
			t.Deltas(id, deltas)
			f.partial[counter].Under(id, deltas)
			t.Remove(id)
			return
		}
		whole.ids, whole.cells = append(whole.ids, id), append(whole.cells, cells...)
	})
}

// Write passes on what was handed over, the state last. It runs beside reads
// and the owner's Apply.
func (s *Shard) Write(to Sink) {
	f := &s.flight
	for counter, whole := range f.whole {
		n := s.schema.Counters[counter].Count
		for i, id := range whole.ids {
			to.Row(counter, id, whole.cells[i*n:i*n+n])
		}
	}
	for counter, t := range f.partial {
		if t == nil {
			continue
		}
		deltas := make([]pipeline.Delta, s.schema.Counters[counter].Count)
		for id := range t.Changed {
			t.Deltas(id, deltas)
			to.Change(counter, id, deltas)
		}
	}
	marks := f.marks
	emptied := f.changed.emptied()
	for i, e := range f.changed.list.All {
		switch e.kind {
		case kindFollowing:
			to.Following(e.a, e.b, pipeline.Position(e.v))
		case kindMember, kindItem:
			if at, ok := emptied[listKey{e.kind, e.set, e.a}]; ok && i < at {
				continue
			}
			if e.kind == kindMember {
				s.sets[e.set].write(to, e)
			} else {
				f.changed.writeItem(to, s.sets[e.set].column, e)
			}
		case kindPost:
			to.Post(e.a, pipeline.Position(e.b), e.v)
		case kindCursor:
			to.Cursor(e.a, f.changed.names[e.b], pipeline.Position(e.v))
		case kindMarks:
			to.Marks(e.a, marks[0])
			marks = marks[1:]
		}
	}
	to.State(f.state)
}

// Settle takes in what became of the last checkpoint. If it is committed,
// publish makes the disk show it, at the same moment at which the shard lets
// go of it; else it is dirty again. Owner only.
func (s *Shard) Settle(committed bool, publish func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flight
	s.flight = flight{}
	if committed {
		publish()
		s.residency.published++
		s.residency.diskless = false
		s.durable = f.state
	} else {
		s.takeBackLocked(&f)
	}
	s.measureLocked()
}

// takeBackLocked makes dirty again what could not be committed.
func (s *Shard) takeBackLocked(f *flight) {
	s.gathered = State{}
	for counter, whole := range f.whole {
		for _, id := range whole.ids {
			s.rows[counter].MarkDirty(id)
		}
	}
	for counter, t := range f.partial {
		if t == nil {
			continue
		}
		deltas := make([]pipeline.Delta, s.schema.Counters[counter].Count)
		for id := range t.Changed {
			t.Deltas(id, deltas)
			s.takeCachedLocked(counter, id) // read meanwhile: it has them already
			s.rows[counter].Under(id, deltas)
		}
	}
	for _, e := range f.changed.list.All {
		if e.kind == kindMarks {
			s.markDirty(e.a)
		}
	}
	s.changed = s.changed.before(f.changed)
}
