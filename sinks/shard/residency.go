package shard

import (
	"runtime"
	"slices"

	"github.com/tidemark-io/tidemark/sinks/hot"
)

// A shard's memory holds what is used; all of it is on disk, but for what has
// changed since the last checkpoint. So far as nothing is only on disk
// (residency), what is not in memory does not exist. Otherwise:
//
//   - A counter row may be partial: what has come since what is on disk. To
//     change a row never waits for the disk, and neither does a checkpoint: it
//     hands over what has come, as a change.
//   - A change of the graph, of a set, of an outbox or of marks asks what is there
//     (a post that is listed twice is listed once), so it must be known before:
//     Wants names what a window needs, Install takes it in, before Apply.
//   - Rows that were only read go to a cache of their own, so that a flood of
//     reads of what is old evicts nothing else.
//
// What is = what was published + what is in flight + what is dirty. Published is what
// the disk shows; it moves only in Settle, under the lock. So a caller that looks at
// the disk captures, under the read lock, what lies over it, and in the same locked
// section pins the disk as it is then. The answer is exact as of that moment, however
// long the disk takes and whatever is published during it. What was read is put into
// memory only if nothing was published since.

// residency says what is only on disk.
type residency struct {
	rows     []frontier // by counter
	users    frontier
	outboxes frontier
	// newest is above the newest post of every author that was never in memory and that
	// Bound did not name: a user who has read up to there has nothing unread of them. All
	// others Shard.newest bounds, in memory or not.
	newest uint64

	published uint64 // how often something was published
	evictions uint64 // and evicted, or a filter given up
	noted     uint64 // and an identity of an item
	diskless  bool   // nothing is on disk
}

func newResidency(counters int, state State) residency {
	all := frontier{all: state == State{}} // nothing is on disk
	r := residency{rows: make([]frontier, counters), users: all, outboxes: all, diskless: all.all}
	for i := range r.rows {
		r.rows[i] = all
	}
	if !all.all {
		r.newest = uint64(state.Applied)
	}
	return r
}

// frontier is how far one kind of entries has been loaded, in the order of the
// disk: of what lies before it, that which is not in memory does not exist. To
// evict anything of the kind resets it. Of sets prints are loaded: what has none does not
// exist, and to give the filter up resets it.
type frontier struct {
	to  hot.Pair // before here; B counts for sets alone
	all bool     // everything is
}

// has says whether the entries of an id lie before the frontier.
func (f *frontier) has(id uint64) bool { return f.all || id < f.to.A }

// extend moves the frontier over a stretch that has just been loaded, if that
// goes on where the frontier is. After something was evicted it does not.
func (f *frontier) extend(of *Stretch) {
	if of == nil || before(f.to, of.From) {
		return
	}
	if before(f.to, of.To) {
		f.to = of.To
	}
	f.all = f.all || of.End
}

func before(p, q hot.Pair) bool { return p.A < q.A || p.A == q.A && p.B < q.B }

// wholeLocked says that nothing is only on disk, but for members of sets, of all of which
// the filters know.
func (s *Shard) wholeLocked() bool {
	for _, f := range s.residency.rows {
		if !f.all {
			return false
		}
	}
	for _, t := range s.sets {
		if !t.filtered() {
			return false
		}
	}
	return s.residency.users.all && s.residency.outboxes.all
}

// Pin calls pin while nothing can be published, and returns what the Install
// methods ask for: how often something was published up to then.
func (s *Shard) Pin(pin func()) (published uint64, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.failed != nil {
		return 0, s.failed
	}
	pin()
	return s.residency.published, nil
}

// Moment is when Wants looked. As long as it is the current one, what was known then is
// known still. The zero value never is.
type Moment struct {
	some                        bool
	published, evictions, noted uint64
	absent                      []absent
	lists                       []listRef
}

// absent is an identity that had no print, so that its list was not wanted.
type absent struct {
	set   *set
	print hot.Print
}

// listRef is a list that the window needs in memory.
type listRef struct {
	set  *set
	user uint64
}

func (s *Shard) momentLocked(of *asking) Moment {
	return Moment{true, s.residency.published, s.residency.evictions, s.residency.noted, slices.Clone(of.absent), slices.Clone(of.lists)}
}

// Ready says whether it is the same moment still.
func (s *Shard) Ready(m Moment) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := &s.residency
	if s.failed != nil || !m.some || m.published != r.published || m.evictions != r.evictions {
		return false
	}
	if slices.ContainsFunc(m.lists, func(l listRef) bool { return l.set.lists[l.user] == nil }) {
		return false
	}
	if m.noted == r.noted {
		return true
	}
	touched := uint64(0)
	for _, a := range m.absent {
		touched += a.set.filter.Touch(a.print)
	}
	runtime.KeepAlive(touched)
	return !slices.ContainsFunc(m.absent, func(a absent) bool { return a.set.may(a.print) })
}

// currentLocked says whether what was read as of a count of publications is
// still what the disk shows.
func (s *Shard) currentLocked(published uint64) bool {
	return s.failed == nil && s.residency.published == published
}
