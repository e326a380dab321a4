package shard

import (
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// After a start memory is empty, and is filled in the background, each kind of
// entries in the order of the disk. These methods put in a stretch of one kind
// and move its frontier, if the stretch goes on where that is; those that are called
// Install do nothing, and say so, when something was published since the stretch was
// read. What is only known by changes, and is not on disk yet, is put in too:
// from then on what is not in memory does not exist. Without a stretch (nil)
// there may be others between: no frontier moves.

// Stretch is a part of the disk's order: ids in [From, To), or from there to
// the end. Of sets the first half is the id, the second the member, or its first word.
type Stretch struct {
	From, To hot.Pair
	End      bool
}

// IDs is a stretch of ids.
func IDs(from, to uint64, end bool) *Stretch {
	return &Stretch{hot.Pair{A: from}, hot.Pair{A: to}, end}
}

func (r *Stretch) has(id uint64) bool { return r != nil && id >= r.From.A && (r.End || id < r.To.A) }

// InstallAuthors puts in all authors of a stretch that are on disk.
func (s *Shard) InstallAuthors(published uint64, authors []Author, of *Stretch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.currentLocked(published) {
		return false
	}
	s.installAuthorsLocked(authors)
	for _, id := range s.freshLocked(kindPost, of) {
		s.installAuthorsLocked([]Author{{ID: id}})
	}
	if s.residency.outboxes.extend(of); s.residency.outboxes.all {
		s.residency.newest = 0
	}
	s.measureLocked()
	return true
}

// Room makes room for bounds of so many authors. It comes before Bound.
func (s *Shard) Room(authors int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest.Grow(authors)
	s.measureLocked()
}

// Bound takes in the newest posts of authors on the disk (the B of each pair), whatever
// was published since they were read: a bound only rises, and what windows change in
// between raises it. end: there are no authors but those of windows since the start; an
// author that is not in memory is passed over from then on where they have nothing new
// enough.
func (s *Shard) Bound(newest []hot.Pair, end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range newest {
		s.newest.Raise(p.A, p.B)
	}
	if end {
		s.residency.newest = 0
	}
}

// InstallUsers puts in all users of a stretch that are on disk.
func (s *Shard) InstallUsers(published uint64, users []User, of *Stretch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.currentLocked(published) {
		return false
	}
	s.installUsersLocked(users)
	for _, id := range s.freshLocked(kindFollowing, of) {
		s.installUsersLocked([]User{{ID: id}})
	}
	if s.residency.users.extend(of); s.residency.users.all && s.following.Known() > 0 {
		s.following = hot.NewSets(hot.SetsForm{}) // it was for users who are not in memory
	}
	s.measureLocked()
	return true
}

// freshLocked are whose changes of a kind, in a stretch, are not on disk yet.
func (s *Shard) freshLocked(kind kind, of *Stretch) (ids []uint64) {
	for _, c := range []*changes{s.flight.changed, s.changed} {
		if c == nil {
			continue
		}
		for _, e := range c.list.All {
			if e.kind == kind && of.has(e.a) {
				ids = append(ids, e.a)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// NoteMembers has the filter of one column's sets know all members of a stretch that are
// on disk, in the disk's order, whatever was published since: what windows add it knows.
// false: the filter was given up.
func (s *Shard) NoteMembers(column pipeline.Column, prints []hot.Print, of *Stretch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.setOf(column)
	if t.filter == nil {
		return false
	}
	for _, print := range prints {
		t.note(print, s.state.Time/1000)
	}
	t.loaded.extend(of)
	s.measureLocked()
	return true
}

// Loaded says that nothing more is loaded: the filter of a set that is not whole is given
// up.
func (s *Shard) Loaded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.sets {
		if !t.filtered() {
			t.giveUp()
		}
	}
	s.measureLocked()
}

// InstallCounter puts in all rows of one counter, with ids of a stretch, that
// are on disk: ids ascending, the cells of each after those of the one before.
func (s *Shard) InstallCounter(published uint64, counter int, ids []uint64, cells []int64, of *Stretch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.currentLocked(published) {
		return false
	}
	n := s.schema.Counters[counter].Count
	l := s.layer(counter)
	for i, id := range ids {
		s.putRowLocked(l, id, cells[i*n:i*n+n])
	}
	if of != nil {
		s.putFreshRowsLocked(l, of)
	}
	r := &s.residency.rows[counter]
	if r.extend(of); r.all {
		s.cache[counter] = hot.NewTable(s.bits(counter)) // what it has is in the rows, or nowhere
	}
	s.measureLocked()
	return true
}

// putFreshRowsLocked makes rows of a stretch whole of which only changes are
// known: those on disk are whole already.
func (s *Shard) putFreshRowsLocked(l *layer, of *Stretch) {
	none := make([]int64, len(l.cells))
	fresh := []*hot.Table{s.rows[l.counter]}
	if f := &s.flight; f.partial != nil && f.partial[l.counter] != nil {
		fresh = append(fresh, f.partial[l.counter])
	}
	for _, rows := range fresh {
		for id := range rows.Changed {
			if of.has(id) {
				s.putRowLocked(l, id, none)
			}
		}
	}
}

// putRowLocked puts a row as it is on disk among those in memory, or under what
// has come since.
func (s *Shard) putRowLocked(l *layer, id uint64, base []int64) {
	rows := s.rows[l.counter]
	switch rows.Deltas(id, l.deltas) {
	case hot.None:
		rows.Put(id, l.overFlight(id, base))
		s.cache[l.counter].Remove(id)
	case hot.Partial:
		rows.Complete(id, l.overFlight(id, base))
	}
}
