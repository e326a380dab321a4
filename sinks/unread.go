package sinks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks/hot"
	"github.com/tidemark-io/tidemark/sinks/shard"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

// gather is the memory that one request for users' numbers works in.
type gather struct {
	profile   shard.Profile
	gathering shard.Gathering
	notices   []string // those asked, where not all are
	dots      []string
	channels  []string // notices, then dots
	none      bool     // no channel is asked: the commons have no part in the answer
	disk      tier.Disk

	// A feed's: the followees shard by shard.
	ids   []uint64
	pairs []hot.Pair
	plan  plan
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

// sort parts the channels asked into notices and dots: those that are dots say
// so in the configuration.
func (g *gather) sort(channels, dots []string) {
	g.notices, g.dots = g.notices[:0], g.dots[:0]
	for _, name := range channels {
		if _, isDot := slices.BinarySearch(dots, name); isDot {
			g.dots = append(g.dots, name)
		} else {
			g.notices = append(g.notices, name)
		}
	}
}

// Unread implements [query.Reader].
func (n *Node) Unread(ctx context.Context, users []uint64, channels []string, out *query.Unreads, disk bool) error {
	notices, dots, named := n.commons.Names()
	counter, columns := n.unreadColumns()
	g := gathers.Get().(*gather)
	defer gathers.Put(g)
	g.none = channels != nil && len(channels) == 0
	if channels != nil {
		g.sort(channels, dots)
		notices, dots = g.notices, g.dots
	}
	out.Reset(len(users), len(columns), notices, dots)
	out.AsOf = n.Applied()
	// Ages are as of one position for the whole answer.
	horizon := n.clock.Horizon(out.AsOf, n.o.Users.Retention)
	active := n.clock.Horizon(out.AsOf, n.o.Users.Inactive)
	g.disk = n.onDisk(ctx, disk)
	g.channels = append(append(g.channels[:0], notices...), dots...)
	reach := reach{}
	if !g.none {
		reach.add(named.Applied) // a channel that opens after this is not in the answer
	}
	for i, user := range users {
		err := n.unread(g, user, counter, columns, horizon, active, &out.Users[i], &reach)
		switch {
		case errors.Is(err, tier.ErrCold):
			return query.ErrCold
		case givenUp(err):
			return err
		case err != nil:
			out.Missing = append(out.Missing, i)
		}
	}
	out.AsOf, out.Cost = reach.or(out.AsOf), cost(&g.disk)
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

// unread fills in one user's numbers; an error when a part of them cannot be read.
func (n *Node) unread(g *gather, user uint64, counter int, columns []pipeline.Column, horizon, active pipeline.Position, out *query.UserUnread, reach *reach) error {
	p := &g.profile
	state, err := n.shardOf(user).Profile(user, counter, g.channels, p, &g.disk)
	if err != nil {
		return err
	}
	reach.add(state.Applied)
	if p.Marks.Last != 0 && p.Marks.Last < active {
		return nil // dropped until the next read: every number is 0
	}
	for i, c := range columns {
		switch {
		case exists(p.Cells):
			out.Counts[i] = p.Cells[c-n.schema.Counters[counter].First]
		default:
			out.Counts[i] = n.schema.Columns[c].Default
		}
	}
	if err := n.channelsUnread(g, out, reach); err != nil {
		return err
	}
	count, applied, err := n.timeline.CountPosts(p.Following, max(p.Marks.Feed, p.Marks.All), horizon, &g.gathering, &g.disk)
	out.Feed = count
	if len(p.Following) > 0 {
		reach.add(applied)
	}
	return err
}

// channelsUnread: live notices after the user's cursor, which is the latest
// of their last read of the channel, of all, and their first read of anything.
func (n *Node) channelsUnread(g *gather, out *query.UserUnread, reach *reach) error {
	if g.none {
		return nil
	}
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
	if err == nil {
		reach.add(state.Applied)
	}
	return err
}

func (n *Node) shardOf(id uint64) *tier.Shard {
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
func (n *Node) Following(ctx context.Context, user, after uint64, limit int, out *query.UserPage, disk bool) error {
	return n.page(ctx, out, disk, func(d *tier.Disk) ([]uint64, bool, shard.State, error) {
		return n.shardOf(user).Following(user, after, limit, out.Users, d)
	})
}

// Followers implements [query.Reader].
func (n *Node) Followers(ctx context.Context, user, after uint64, limit int, out *query.UserPage, disk bool) error {
	return n.page(ctx, out, disk, func(d *tier.Disk) ([]uint64, bool, shard.State, error) {
		return n.shardOf(user).Followers(user, after, limit, out.Users, d)
	})
}

func (n *Node) page(ctx context.Context, out *query.UserPage, disk bool, read func(*tier.Disk) ([]uint64, bool, shard.State, error)) error {
	out.Reset()
	d := n.onDisk(ctx, disk)
	users, more, state, err := read(&d)
	if err != nil {
		return unanswered(err)
	}
	out.Users, out.More, out.AsOf, out.Cost = users, more, state.Applied, cost(&d)
	return nil
}

// unanswered is why there is no answer, in the reader's words.
func unanswered(err error) error {
	switch {
	case errors.Is(err, tier.ErrCold):
		return query.ErrCold
	case givenUp(err):
		return err
	}
	return fmt.Errorf("%w: %w", query.ErrStopped, err)
}
