package shard

import (
	"cmp"
	"math"
	"slices"

	"github.com/tidemark-io/tidemark/sinks/hot"
)

// Eviction. What memory must hold, and what a shard may give up, says residency.go.

// Watch begins to note what is used, so that Shed knows, and has tables be tight. It costs
// every read and every new row a little, so it is left until memory is nearly full. Owner
// only.
func (s *Shard) Watch() {
	s.Tighten()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.rows {
		s.rows[i].Evict(0)
		s.cache[i].Evict(0)
	}
	s.users.Evict(0, func(uint64) bool { return true })
	for _, t := range s.sets {
		t.read.Evict(0)
	}
	s.following.Evict(0)
}

// Shed gives up a share (0 to 1) of what the shard holds in memory and is on disk or
// among the changes too, the least used first. It does nothing while a commit is under way.
// Owner only.
func (s *Shard) Shed(share float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flight.open || s.failed != nil {
		return
	}
	if share = s.shedCacheLocked(share); share <= 0 {
		s.measureLocked()
		return
	}
	r := &s.residency
	for i, t := range s.rows {
		if evicted := t.Evict(int(math.Ceil(float64(t.Rows()) * share))); evicted > 0 {
			r.rows[i] = frontier{}
			r.evictions += uint64(evicted)
			s.counts[i].evictions += uint64(evicted)
		}
	}
	evicted := s.users.Evict(int(float64(s.users.Bytes())*share), func(user uint64) bool {
		keep := s.marksDirty(user)
		if !keep {
			s.forgetCursorsLocked(user)
		}
		return keep
	})
	if evicted > 0 {
		r.users = frontier{}
		r.evictions += uint64(evicted)
	}
	s.shedOutboxesLocked(share)
	s.shedListsLocked(true)
	s.shedSetsLocked(share)
	s.measureLocked()
}

// shedCacheLocked gives up rows that were only read, and returns the share that
// the rest has still to give: what is read once must not drive out the rest.
func (s *Shard) shedCacheLocked(share float64) (rest float64) {
	resident, cached := s.residentBytesLocked(), 0
	for _, cache := range s.cache {
		if cache.Rows() > 0 { // else its bytes stay
			cached += cache.Bytes()
		}
	}
	excess := share * float64(resident)
	part := min(1, excess/float64(max(cached, 1)))
	for i, cache := range s.cache {
		s.counts[i].evictions += uint64(cache.Evict(int(math.Ceil(float64(cache.Rows()) * part))))
	}
	if part < 1 {
		return 0 // it was enough, or will be the next time
	}
	return (excess - float64(cached)) / float64(max(resident-cached, 1))
}

// filterShare is how much of what a shard holds the filters of its sets may take while
// memory is short, as one part in so many: they are kept whole, or not at all.
const filterShare = 4

// shedSetsLocked forgets members, and gives up the largest filters.
func (s *Shard) shedSetsLocked(share float64) {
	evict := func(members *hot.Sets) {
		s.residency.evictions += uint64(members.Evict(int(math.Ceil(float64(members.Known()) * share))))
	}
	evict(s.following)
	bytes := 0
	for _, t := range s.sets {
		evict(t.read)
		bytes += t.filterBytes()
	}
	for bytes > s.residentBytesLocked()/filterShare {
		largest := slices.MaxFunc(s.sets, func(a, b *set) int { return cmp.Compare(a.filterBytes(), b.filterBytes()) })
		bytes -= largest.filterBytes()
		largest.giveUp()
		s.residency.evictions++
	}
}

// shedOutboxesLocked gives up the outboxes whose newest post is oldest.
func (s *Shard) shedOutboxesLocked(share float64) {
	const samples = 1024
	var newest []uint64
	every := max(1, s.outboxes.Count()/samples)
	n := 0
	s.outboxes.Each(func(author uint64) {
		if n++; n%every == 0 {
			word, _ := s.outboxes.Word(author, 0)
			newest = append(newest, word)
		}
	})
	if len(newest) == 0 {
		return
	}
	slices.Sort(newest)
	limit := newest[min(int(float64(len(newest))*share), len(newest)-1)]
	if dropped := s.outboxes.DropBelow(0, limit); dropped > 0 {
		s.residency.outboxes = frontier{}
		s.residency.evictions += uint64(dropped)
	}
}
