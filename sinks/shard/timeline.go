package shard

import (
	"slices"
	"sort"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// An outbox lists an author's posts by position, ascending: (position, post).
// It is a set of posts. It holds the newest PostsMax of those no older than
// the retention, as of its own last change: what is older is dropped when
// the author posts again, so that dropping, too, is a function of the log.
//
// In memory it is coded (hot.AppendPosts); the position of the newest post
// stands beside the author, so that "has this author anything newer than the
// mark" takes one look.

// outboxLocked decodes an author's outbox into the owner's scratch space.
func (s *Shard) outboxLocked(author uint64) (box []hot.Pair, known bool) {
	b, ok := s.outboxes.Get(author)
	if !ok {
		return nil, s.residency.outboxes
	}
	s.scratch = hot.DecodePosts(s.scratch[:0], b)
	return s.scratch, true
}

func (s *Shard) putOutboxLocked(author uint64, box []hot.Pair) {
	s.coded = hot.AppendPosts(s.coded[:0], box)
	s.outboxes.Put(author, s.coded)
	newest := uint64(0)
	if len(box) > 0 {
		newest = box[len(box)-1].A
	}
	s.outboxes.SetWord(author, 0, newest)
	if newest > 0 {
		s.raiseLocked(author, newest)
	}
}

// raiseLocked notes an author's newest post where feeds look first. There is a
// cell an author at least, made anew for half as many more.
func (s *Shard) raiseLocked(author, position uint64) {
	if s.outboxes.Count() > s.newest.Cells() {
		*s.newest = *hot.NewNewest(s.outboxes.Count() * 3 / 2)
		s.outboxes.Each(func(author uint64) {
			word, _ := s.outboxes.Word(author, 0)
			s.newest.Raise(author, word)
		})
	}
	s.newest.Raise(author, position)
}

func (s *Shard) postLocked(author, post uint64, position pipeline.Position) error {
	box, known := s.outboxLocked(author)
	if !known {
		return errNotLoaded
	}
	old := since(box, s.clock.Horizon(position, s.limits.Retention))
	listed := slices.ContainsFunc(box[old:], func(p hot.Pair) bool { return p.B == post })
	if !listed && len(box)-old >= s.limits.PostsMax {
		old = len(box) - s.limits.PostsMax + 1
	}
	old = min(old, dropMax)
	for _, p := range box[:old] {
		s.changed = append(s.changed, change{kind: kindPost, gone: true, a: author, b: p.A})
	}
	if box = box[old:]; !listed {
		box = append(box, hot.Pair{A: uint64(position), B: post})
		s.changed = append(s.changed, change{kind: kindPost, a: author, b: uint64(position), v: post})
	}
	if !listed || old > 0 {
		s.putOutboxLocked(author, box)
	}
	return nil
}

// dropMax bounds what one post drops. What is too old and still there is not
// listed all the same; the author's next posts drop it.
const dropMax = 8

func (s *Shard) unpostLocked(author, post uint64) error {
	box, known := s.outboxLocked(author)
	if !known {
		return errNotLoaded
	}
	for i := len(box) - 1; i >= 0; i-- {
		if box[i].B == post {
			s.changed = append(s.changed, change{kind: kindPost, gone: true, a: author, b: box[i].A})
			s.putOutboxLocked(author, slices.Delete(box, i, i+1))
			break
		}
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
