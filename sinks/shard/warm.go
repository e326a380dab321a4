package shard

import (
	"math"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// After a start the memory is empty. Warm fills it while queries are answered
// and windows applied: outboxes first, because every feed asks many of them,
// then users, rows and edges, each kind in the order of the disk.

// warmChunk is how many entries are read at a time: some milliseconds, so that
// a checkpoint rarely comes between, and the lock is held shorter than that.
const warmChunk = 4096

// Warm loads what the store has of the shard and was written as of a version
// or later; 0 is everything, after which nothing is only on disk. It goes on
// until it is through or more says no, which it is asked between parts.
func (s *Shard) Warm(store *cold.Store, written uint64, more func() bool) error {
	for _, load := range []func(*cold.Store, uint64, func() bool) (bool, error){
		s.warmOutboxes, s.warmUsers, s.warmRows, s.warmEdges,
	} {
		if through, err := load(store, written, more); !through || err != nil {
			return err
		}
	}
	return nil
}

// warm calls step until it is done; then, if all was loaded and nothing has
// been evicted meanwhile, whole is called under the lock.
func (s *Shard) warm(written uint64, more func() bool, step func() (done bool, err error), whole func(*residency)) (through bool, err error) {
	evictions := s.evictions()
	for done := false; !done; {
		if !more() {
			return false, nil
		}
		if done, err = step(); err != nil {
			return false, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if written == 0 && s.residency.evictions == evictions {
		whole(&s.residency)
	}
	return true, nil
}

// evictions is how many there have been.
func (s *Shard) evictions() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.residency.evictions
}

func (s *Shard) warmOutboxes(store *cold.Store, written uint64, more func() bool) (bool, error) {
	r := cold.Range{Most: warmChunk}
	part := cold.Part{Since: written, Most: warmChunk}
	step := func() (bool, error) {
		if written > 0 {
			return s.warmOwners(store, &part, func(v *cold.View, want *Want) error {
				return v.Authors(s.Number, &part, func(author uint64) { want.authors = append(want.authors, author) })
			})
		}
		var l loaded
		err := s.consistent(store, func(v *cold.View) error {
			l = loaded{}
			return v.PostRange(s.Number, &r, func(author uint64, position pipeline.Position, post uint64) {
				if n := len(l.authors); n == 0 || l.authors[n-1].id != author {
					l.authors = append(l.authors, loadedAuthor{id: author})
				}
				l.authors[len(l.authors)-1].post(position, post)
			})
		}, func() {
			s.addFreshAuthorsLocked(&l, r)
			s.installLocked(&Want{}, &l)
		})
		r.From = r.To
		return r.To == math.MaxUint64, err
	}
	return s.warm(written, more, step, func(r *residency) { r.outboxes, r.newest = true, 0 })
}

// warmOwners loads whose entries a part has, each with all there is.
func (s *Shard) warmOwners(store *cold.Store, part *cold.Part, list func(*cold.View, *Want) error) (bool, error) {
	var want Want
	if err := store.View(cold.Newest, func(v *cold.View) error { return list(v, &want) }); err != nil {
		return false, s.unreadable(err)
	}
	return part.Done, s.Load(store, &want)
}

func (s *Shard) warmUsers(store *cold.Store, written uint64, more func() bool) (bool, error) {
	r := cold.Range{Most: warmChunk}
	part := cold.Part{Since: written, Most: warmChunk / 16} // each is some entries
	evictions := s.evictions()
	step := func() (bool, error) {
		if written > 0 {
			return s.warmOwners(store, &part, func(v *cold.View, want *Want) error {
				return v.Users(s.Number, &part, func(user uint64) { want.users = append(want.users, user) })
			})
		}
		var l loaded
		err := s.consistent(store, func(v *cold.View) error {
			l = loaded{}
			places := make(map[uint64]int)
			user := func(id uint64) *loadedUser {
				at, ok := places[id]
				if !ok {
					at = len(l.users)
					places[id] = at
					l.users = append(l.users, loadedUser{id: id})
				}
				return &l.users[at]
			}
			return v.UserRange(s.Number, &r,
				func(id, followee uint64, since pipeline.Position) { user(id).follow(followee, since) },
				func(id uint64, marks [marksCount]uint64) { user(id).marks = marks },
				func(id uint64, channel string, position pipeline.Position) { user(id).cursor(channel, position) })
		}, func() {
			s.addFreshUsersLocked(&l, r)
			s.installLocked(&Want{}, &l)
			if s.residency.evictions == evictions {
				s.residency.usersTo = r.To
			}
		})
		r.From = r.To
		return r.To == math.MaxUint64, err
	}
	return s.warm(written, more, step, func(r *residency) {
		r.users = true
		s.following = hot.NewEdges() // it was for users who are not in memory
	})
}

// addFreshAuthorsLocked adds authors of a range of whom only changes are known,
// which are not on disk yet.
func (s *Shard) addFreshAuthorsLocked(l *loaded, r cold.Range) {
	known := make(map[uint64]bool, len(l.authors))
	for i := range l.authors {
		known[l.authors[i].id] = true
	}
	for _, id := range s.freshLocked(kindPost, r, known) {
		l.authors = append(l.authors, loadedAuthor{id: id})
	}
}

// addFreshUsersLocked adds such users.
func (s *Shard) addFreshUsersLocked(l *loaded, r cold.Range) {
	known := make(map[uint64]bool, len(l.users))
	for i := range l.users {
		known[l.users[i].id] = true
	}
	for _, id := range s.freshLocked(kindFollowing, r, known) {
		l.users = append(l.users, loadedUser{id: id})
	}
}

// freshLocked are who has changes of a kind, in a range, and is not known yet.
func (s *Shard) freshLocked(kind kind, r cold.Range, known map[uint64]bool) (ids []uint64) {
	for _, list := range [][]change{s.flight.changed, s.changed} {
		for _, c := range list {
			if c.kind == kind && c.a >= r.From && (c.a < r.To || r.To == math.MaxUint64) && !known[c.a] {
				known[c.a] = true
				ids = append(ids, c.a)
			}
		}
	}
	return ids
}

func (s *Shard) warmRows(store *cold.Store, written uint64, more func() bool) (bool, error) {
	part := cold.Part{Since: written, Most: warmChunk}
	var keys []rowAt
	var cells []int64
	step := func() (bool, error) {
		next := part
		err := s.consistent(store, func(v *cold.View) error {
			next = part
			keys, cells = keys[:0], cells[:0]
			return v.Rows(s.Number, &next, func(counter int, id uint64, row []int64) error {
				keys = append(keys, rowAt{counter, id, len(cells)})
				cells = append(cells, row...)
				return nil
			})
		}, func() {
			for _, k := range keys {
				s.putRowLocked(k.counter, k.id, cells[k.at:k.at+s.schema.Counters[k.counter].Count])
			}
		})
		part = next
		return part.Done, err
	}
	return s.warm(written, more, step, func(r *residency) {
		for i := range r.rows {
			r.rows[i] = true
			s.cache[i] = hot.NewTable(s.bits(i)) // what it has is in the rows, or nowhere
		}
	})
}

// putRowLocked puts a row as it is on disk into memory, or under what has come
// since.
func (s *Shard) putRowLocked(counter int, id uint64, cells []int64) {
	room := make([]int64, len(cells))
	switch s.rows[counter].Read(id, room) {
	case hot.None:
		s.rows[counter].Put(id, cells)
		s.cache[counter].Remove(id)
	case hot.Partial:
		s.rows[counter].Complete(id, cells)
	}
}

func (s *Shard) warmEdges(store *cold.Store, written uint64, more func() bool) (bool, error) {
	part := cold.Part{Since: written, Most: warmChunk}
	var edges []hot.Pair
	step := func() (bool, error) {
		next := part
		err := s.consistent(store, func(v *cold.View) error {
			next = part
			edges = edges[:0]
			return v.Edges(s.Number, &next, func(user, follower uint64) { edges = append(edges, hot.Pair{A: user, B: follower}) })
		}, func() {
			for _, e := range edges {
				if _, known := s.followedByLocked(e.A, e.B); !known {
					s.followers.Put(e.A, e.B, true)
				}
			}
		})
		part = next
		return part.Done, err
	}
	return s.warm(written, more, step, func(r *residency) { r.edges = true })
}
