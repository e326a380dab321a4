package sinks

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks/hot"
	"github.com/tidemark-io/tidemark/sinks/shard"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

// feedGroup is how many followees one goroutine merges; more are shared out.
const feedGroup = 1024

// Feed implements [query.Reader].
func (n *Node) Feed(ctx context.Context, user uint64, before pipeline.Position, limit int, out *query.FeedPage, disk bool) error {
	out.Reset()
	from := n.feedFrom()
	g := n.gather(ctx, disk)
	defer g.put()
	s, err := g.held.of(user)
	if err != nil {
		return err
	}
	state, err := s.Profile(user, -1, nil, &g.profile, &g.disk)
	if err != nil {
		return n.unanswered(err, g.leave)
	}
	g.ids = g.ids[:0]
	for _, f := range g.profile.Following {
		g.ids = append(g.ids, f.A)
	}
	var reach reach
	reach.add(state.Applied)
	return n.posts(ctx, g, from, before, limit, out, &reach)
}

// feedFrom is the first position that feeds show.
func (n *Node) feedFrom() pipeline.Position {
	return n.clock.Horizon(n.Applied(), n.o.Users.Retention)
}

// posts reads the newest posts of g.ids in [from, before), before 0: from the
// newest, and completes the page.
func (n *Node) posts(ctx context.Context, g *gather, from, before pipeline.Position, limit int, out *query.FeedPage, reach *reach) error {
	if before == 0 {
		before = math.MaxUint64
	}
	g.lay()
	groups := min(1+len(g.pairs)/feedGroup, n.o.Owners)
	parts := make([]newest, groups)
	var work sync.WaitGroup
	for i := range parts {
		parts[i].room = limit + 1 // one more tells whether there are more
		parts[i].disk = tier.Disk{May: g.disk.May, Context: ctx}
		work.Go(func() {
			for s := i; s < len(g.held.answers); s += groups {
				parts[i].read(g.held.answers[s], g.pairs[g.plan.start[s]:g.plan.start[s+1]], from, before)
			}
		})
	}
	work.Wait()
	out.Cost = cost(&g.disk)
	side := time.Duration(0) // parts are read side by side
	for i := range parts {
		switch {
		case n.cold(parts[i].cold, g.leave):
			return query.ErrCold
		case parts[i].givenUp != nil:
			return parts[i].givenUp
		}
		out.Cost.Cold += parts[i].disk.Reads
		side = max(side, parts[i].disk.Time)
		out.Posts = append(out.Posts, parts[i].posts...)
		out.Missing = out.Missing || parts[i].missing || parts[i].cold != nil
		if parts[i].reach.any {
			reach.add(parts[i].reach.position)
		}
	}
	out.Cost.Disk += side
	slices.SortFunc(out.Posts, func(a, b query.FeedPost) int { return cmp.Compare(b.Position, a.Position) })
	if len(out.Posts) > limit {
		out.Posts, out.More = out.Posts[:limit], true
	}
	out.AsOf = reach.or(n.Applied())
	return nil
}

// newest keeps the newest posts offered, as a heap with the oldest on top, so
// that an author whose next post is older than all of them is left at once.
type newest struct {
	posts   []query.FeedPost
	room    int
	reach   reach
	missing bool
	cold    error // tier.ErrCold: some are on disk
	givenUp error

	disk      tier.Disk
	gathering shard.Gathering
}

func (h *newest) read(s *tier.Shard, followees []hot.Pair, from, before pipeline.Position) {
	switch {
	case len(followees) == 0:
		return
	case s == nil:
		h.missing = true
		return
	}
	state, err := s.Posts(followees, from, before, &h.gathering, &h.disk, h.offer)
	switch {
	case errors.Is(err, tier.ErrCold):
		h.cold = err
		h.reach.add(state.Applied)
	case givenUp(err):
		h.givenUp = err
	case err != nil:
		h.missing = true
	default:
		h.reach.add(state.Applied)
	}
}

// offer says whether the author's next, older post may still be wanted.
func (h *newest) offer(author uint64, p hot.Pair) bool {
	post := query.FeedPost{Post: p.B, Author: author, Position: pipeline.Position(p.A)}
	switch {
	case len(h.posts) < h.room:
		heap.Push(h, post)
	case post.Position > h.posts[0].Position:
		h.posts[0] = post
		heap.Fix(h, 0)
	default:
		return false
	}
	return true
}

// The heap's own, for container/heap.

func (h *newest) Len() int           { return len(h.posts) }
func (h *newest) Less(i, j int) bool { return h.posts[i].Position < h.posts[j].Position }
func (h *newest) Swap(i, j int)      { h.posts[i], h.posts[j] = h.posts[j], h.posts[i] }
func (h *newest) Push(x any)         { h.posts = append(h.posts, x.(query.FeedPost)) }
func (h *newest) Pop() any {
	last := len(h.posts) - 1
	p := h.posts[last]
	h.posts = h.posts[:last]
	return p
}
