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

func (s *Shard) postLocked(author, post uint64, position pipeline.Position) {
	box := s.outboxes.Get(author)
	old := since(box, s.clock.Horizon(position, s.limits.Retention))
	listed := slices.ContainsFunc(box[old:], func(p hot.Pair) bool { return p.B == post })
	if !listed && len(box)-old >= s.limits.PostsMax {
		old = len(box) - s.limits.PostsMax + 1
	}
	old = min(old, dropMax)
	s.dropLocked(author, old)
	if listed {
		return
	}
	s.outboxes.Insert(author, len(box)-old, hot.Pair{A: uint64(position), B: post})
	s.changed = append(s.changed, change{kindPost, author, uint64(position)})
}

// dropMax bounds what one post drops. What is too old and still there is not
// listed all the same; the author's next posts drop it.
const dropMax = 8

func (s *Shard) unpostLocked(author, post uint64) {
	box := s.outboxes.Get(author)
	for i := len(box) - 1; i >= 0; i-- {
		if box[i].B == post {
			s.changed = append(s.changed, change{kindPost, author, box[i].A})
			s.outboxes.Remove(author, i, 1)
			return
		}
	}
}

// dropLocked takes the oldest n posts out of an outbox.
func (s *Shard) dropLocked(author uint64, n int) {
	if n == 0 {
		return
	}
	for _, p := range s.outboxes.Get(author)[:n] {
		s.changed = append(s.changed, change{kindPost, author, p.A})
	}
	s.outboxes.Remove(author, 0, n)
}

// since is the place of the first post at or after a position.
func since(box []hot.Pair, position pipeline.Position) int {
	if len(box) == 0 || box[0].A >= uint64(position) {
		return 0
	}
	return sort.Search(len(box), func(i int) bool { return box[i].A >= uint64(position) })
}
