package shard

import (
	"slices"
	"sort"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// Profile is what a user's own shard knows towards their unread numbers. It
// is reused from user to user.
type Profile struct {
	Marks     Marks
	Cells     []int64             // the user's row of the asked counter; empty when there is none
	Following []hot.Pair          // (followee, position of the follow)
	Cursors   []pipeline.Position // of the asked channels
}

// Profile reads a user's. counter may be -1 for none; channels are the
// channels whose cursors are wanted.
func (s *Shard) Profile(user uint64, counter int, channels []string, p *Profile) (cold.State, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.failed != nil {
		return cold.State{}, s.failed
	}
	p.Marks = s.marksLocked(user)
	p.Cells = p.Cells[:0]
	if counter >= 0 {
		p.Cells = append(p.Cells, s.tables[counter].Row(user)...)
	}
	p.Following = append(p.Following[:0], s.following.Get(user)...)
	p.Cursors = p.Cursors[:0]
	for _, name := range channels {
		p.Cursors = append(p.Cursors, s.cursorLocked(user, name))
	}
	return s.state, nil
}

func (s *Shard) cursorLocked(user uint64, name string) pipeline.Position {
	number, ok := s.channels[name]
	if !ok {
		return 0
	}
	return s.cursors[cursor{user, number}]
}

// CountPosts counts the listed posts of followees, all of this shard, after
// the mark and after the follow (each pair's B). horizon is the first
// position that is not too old.
//
// Nearly every followee has nothing new, which the entry's last position
// tells: one probe, one compare.
func (s *Shard) CountPosts(followees []hot.Pair, mark, horizon pipeline.Position) (uint64, cold.State, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.failed != nil {
		return 0, cold.State{}, s.failed
	}
	if horizon > 0 {
		mark = max(mark, horizon-1)
	}
	n := uint64(0)
	for _, f := range followees {
		if after := max(uint64(mark), f.B); s.outboxes.Last(f.A) > after {
			box := s.listedLocked(f.A)
			n += uint64(len(box) - since(box, pipeline.Position(after)+1))
		}
	}
	return n, s.state, nil
}

// listedLocked is the newest posts of an author, as many as are listed.
func (s *Shard) listedLocked(author uint64) []hot.Pair {
	box := s.outboxes.Get(author)
	return box[max(0, len(box)-s.limits.PostsMax):]
}

// Posts offers the listed posts of followees, all of this shard, that lie in
// [from, before), each author's newest first, until want says no to one of
// that author's.
func (s *Shard) Posts(followees []hot.Pair, from, before pipeline.Position, want func(author uint64, p hot.Pair) bool) (cold.State, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.failed != nil {
		return cold.State{}, s.failed
	}
	for _, f := range followees {
		if s.outboxes.Last(f.A) < uint64(from) {
			continue
		}
		box := s.listedLocked(f.A)
		for i := since(box, before) - 1; i >= 0 && box[i].A >= uint64(from); i-- {
			if !want(f.A, box[i]) {
				break
			}
		}
	}
	return s.state, nil
}

// Following lists whom a user follows, ascending, above an id, at most limit.
func (s *Shard) Following(user, after uint64, limit int, users []uint64) (out []uint64, more bool, state cold.State, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.failed != nil {
		return nil, false, cold.State{}, s.failed
	}
	list := s.following.Get(user)
	list = list[sort.Search(len(list), func(i int) bool { return list[i].A > after }):]
	for _, p := range list[:min(limit, len(list))] {
		users = append(users, p.A)
	}
	return users, len(list) > limit, s.state, nil
}

// Followers lists who follows a user, ascending, above an id, at most limit.
// A page costs the same at any depth and however many there are: the order is
// the disk's, and what is not yet there is in a bounded list of changes; the
// set in memory has the last word.
func (s *Shard) Followers(store *cold.Store, user, after uint64, limit int, users []uint64) (out []uint64, more bool, state cold.State, err error) {
	recent, state, err := s.recentFollowers(user, after)
	if err != nil {
		return nil, false, state, err
	}
	err = store.Followers(s.Number, user, after, func(follower uint64) bool {
		for len(recent) > 0 && recent[0] < follower {
			users = s.appendFollower(users, user, recent[0])
			recent = recent[1:]
		}
		if len(recent) > 0 && recent[0] == follower {
			recent = recent[1:]
		}
		users = s.appendFollower(users, user, follower)
		return len(users) <= limit
	})
	if err != nil {
		return nil, false, state, err
	}
	for len(recent) > 0 && len(users) <= limit {
		users = s.appendFollower(users, user, recent[0])
		recent = recent[1:]
	}
	if len(users) > limit {
		return users[:limit], true, state, nil
	}
	return users, false, state, nil
}

func (s *Shard) appendFollower(users []uint64, user, follower uint64) []uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.followers.Has(user, follower) {
		return append(users, follower)
	}
	return users
}

// recentFollowers are a user's followers above an id that may not be on disk
// yet, ascending.
func (s *Shard) recentFollowers(user, after uint64) ([]uint64, cold.State, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.failed != nil {
		return nil, cold.State{}, s.failed
	}
	var recent []uint64
	for _, list := range [][]change{s.flight.changed, s.changed} {
		for _, c := range list {
			if c.kind == kindFollower && c.a == user && c.b > after {
				recent = append(recent, c.b)
			}
		}
	}
	slices.Sort(recent)
	return slices.Compact(recent), s.state, nil
}
