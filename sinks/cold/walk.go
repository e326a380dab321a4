package cold

import (
	"fmt"
	"math"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/run"
)

// Part is a stretch of one kind of a shard's entries, for a caller that goes over all
// of it piece by piece. Each piece may be of another view.
type Part struct {
	From   run.Key // where to go on; the zero Key: from the beginning
	Newest int     // only keys that the newest so many runs have; 0: all
	Most   int     // so many entries, about; 0: one at least
	Done   bool    // there is no more
}

// newest are the runs that a part is of.
func (v *View) newest(part *Part) []*layer {
	if n := part.Newest; n > 0 && n < len(v.layers.all) {
		return v.layers.all[:n]
	}
	return v.layers.all
}

// rowsTogether is how many rows are looked up at once where a walk needs what
// runs say that it does not go over.
const rowsTogether = 512

// WalkRows visits a part of the rows by counter and id, with their values as of
// all runs, and moves the part on; rows of zeros are passed over. cells are
// valid during the visit, whose error is returned as it is.
func (v *View) WalkRows(part *Part, visit func(counter int, id uint64, cells []int64) error) error {
	if v.err != nil {
		return v.err
	}
	some := v.newest(part)
	all := len(some) == len(v.layers.all)
	iterators := make([]*run.Iterator, len(some))
	part.From.Kind = run.Row
	for i, l := range some {
		iterators[i] = l.run.Iterator(&run.Scratch{Ahead: walkAhead})
		iterators[i].Seek(&part.From)
	}
	w := &rowWalk{view: v, visit: visit, cells: make([]int64, v.stack.store.cellsMax*rowsTogether)}
	merger := run.NewMerger(iterators, all, nil)
	part.Done = true
	for n := 0; merger.Next() && merger.Key().Kind == run.Row; n++ {
		if n > 0 && n >= part.Most {
			part.From, part.Done = *merger.Key(), false
			break
		}
		if err := w.next(merger, all); err != nil {
			return err
		}
	}
	if err := merger.Err(); err != nil {
		return v.stack.wrap(some[merger.Failed()], err)
	}
	return w.lookUp()
}

// rowWalk looks rows up where a walk does not go over all runs.
type rowWalk struct {
	view    *View
	visit   func(counter int, id uint64, cells []int64) error
	cells   []int64
	counter int
	ids     []uint64 // of counter, still to be visited
}

func (w *rowWalk) next(m *run.Merger, all bool) error {
	s := w.view.stack.store
	key := m.Key()
	if int(key.Counter) >= len(s.byNumber) || s.byNumber[key.Counter] < 0 {
		return fmt.Errorf("cold: shard %d: %w: counter %d of %d", w.view.stack.number, ErrCorrupt, key.Counter, len(s.byNumber))
	}
	counter := s.byNumber[key.Counter]
	if !all {
		if counter != w.counter || len(w.ids) == rowsTogether {
			if err := w.lookUp(); err != nil {
				return err
			}
		}
		w.counter, w.ids = counter, append(w.ids, key.A)
		return nil
	}
	cells := w.cells[:s.schema.Counters[counter].Count]
	clear(cells)
	if err := run.ApplyRow(m.Value(), s.counters[counter].places, cells); err != nil {
		return fmt.Errorf("cold: shard %d: row %d: %w", w.view.stack.number, key.A, err)
	}
	return w.visit(counter, key.A, cells)
}

// lookUp visits the rows that are still to be.
func (w *rowWalk) lookUp() error {
	if len(w.ids) == 0 {
		return nil
	}
	columns := w.view.stack.store.schema.Counters[w.counter].Count
	cells := w.cells[:columns*len(w.ids)]
	if err := w.view.Rows(w.counter, w.ids, cells); err != nil {
		return err
	}
	for i, id := range w.ids {
		row := cells[i*columns : (i+1)*columns]
		if !slices.ContainsFunc(row, func(v int64) bool { return v != 0 }) {
			continue
		}
		if err := w.visit(w.counter, id, row); err != nil {
			return err
		}
	}
	w.ids = w.ids[:0]
	return nil
}

// Heads are the beginnings of the keys of all kinds of entries that are an id's: the rows of
// a counter, the members of a set, and each list of users and authors.
func (k *Stack) Heads() (heads []run.Key) {
	for number, counter := range k.store.byNumber {
		if counter >= 0 {
			heads = append(heads, run.Key{Kind: run.Row, Counter: uint8(number)})
		}
	}
	for _, kind := range []run.Kind{run.Following, run.Follower, run.Post, run.Marks, run.Cursor} {
		heads = append(heads, run.Key{Kind: kind})
	}
	for i := range k.store.sets {
		heads = append(heads, k.store.sets[i].Key)
	}
	return heads
}

