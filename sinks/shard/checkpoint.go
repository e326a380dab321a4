package shard

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// A checkpoint goes in three steps:
//
//	HandOver  owner's goroutine: what is dirty is taken and marked clean
//	Write     the commit's goroutine: it goes into a transaction; bases of
//	          partial rows are read for that, sorted
//	Settle    owner's goroutine: committed, or to be done again
//
// From the first step to the last the disk may or may not have what was handed
// over. What is in memory still builds upon the disk as of before: whoever
// reads the disk meanwhile reads as of then, and nothing is evicted.

// flight is what has been handed over and is not yet known to be committed.
type flight struct {
	open    bool
	state   cold.State
	whole   []rowAt
	cells   []int64 // of whole
	partial []rowAt // those whose base is on disk
	deltas  []pipeline.Delta
	bases   []int64 // of partial, at the same places as deltas; nil until they are read
	changed []change
	marks   [][marksCount]uint64 // of changed, in their order
	names   []string             // of the channels of cursors in changed
}

// rowAt is a row that was handed over, with the place of its cells.
type rowAt struct {
	counter int
	id      uint64
	at      int
}

func (f *flight) len() int { return len(f.whole) + len(f.partial) + len(f.changed) }

// Dirty is the number of rows and entries that changed since they were last
// handed over. Owner only.
func (s *Shard) Dirty() int {
	n := len(s.changed)
	for _, t := range s.rows {
		n += t.Dirty()
	}
	return n
}

// Pending is the number of rows and entries that are dirty should the commit
// under way fail. Owner only.
func (s *Shard) Pending() int { return s.Dirty() + s.flight.len() }

// Fits says whether the shard can apply its section of a window and still hand
// over all that changed as at most so many rows and entries.
func (s *Shard) Fits(w *pipeline.Window, rows int) bool {
	return fits(w.Sections[s.Number], w.From, rows-s.Pending())
}

// fits says whether a section changes at most so many rows and entries.
func fits(b []byte, from pipeline.Position, left int) bool {
	if len(b)*pipeline.ByteChangesMax <= left {
		return true
	}
	section := pipeline.ReadSection(b, from)
	for c, ok := section.Next(); ok && left >= 0; c, ok = section.Next() {
		if left--; c.Op != pipeline.OpCell {
			left -= section.Operation.Changes() - 1
		}
	}
	return left >= 0
}

// Moved says whether there is anything to hand over. Owner only.
func (s *Shard) Moved() bool { return s.state != s.gathered || s.Dirty() > 0 }

// Durable is the last window of DELTAS whose changes are committed, Kept its
// end. Owner only.
func (s *Shard) Durable() uint64         { return s.durable.Sequence }
func (s *Shard) Kept() pipeline.Position { return s.durable.Applied }

// HandOver takes everything dirty and the state, to be written as a version, and
// marks it clean; Write and Settle must follow. A reader finds what is not on
// disk yet in the flight or among the changes. Owner only.
func (s *Shard) HandOver(version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := flight{open: true, state: s.state, changed: s.changed, names: s.names}
	for counter, t := range s.rows {
		n := s.schema.Counters[counter].Count
		t.Clean(func(id uint64, state hot.State) {
			if state == hot.Partial {
				f.partial = append(f.partial, rowAt{counter, id, len(f.deltas)})
				f.deltas = append(f.deltas, make([]pipeline.Delta, n)...)
				t.Deltas(id, f.deltas[len(f.deltas)-n:])
				return
			}
			f.whole = append(f.whole, rowAt{counter, id, len(f.cells)})
			f.cells = append(f.cells, make([]int64, n)...)
			t.Read(id, f.cells[len(f.cells)-n:])
		})
	}
	for _, e := range f.changed {
		if e.kind == kindMarks {
			f.marks = append(f.marks, s.handOverMarks(e.a))
		}
	}
	s.flight, s.changed, s.names = f, nil, nil
	s.residency.handOver(version)
	s.gathered = s.state
	s.measureLocked()
}

