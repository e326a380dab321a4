package cold

import (
	"sync"

	"github.com/tidemark-io/tidemark/sinks/run"
)

// scan goes over the entries of one kind, not rows, or of one set, in the runs of
// a view, ascending, each key once: as the newest run that has it says. Deletions
// are passed over, and what is gone since a set was emptied.
type scan struct {
	view  *View
	of    run.Key // its kind and counter are those of the entries
	set   bool
	heads []head // newest first
	at    *head  // whose entry it is
	pool  *sync.Pool
	err   error

	emptied    uint64 // id of the last mark
	emptiedAge int    // of the newest run that has it
}

// head is where a scan is in one run.
type head struct {
	*run.Iterator
	scratch *run.Scratch
	layer   *layer
	age     int  // index in heads
	used    bool // its entry was visited, or a newer one of the same key
	live    bool // it has an entry
}

// walkAhead is how many bytes of each run are read at once by what goes over
// all of it.
const walkAhead = 64 << 10

// What single lookups read blocks into, and what goes over all of a run.
var (
	scratches     = sync.Pool{New: func() any { return new(run.Scratch) }}
	walkScratches = sync.Pool{New: func() any { return &run.Scratch{Ahead: walkAhead} }}
)

// putBack has a scratch serve others. It forgets its block: whether somebody else's read needs the
// disk must not be chance, and a run that is gone must not stay in memory.
func putBack(pool *sync.Pool, scratch *run.Scratch) {
	scratch.Forget()
	pool.Put(scratch)
}

// scan makes a scan of the runs among some that may is true for, of the kind and
// the counter of a key. It must be sought first, and ended.
func (v *View) scan(of run.Key, some []*layer, pool *sync.Pool, may func(*run.Run) bool) *scan {
	mark := of.Emptied()
	s := &scan{view: v, of: of, set: mark.IsMark(), pool: pool, err: v.err}
	if v.err != nil {
		return s
	}
	for _, l := range some {
		if may == nil || may(l.run) {
			scratch := pool.Get().(*run.Scratch)
			s.heads = append(s.heads, head{Iterator: l.run.Iterator(scratch), scratch: scratch, layer: l, age: len(s.heads)})
		}
	}
	return s
}

// end returns the error that ended it early; the scan is useless after that.
func (s *scan) end() error {
	for i := range s.heads {
		putBack(s.pool, s.heads[i].scratch)
	}
	s.heads = nil
	return s.err
}

// of is a scan of what one owner has of a kind, from a key on.
func (v *View) of(from run.Key) *scan {
	s := v.scan(from, v.layers.all, &scratches, func(r *run.Run) bool { return r.MayOwn(&from) })
	s.seek(&from, nil)
	return s
}

// seek has next come to the first entry whose key is not before key, in the
// runs that may is true for.
func (s *scan) seek(key *run.Key, may func(*run.Run) bool) {
	for i := range s.heads {
		h := &s.heads[i]
		h.live, h.used = false, false
		if may == nil || may(h.layer.run) {
			h.Seek(key)
			h.used = true
		}
	}
}

// seekMember is seek for a scan of a set, all of whose runs may have what key is
// about. If the set of key's id was emptied, the scan knows it.
func (s *scan) seekMember(key *run.Key) {
	mark := key.Emptied()
	s.seek(&mark, nil)
	if *key == mark {
		return
	}
	if s.step() { // nothing of the set comes before its mark
		s.outlived()
	}
	s.seek(key, nil)
}

// next comes to the next entry.
func (s *scan) next() bool {
	for s.step() {
		if s.set && s.outlived() {
			continue
		}
		if !s.at.Gone() {
			return true
		}
	}
	return false
}

// outlived says of an entry of a set that the set was emptied after it. A mark is
// noted.
func (s *scan) outlived() bool {
	if s.key().IsMark() {
		s.emptied, s.emptiedAge = s.key().A, s.at.age
	}
	return s.key().A == s.emptied && s.at.age > s.emptiedAge
}

// step comes to the next entry, which may be gone.
func (s *scan) step() bool {
	if s.err != nil {
		return false
	}
	s.at = nil
	for i := range s.heads {
		h := &s.heads[i]
		if h.used && !s.advance(h) || !h.live {
			continue
		}
		if s.at == nil || h.Key().Compare(s.at.Key()) < 0 {
			s.at = h
		}
	}
	if s.err != nil || s.at == nil {
		return false
	}
	for i := range s.heads {
		h := &s.heads[i]
		h.used = h.live && (h == s.at || h.Key().Compare(s.at.Key()) == 0)
	}
	return true
}

func (s *scan) advance(h *head) bool {
	h.used = false
	h.live = h.Next() && h.Key().Kind == s.of.Kind && h.Key().Counter == s.of.Counter
	if err := h.Err(); err != nil {
		s.err = s.view.stack.wrap(h.layer, err)
	}
	return h.live
}

func (s *scan) key() *run.Key { return s.at.Key() }

// numbers are the entry's value; zeros and an error that ends the scan where it
// cannot be read.
func (s *scan) numbers() [4]uint64 {
	numbers, err := run.ReadNumbers(s.of.Kind, s.at.Value())
	if err != nil && s.err == nil {
		s.err = s.view.stack.wrap(s.at.layer, s.at.Damage(err))
	}
	return numbers
}
