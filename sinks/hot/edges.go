package hot

import "github.com/tidemark-io/tidemark/pipeline"

// Edges is a set of pairs of ids: who is followed by whom. Open addressing
// with linear probing, without pointers; removal shifts back what probed past
// the gap, so that there are no tombstones and probes stay short.
type Edges struct {
	slots []Pair // A = 0: free
	used  int
}

// NewEdges makes an empty set.
func NewEdges() *Edges { return &Edges{slots: make([]Pair, tableMin)} }

// Count is the number of pairs.
func (s *Edges) Count() int { return s.used }

// Bytes is the memory taken.
func (s *Edges) Bytes() int { return 16 * len(s.slots) }

// Has says whether a pair is in the set.
func (s *Edges) Has(a, b uint64) bool {
	_, ok := s.find(Pair{a, b})
	return ok
}

// Add puts a pair in, and says whether it was not there. Neither id is 0.
func (s *Edges) Add(a, b uint64) bool {
	at, ok := s.find(Pair{a, b})
	if ok {
		return false
	}
	if 4*(s.used+1) > 3*len(s.slots) {
		s.grow()
		at, _ = s.find(Pair{a, b})
	}
	s.slots[at] = Pair{a, b}
	s.used++
	return true
}

// Remove takes a pair out, and says whether it was there.
func (s *Edges) Remove(a, b uint64) bool {
	at, ok := s.find(Pair{a, b})
	if !ok {
		return false
	}
	s.used--
	mask := uint64(len(s.slots) - 1)
	for next := (at + 1) & mask; s.slots[next].A != 0; next = (next + 1) & mask {
		// The pair at next may move to the gap unless its home lies between.
		if home := s.home(s.slots[next]); (next-home)&mask >= (next-at)&mask {
			s.slots[at] = s.slots[next]
			at = next
		}
	}
	s.slots[at] = Pair{}
	return true
}

func (s *Edges) home(p Pair) uint64 {
	return pipeline.Mix(pipeline.Mix(p.A)+p.B) >> 8 & uint64(len(s.slots)-1)
}

func (s *Edges) find(p Pair) (at uint64, ok bool) {
	mask := uint64(len(s.slots) - 1)
	for at = s.home(p); s.slots[at] != p; at = (at + 1) & mask {
		if s.slots[at].A == 0 {
			return at, false
		}
	}
	return at, true
}

func (s *Edges) grow() {
	old := s.slots
	s.slots = make([]Pair, 2*len(old))
	for _, p := range old {
		if p.A != 0 {
			at, _ := s.find(p)
			s.slots[at] = p
		}
	}
}
