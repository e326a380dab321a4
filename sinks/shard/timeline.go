package shard

import (
	"sort"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// An outbox lists an author's posts by position, ascending: (position, post).
// It is a set of posts. It holds those no older than the retention, PostsKept
// at most, as of its own last change: what is older is dropped when the author
// posts again, so that dropping, too, is a function of the log. Of these the
// newest PostsMax count: how many that are is a matter of reading, so that a
// post deleted makes room for an older one.
//
// The position of the newest post stands beside the author, so that "has this
// author anything newer than the mark" takes one look.

// putOutboxLocked puts an author in memory as they were read from the disk.
func (s *Shard) putOutboxLocked(author uint64, box []hot.Pair) {
	s.outboxes.Make(author)
	s.outboxes.Fill(author, 0, box)
	if len(box) > 0 {
		s.newestLocked(author, box[len(box)-1].A)
	}
}

// listLocked adds a post behind all others, unlistLocked takes one out.
func (s *Shard) listLocked(author, post, position uint64) {
	s.outboxes.Set(author, 0, hot.Pair{A: position, B: post})
	s.newestLocked(author, position)
	s.changed.add(change{kind: kindPost, a: author, b: position, v: post})
}

func (s *Shard) unlistLocked(author, position uint64) {
	s.outboxes.Delete(author, 0, position)
	s.changed.add(change{kind: kindPost, gone: true, a: author, b: position})
	if newest, _ := s.outboxes.Word(author, 0); newest == position {
		newest = 0
		s.outboxes.Descend(author, 0, position, &s.scratch, func(p hot.Pair) bool {
			newest = p.A
			return false
		})
		s.outboxes.SetWord(author, 0, newest)
	}
}

func (s *Shard) newestLocked(author, position uint64) {
	s.outboxes.SetWord(author, 0, position)
	s.raiseLocked(author, position)
}

// raiseLocked notes an author's newest post where feeds look first. There is a
// cell an author in memory at least, made anew for half as many more.
func (s *Shard) raiseLocked(author, position uint64) {
	if cells := s.outboxes.Count() * 3 / 2; s.outboxes.Count() > s.newest.Cells() {
		if !s.residency.outboxes.all { // nobody knows but the cells
			s.newest.Grow(cells)
		} else {
			*s.newest = *hot.NewNewest(cells)
			s.outboxes.Each(func(author uint64) {
				word, _ := s.outboxes.Word(author, 0)
				s.newest.Raise(author, word)
			})
		}
	}
	s.newest.Raise(author, position)
}

func (s *Shard) postLocked(author, post uint64, position pipeline.Position) error {
	if !s.outboxes.Has(author) {
		if !s.residency.outboxes.all {
			return errNotLoaded
		}
		s.outboxes.Make(author)
		s.listLocked(author, post, uint64(position))
		return nil
	}
	horizon, dropped := uint64(s.clock.Horizon(position, s.limits.Retention)), 0
	drop := func(position uint64) {
		s.unlistLocked(author, position)
		dropped++
	}
	was, listed := s.outboxes.FindB(author, 0, post)
	if listed && was < horizon {
		drop(was) // too old: it is as if it were not there
		listed = false
	}
	for dropped < dropMax {
		oldest, ok := s.outboxes.First(author, 0)
		room := listed || !full(s.outboxes.Len(author, 0), s.limits.PostsKept)
		if !ok || oldest.A >= horizon && room {
			break
		}
		drop(oldest.A)
	}
	if !listed {
		s.listLocked(author, post, uint64(position))
	}
	return nil
}

// dropMax bounds what one post drops. What is too old and still there is not
// listed all the same; the author's next posts drop it.
const dropMax = pipeline.PostDropsMax

func (s *Shard) unpostLocked(author, post uint64) error {
	if !s.outboxes.Has(author) {
		if !s.residency.outboxes.all {
			return errNotLoaded
		}
		return nil
	}
	if position, ok := s.outboxes.FindB(author, 0, post); ok {
		s.unlistLocked(author, position)
	}
	return nil
}

// since is the place of the first post at or after a position.
func since(box []hot.Pair, position pipeline.Position) int {
	if len(box) == 0 || box[0].A >= uint64(position) {
		return 0
	}
	return sort.Search(len(box), func(i int) bool { return box[i].A >= uint64(position) })
}