// WalkIDs visits the ids of a part of the entries of one kind, which part.From says: one of
// Heads, or where the part before ended. Entries count that say that something is gone,
// until a merge drops them. An id comes once for each entry, ascending.
func (v *View) WalkIDs(part *Part, visit func(id uint64)) error {
	if v.err != nil {
		return v.err
	}
	iterators := make([]*run.Iterator, len(v.layers.all))
	for i, l := range v.layers.all {
		iterators[i] = l.run.Iterator(&run.Scratch{Ahead: walkAhead})
		iterators[i].Seek(&part.From)
	}
	merger, head := run.NewMerger(iterators, false, nil), part.From
	part.Done = true
	for n := 0; merger.Next() && merger.Key().Kind == head.Kind && merger.Key().Counter == head.Counter; n++ {
		if n > 0 && n >= part.Most {
			part.From, part.Done = *merger.Key(), false
			break
		}
		visit(merger.Key().A)
	}
	if err := merger.Err(); err != nil {
		return v.stack.wrap(v.layers.all[merger.Failed()], err)
	}
	return nil
}

// WalkUsers visits the users of a part of the marks, each once in it.
func (v *View) WalkUsers(part *Part, visit func(user uint64)) error {
	return v.walkOwners(run.Marks, part, visit)
}

// WalkAuthors visits the authors of a part of the posts, each once in it.
func (v *View) WalkAuthors(part *Part, visit func(author uint64)) error {
	return v.walkOwners(run.Post, part, visit)
}

// walkOwners visits the owners of a part's entries; parts end with a whole owner.
func (v *View) walkOwners(kind run.Kind, part *Part, visit func(owner uint64)) error {
	last := uint64(0)
	return v.walk(kind, part, func(key *run.Key, full bool) bool {
		if full && key.A != last {
			return false
		}
		if key.A != last {
			visit(key.A)
		}
		last = key.A
		return true
	})
}

// WalkEdges visits a part of the followers.
func (v *View) WalkEdges(part *Part, visit func(user, follower uint64)) error {
	return v.walk(run.Follower, part, func(key *run.Key, full bool) bool {
		if !full {
			visit(key.A, key.B)
		}
		return !full
	})
}

// walk visits entries of a kind from part.From on until visit says no, and
// notes where to go on; full says that part.Most were visited.
func (v *View) walk(kind run.Kind, part *Part, visit func(key *run.Key, full bool) (more bool)) error {
	part.From.Kind = kind
	s := v.scan(part.From, v.newest(part), &walkScratches, nil)
	s.seek(&part.From, nil)
	return s.walk(part, func(full bool) bool { return visit(s.key(), full) })
}

// walk is the part of View.walk after the scan was sought.
func (s *scan) walk(part *Part, visit func(full bool) (more bool)) error {
	part.Done = true
	for n := 0; s.next(); n++ {
		if !visit(n > 0 && n >= part.Most) {
			part.From, part.Done = *s.key(), false
			break
		}
	}
	return s.end()
}

// Range is whose entries a visit by owner goes over: ids in [From, To). To is
// set by the visit: it ends with a whole owner. [math.MaxUint64] is the end: there
// is no more.
type Range struct {
	From, To uint64
	Most     int // entries of one kind, at least
}

// UserRange visits all that is stored of the users of a range: first their followees,
// then their marks, then their cursors, each by user. Where it ends is set before the
// visits begin.
func (v *View) UserRange(r *Range,
	following func(user, followee uint64, since pipeline.Position),
	marks func(user uint64, marks [4]uint64),
	cursor func(user uint64, channel string, position pipeline.Position),
) error {
	if err := v.bound(r, run.Following, run.Marks, run.Cursor); err != nil {
		return err
	}
	err := v.ranged(run.Following, r, func(s *scan) { following(s.key().A, s.key().B, pipeline.Position(s.numbers()[0])) })
	if err == nil {
		err = v.ranged(run.Marks, r, func(s *scan) { marks(s.key().A, s.numbers()) })
	}
	if err == nil {
		err = v.ranged(run.Cursor, r, func(s *scan) { cursor(s.key().A, s.key().Name, pipeline.Position(s.numbers()[0])) })
	}
	return err
}

// PostRange visits the posts of the authors of a range, by author and position.
func (v *View) PostRange(r *Range, visit func(author uint64, position pipeline.Position, post uint64)) error {
	if err := v.bound(r, run.Post); err != nil {
		return err
	}
	return v.ranged(run.Post, r, func(s *scan) { visit(s.key().A, pipeline.Position(s.key().B), s.numbers()[0]) })
}

// bound sets r.To to the first owner after r.Most entries of one of some kinds.
func (v *View) bound(r *Range, kinds ...run.Kind) error {
	r.To = math.MaxUint64
	for _, kind := range kinds {
		part := Part{From: run.Key{A: r.From}, Most: r.Most}
		if err := v.walkOwners(kind, &part, func(uint64) {}); err != nil {
			return err
		}
		if !part.Done {
			r.To = min(r.To, part.From.A)
		}
	}
	return nil
}

func (v *View) ranged(kind run.Kind, r *Range, visit func(*scan)) error {
	from := run.Key{Kind: kind, A: r.From}
	s := v.scan(from, v.layers.all, &walkScratches, nil)
	s.seek(&from, nil)
	for s.next() && (r.To == math.MaxUint64 || s.key().A < r.To) {
		visit(s)
	}
	return s.end()
}