// Write adds what was handed over, the state last, to a checkpoint. It runs
// beside reads and the owner's Apply: nobody else writes the flight.
func (s *Shard) Write(store *cold.Store, c *cold.Checkpoint) error {
	f := &s.flight
	for _, r := range f.whole {
		n := s.schema.Counters[r.counter].Count
		if err := c.Row(s.Number, r.counter, r.id, f.cells[r.at:r.at+n]); err != nil {
			return err
		}
	}
	marks := f.marks
	for _, e := range f.changed {
		if e.kind == kindMarks {
			if err := c.PutMarks(s.Number, e.a, marks[0][:]...); err != nil {
				return err
			}
			marks = marks[1:]
			continue
		}
		if err := s.put(c, e); err != nil {
			return err
		}
	}
	if err := s.complete(store, c); err != nil {
		return err
	}
	return c.State(s.Number, f.state)
}

// put adds an entry as it was left by a change; of several the last one stays.
func (s *Shard) put(c *cold.Checkpoint, e change) error {
	switch e.kind {
	case kindFollowing:
		if e.gone {
			return c.DeleteFollowing(s.Number, e.a, e.b)
		}
		return c.PutFollowing(s.Number, e.a, e.b, pipeline.Position(e.v))
	case kindFollower:
		if e.gone {
			return c.DeleteFollower(s.Number, e.a, e.b)
		}
		return c.PutFollower(s.Number, e.a, e.b)
	case kindPost:
		if e.gone {
			return c.DeletePost(s.Number, e.a, pipeline.Position(e.b))
		}
		return c.PutPost(s.Number, e.a, pipeline.Position(e.b), e.v)
	}
	return c.PutCursor(s.Number, e.a, s.flight.names[e.b], pipeline.Position(e.v))
}

// complete reads the bases of partial rows, in the order of the disk, and adds
// the whole rows.
func (s *Shard) complete(store *cold.Store, c *cold.Checkpoint) error {
	f := &s.flight
	if len(f.partial) == 0 {
		return nil
	}
	slices.SortFunc(f.partial, func(a, b rowAt) int {
		return cmp.Or(cmp.Compare(a.counter, b.counter), cmp.Compare(a.id, b.id))
	})
	bases := make([]int64, len(f.deltas))
	whole := make([]int64, 0, 16)
	err := store.View(c.Version()-1, func(v *cold.View) error {
		for _, r := range f.partial {
			n := s.schema.Counters[r.counter].Count
			base := bases[r.at : r.at+n]
			if _, err := v.Row(s.Number, r.counter, r.id, base); err != nil {
				return err
			}
			whole = whole[:0]
			for i, d := range f.deltas[r.at : r.at+n] {
				whole = append(whole, d.Apply(base[i]))
			}
			if err := c.Row(s.Number, r.counter, r.id, whole); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return s.unreadable(fmt.Errorf("shard %d: %w", s.Number, err))
	}
	f.bases = bases
	return nil
}

// Settle takes in what became of the last checkpoint: committed, or to be
// done again. Owner only.
func (s *Shard) Settle(committed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flight
	s.flight = flight{}
	s.residency.settle()
	if f.bases != nil { // they are right, whatever became of the commit
		for _, r := range f.partial {
			n := s.schema.Counters[r.counter].Count
			s.rows[r.counter].Complete(r.id, f.bases[r.at:r.at+n])
		}
		s.residency.completed += uint64(len(f.partial))
	}
	if committed {
		s.durable = f.state
		s.measureLocked()
		return
	}
	s.gathered = cold.State{}
	for _, rows := range [][]rowAt{f.whole, f.partial} {
		for _, r := range rows {
			s.rows[r.counter].MarkDirty(r.id)
		}
	}
	for _, e := range f.changed {
		if e.kind == kindMarks {
			s.markDirty(e.a)
		}
	}
	for i := range s.changed {
		if c := &s.changed[i]; c.kind == kindCursor {
			c.b += uint64(len(f.names))
		}
	}
	s.changed, s.names = append(f.changed, s.changed...), append(f.names, s.names...)
	s.measureLocked()
}
