package sinks

import (
	"context"
	"fmt"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks/hot"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// gather is the memory that one request for users' numbers works in.
type gather struct {
	profile  shard.Profile
	channels []string // notices, then dots
	ids      []uint64
	pairs    []hot.Pair // profile.Following, shard by shard
	plan     plan
}

var gathers = sync.Pool{New: func() any { return new(gather) }}

// lay sorts the followees by shard.
func (g *gather) lay(shards int) {
	g.ids = g.ids[:0]
	for _, f := range g.profile.Following {
		g.ids = append(g.ids, f.A)
	}
	g.plan.lay(g.ids, shards)
	g.pairs = grown(g.pairs, len(g.ids))
	for i, place := range g.plan.place {
		g.pairs[i] = g.profile.Following[place]
	}
}

// Unread implements [query.Reader].
func (n *Node) Unread(_ context.Context, users []uint64, out *query.Unreads) error {
	notices, dots, named := n.commons.Names()
	counter, columns := n.unreadColumns()
	out.Reset(len(users), len(columns), notices, dots)
	out.AsOf = n.Applied()
	// Ages are as of one position for the whole answer.
	horizon := n.clock.Horizon(out.AsOf, n.o.Users.Retention)
	active := n.clock.Horizon(out.AsOf, n.o.Users.Inactive)
	g := gathers.Get().(*gather)
	defer gathers.Put(g)
	g.channels = append(append(g.channels[:0], notices...), dots...)
	reach := reach{}
	reach.add(named.Applied) // a channel that opens after this is not in the answer
	for i, user := range users {
		if !n.unread(g, user, counter, columns, horizon, active, &out.Users[i], &reach) {
			out.Missing = append(out.Missing, i)
		}
	}
	out.AsOf = reach.or(out.AsOf)
	return nil
}

// unreadColumns are the shown columns of the 1:1 counters, in order.
func (n *Node) unreadColumns() (counter int, columns []pipeline.Column) {
	counter, ok := n.schema.Counter("unread")
	if !ok {
		return -1, nil
	}
	return counter, n.schema.Visible(counter)
}

// unread fills in one user's numbers; false when a part of them is missing.
func (n *Node) unread(g *gather, user uint64, counter int, columns []pipeline.Column, horizon, active pipeline.Position, out *query.UserUnread, reach *reach) bool {
	p := &g.profile
	state, err := n.shardOf(user).Profile(user, counter, g.channels, p)
	if err != nil {
		return false
	}
	reach.add(state.Applied)
	if p.Marks.Last != 0 && p.Marks.Last < active {
		return true // dropped until the next read: every number is 0
	}
	for i, c := range columns {
		switch {
		case exists(p.Cells):
			out.Counts[i] = p.Cells[c-n.schema.Counters[counter].First]
		default:
			out.Counts[i] = n.schema.Columns[c].Default
		}
	}
	return n.channelsUnread(g, out, reach) && n.feedUnread(g, max(p.Marks.Feed, p.Marks.All), horizon, out, reach)
}

// channelsUnread: live notices after the user's cursor, which is the latest
// of their last read of the channel, of all, and their first read of anything.
func (n *Node) channelsUnread(g *gather, out *query.UserUnread, reach *reach) bool {
	p := &g.profile
	next := 0
	state, err := n.commons.Unread(g.channels, func(string) pipeline.Position {
		return max(p.Cursors[next], p.Marks.All, p.Marks.First)
	}, func(i int, unread uint64) {
		next = i + 1
		isNew := p.Marks.First == 0
		switch {
		case i >= len(out.Notices):
			out.Dots[i-len(out.Notices)] = unread > 0
		case !isNew: // a new user has no notices waiting, but dots are lit
			out.Notices[i] = unread
		}
	})
	if err != nil {
		return false
	}
	reach.add(state.Applied)
	return true
}

// feedUnread: the posts of everyone followed after max(mark, that follow).
func (n *Node) feedUnread(g *gather, mark, horizon pipeline.Position, out *query.UserUnread, reach *reach) bool {
	g.lay(len(n.shards))
	for s, sh := range n.shards {
		from, to := g.plan.start[s], g.plan.start[s+1]
		if from == to {
			continue
		}
		count, state, err := sh.CountPosts(g.pairs[from:to], mark, horizon)
		if err != nil {
			return false
		}
		out.Feed += count
		reach.add(state.Applied)
	}
	return true
}

func (n *Node) shardOf(id uint64) *shard.Shard {
	return n.shards[pipeline.ShardOf(id, len(n.shards))]
}

// reach is how far an answer reaches: as far as the part furthest behind.
type reach struct {
	position pipeline.Position
	any      bool
}

func (r *reach) add(p pipeline.Position) {
	if !r.any || p < r.position {
		r.position, r.any = p, true
	}
}

// or is the reach, or a position when there was no part.
func (r *reach) or(p pipeline.Position) pipeline.Position {
	if r.any {
		return r.position
	}
	return p
}

// Following implements [query.Reader].
func (n *Node) Following(_ context.Context, user, after uint64, limit int, out *query.UserPage) error {
	out.Reset()
	users, more, state, err := n.shardOf(user).Following(user, after, limit, out.Users)
	if err != nil {
		return fmt.Errorf("%w: %w", query.ErrStopped, err)
	}
	out.Users, out.More, out.AsOf = users, more, state.Applied
	return nil
}

// Followers implements [query.Reader].
func (n *Node) Followers(_ context.Context, user, after uint64, limit int, out *query.UserPage) error {
	out.Reset()
	users, more, state, err := n.shardOf(user).Followers(n.store, user, after, limit, out.Users)
	if err != nil {
		return fmt.Errorf("%w: %w", query.ErrStopped, err)
	}
	out.Users, out.More, out.AsOf = users, more, state.Applied
	return nil
}
