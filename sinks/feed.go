package sinks

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks/hot"
	"github.com/tidemark-io/tidemark/sinks/shard"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

// feedGroup is how many followees one goroutine merges; more are shared out.
const feedGroup = 1024

// groupFirst is how many followees are looked at before anything is known of how
// new the posts of a page are.
const groupFirst = 64

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
//
// What is read last need not be older than the posts of a page that was read by then:
// an author with nothing as new as that is passed over, and where they are only on disk
// it is not asked. So memory alone says as a rule that a page has nothing from there.
func (n *Node) posts(ctx context.Context, g *gather, from, before pipeline.Position, limit int, out *query.FeedPage, reach *reach) error {
	if before == 0 {
		before = math.MaxUint64
	}
	g.lay()
	all := n.pass(ctx, g, from, before, limit)
	if floor := all.floor(from, limit); all.cold != nil && all.givenUp == nil && floor > from && !g.disk.May {
		// Unless one was deleted since, the page is full again.
		if again := n.pass(ctx, g, floor, before, limit); len(again.posts) > limit {
			all = again
		}
	}
	switch {
	case n.cold(all.cold, g.leave):
		return query.ErrCold
	case all.givenUp != nil:
		return all.givenUp
	}
	out.Cost = cost(&g.disk) // of the user
	out.Cost.Cold += all.disk.Reads
	out.Cost.Disk += all.disk.Time
	out.Missing = all.missing || all.cold != nil
	out.Posts = append(out.Posts, all.posts...)
	if len(out.Posts) > limit {
		out.Posts, out.More = out.Posts[:limit], true
	}
	if all.reach.any {
		reach.add(all.reach.position)
	}
	out.AsOf = reach.or(n.Applied())
	return nil
}

// pass reads the newest posts of all followees in [from, before), and one more
// than limit: that shows whether there are more.
func (n *Node) pass(ctx context.Context, g *gather, from, before pipeline.Position, limit int) (all newest) {
	groups := min(1+len(g.pairs)/feedGroup, n.o.Owners)
	parts := make([]newest, groups)
	var floor atomic.Uint64
	floor.Store(uint64(from))
	var work sync.WaitGroup
	for i := range parts {
		parts[i] = newest{room: limit + 1, from: &floor, disk: tier.Disk{May: g.disk.May, Context: ctx}}
		work.Go(func() {
			for s := i; s < len(g.held.answers); s += groups {
				parts[i].read(g.held.answers[s], g.pairs[g.plan.start[s]:g.plan.start[s+1]], before)
			}
		})
	}
	work.Wait()
	for i := range parts {
		p := &parts[i]
		all.posts = append(all.posts, p.posts...)
		all.missing = all.missing || p.missing
		all.cold, all.givenUp = cmp.Or(all.cold, p.cold), cmp.Or(all.givenUp, p.givenUp)
		all.disk.Reads += p.disk.Reads
		all.disk.Time = max(all.disk.Time, p.disk.Time) // they are read side by side
		if p.reach.any {
			all.reach.add(p.reach.position)
		}
	}
	slices.SortFunc(all.posts, func(a, b query.FeedPost) int { return cmp.Compare(b.Position, a.Position) })
	return all
}

// newest keeps the newest posts offered, as a heap with the oldest on top, so
// that an author whose next post is older than all of them is left at once.
type newest struct {
	posts   []query.FeedPost
	room    int
	seen    int            // followees
	from    *atomic.Uint64 // what is older is not wanted; readers side by side raise it
	reach   reach
	missing bool
	cold    error // tier.ErrCold: some are on disk
	givenUp error

	disk      tier.Disk
	gathering shard.Gathering
}

// floor is from where on the posts of a page are, as far as these tell.
func (h *newest) floor(from pipeline.Position, limit int) pipeline.Position {
	if len(h.posts) <= limit {
		return from
	}
	return h.posts[limit].Position
}

func (h *newest) read(s *tier.Shard, followees []hot.Pair, before pipeline.Position) {
	if s == nil {
		h.missing = h.missing || len(followees) > 0
		return
	}
	for len(followees) > 0 {
		// As many as there were before: about a page of them has posts newer than
		// all of theirs.
		group := followees[:min(len(followees), max(h.seen, groupFirst), shard.GroupMax)]
		followees, h.seen = followees[len(group):], h.seen+len(group)
		state, err := s.Posts(group, pipeline.Position(h.from.Load()), before, &h.gathering, &h.disk, h.offer)
		switch {
		case errors.Is(err, tier.ErrCold):
			h.cold = err
			h.reach.add(state.Applied)
		case givenUp(err):
			h.givenUp = err
			return
		case err != nil:
			h.missing = true
			return
		default:
			h.reach.add(state.Applied)
		}
		if len(h.posts) == h.room {
			h.raise(uint64(h.posts[0].Position))
		}
	}
}

// raise: as many posts as are wanted are as new as that.
func (h *newest) raise(to uint64) {
	for was := h.from.Load(); was < to && !h.from.CompareAndSwap(was, to); {
		was = h.from.Load()
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
