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
	held      *held
	profile   shard.Profile
	gathering shard.Gathering
	notices   []string // those asked, where not all are
	dots      []string
	channels  []string // notices, then dots
	none      bool     // no channel is asked: the commons have no part in the answer
	disk      tier.Disk
	leave     bool              // what is only on disk is missing
	at        pipeline.Position // the answer reflects all up to here, at least

	pairs     []hot.Pair // followees
	elsewhere []hot.Pair // those of other nodes
	looks     hot.Looks
	some      []int
	changed   []pipeline.Position

	// A feed's: the followees shard by shard.
	ids  []uint64
	plan plan
}

var gathers = sync.Pool{New: func() any { return new(gather) }}

// gather is the memory for one request, which puts it back.
func (n *Node) gather(ctx context.Context, disk bool) *gather {
	g := gathers.Get().(*gather)
	g.held = n.held.Load()
	g.disk, g.leave = n.onDisk(ctx, disk)
	return g
}

// put lets it go, and what it referred to.
func (g *gather) put() {
	g.held, g.disk = nil, tier.Disk{}
	gathers.Put(g)
}

// lay sorts the followees in ids by shard into pairs.
func (g *gather) lay() {
	g.plan.lay(g.ids, len(g.held.answers))
	g.pairs = grown(g.pairs, len(g.ids))
	for i, id := range g.plan.ids {
		g.pairs[i] = hot.Pair{A: id}
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

// Unread implements [query.Reader]: a user of whose followees any does not answer
// here is missing.
func (n *Node) Unread(ctx context.Context, users []uint64, channels []string, out *query.Unreads, disk bool) error {
	return n.profiles(ctx, users, channels, out, nil, disk)
}

// profiles fills in what is here of users' numbers. rest takes, for each user,
// followees who are not; nil: then there is no answer for the user.
func (n *Node) profiles(ctx context.Context, users []uint64, channels []string, out *query.Unreads, rest []query.CountAsk, disk bool) error {
	notices, dots, named := n.commons.Names()
	counter, columns := n.unreadColumns()
	g := n.gather(ctx, disk)
	defer g.put()
	g.none = channels != nil && len(channels) == 0
	if channels != nil {
		g.sort(channels, dots)
		notices, dots = g.notices, g.dots
	}
	if err := out.Fits(notices, dots); err != nil {
		return err
	}
	out.Reset(len(users), len(columns), notices, dots)
	out.AsOf = n.Applied()
	g.at = out.AsOf
	// Ages are as of one position for the whole answer.
	horizon := n.clock.Horizon(out.AsOf, n.o.Users.Retention)
	active := n.clock.Horizon(out.AsOf, n.o.Users.Inactive)
	g.channels = append(append(g.channels[:0], notices...), dots...)
	reach := reach{}
	if !g.none {
		reach.add(named.Applied) // a channel that opens after this is not in the answer
	}
	for i, user := range users {
		var ask *query.CountAsk
		if rest != nil {
			ask = &rest[i]
		}
		err := n.unread(g, user, counter, columns, horizon, active, &out.Users[i], ask, &reach)
		switch {
		case n.cold(err, g.leave):
			return query.ErrCold
		case givenUp(err):
			return err
		case err != nil:
			out.Missing = append(out.Missing, i)
			if ask != nil {
				ask.Followees = ask.Followees[:0]
			}
		}
	}
	out.AsOf, out.Cost = reach.or(out.AsOf), cost(&g.disk)
	return nil
}

// LogTime is the log's time, in Unix seconds, to the grain of ages.
// 0: no event has been applied.
func (n *Node) LogTime() int64 { return n.clock.Newest() }

// unreadColumns are the shown columns of the 1:1 counters, in order.
func (n *Node) unreadColumns() (counter int, columns []pipeline.Column) {
	counter, ok := n.schema.Counter("unread")
	if !ok {
		return -1, nil
	}
	return counter, n.schema.Visible(counter)
}

// unread fills in one user's numbers; an error when a part of them cannot be read.
func (n *Node) unread(g *gather, user uint64, counter int, columns []pipeline.Column, horizon, active pipeline.Position, out *query.UserUnread, rest *query.CountAsk, reach *reach) error {
	p := &g.profile
	s, err := g.held.of(user)
	if err != nil {
		return err
	}
	state, err := s.Profile(user, counter, g.channels, p, &g.disk)
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
	mark := max(p.Marks.Feed, p.Marks.All)
	if horizon > 0 { // what is older is listed no more
		mark = max(mark, horizon-1)
	}
	here := p.Following
	if !g.held.whole {
		at := max(g.at, state.Applied) // that others were quiet must not be known of less
		if here, err = n.part(g, p.Following, mark, at, rest, reach, false); err != nil {
			return err
		}
	}
	count, applied, err := g.held.timeline.CountPosts(here, mark, &g.gathering, &g.disk)
	if err != nil && rest != nil && !givenUp(err) && !errors.Is(err, tier.ErrCold) { // a shard has stopped, or was given up just now: another node may have it
		if here, err = n.part(g, p.Following, mark, max(g.at, state.Applied), rest, reach, true); err != nil {
			return err
		}
		count, applied, err = g.held.timeline.CountPosts(here, mark, &g.gathering, &g.disk)
	}
	out.Feed = count
	if err == nil && len(here) > 0 {
		reach.add(applied)
	}
	return err
}

// part parts followees into those that are here and the rest, without those of the rest
// that have posted nothing, if that is known up to a position. Whether a shard has
// stopped is looked at where that is known to matter: it costs a lock for each.
func (n *Node) part(g *gather, following []hot.Pair, mark, at pipeline.Position, rest *query.CountAsk, reach *reach, look bool) (here []hot.Pair, err error) {
	g.pairs, g.elsewhere = g.pairs[:0], g.elsewhere[:0]
	knows := n.posted.knows(at)
	for _, f := range following {
		s, err := g.held.of(f.A)
		if err == nil && look {
			err = s.Err()
		}
		switch {
		case err == nil:
			g.pairs = append(g.pairs, f)
		case rest == nil && !knows:
			return nil, err
		default:
			g.elsewhere = append(g.elsewhere, f)
		}
	}
	if !look { // else they were counted
		n.Stats.Elsewhere.Add(uint64(len(g.elsewhere)))
	}
	if rest != nil {
		rest.Mark, rest.Followees = mark, slices.Grow(rest.Followees[:0], len(g.elsewhere))
	}
	for group := range slices.Chunk(g.elsewhere, shard.GroupMax) {
		all := len(group)
		if knows {
			group = n.mayHavePosted(g, group, mark, reach)
		}
		if !look {
			n.Stats.Quiet.Add(uint64(all - len(group)))
		}
		if rest == nil && len(group) > 0 {
			return nil, query.ErrElsewhere
		}
		for i, f := range group {
			followee := query.Followee{User: f.A, Since: pipeline.Position(f.B)}
			if knows {
				followee.Changed = g.changed[i]
			}
			rest.Followees = append(rest.Followees, followee)
		}
	}
	return g.pairs, nil
}

// mayHavePosted leaves of some followees those that may have posted after the mark;
// g.changed says when, or later than that, they did.
func (n *Node) mayHavePosted(g *gather, followees []hot.Pair, mark pipeline.Position, reach *reach) []hot.Pair {
	some, changed, to := n.posted.may(followees, mark, &g.looks, g.some[:0], g.changed[:0])
	if len(followees) > 0 {
		reach.add(to)
	}
	g.changed = changed
	for i, at := range some {
		followees[i] = followees[at]
	}
	g.some = some
	return followees[:len(some)]
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

// Following implements [query.Reader] and [query.Holder].
func (n *Node) Following(ctx context.Context, user, after uint64, limit int, out *query.UserPage, disk bool) error {
	return n.page(ctx, user, after, limit, out, disk, (*tier.Shard).Following)
}

// Followers implements [query.Reader] and [query.Holder].
func (n *Node) Followers(ctx context.Context, user, after uint64, limit int, out *query.UserPage, disk bool) error {
	return n.page(ctx, user, after, limit, out, disk, (*tier.Shard).Followers)
}

// list is a method of a shard that lists users.
type list func(s *tier.Shard, user, after uint64, limit int, users []uint64, d *tier.Disk) ([]uint64, bool, shard.State, error)

func (n *Node) page(ctx context.Context, user, after uint64, limit int, out *query.UserPage, disk bool, read list) error {
	out.Reset()
	s, err := n.held.Load().of(user)
	if err != nil {
		return err
	}
	d, leave := n.onDisk(ctx, disk)
	users, more, state, err := read(s, user, after, limit, out.Users, &d)
	if err != nil {
		return n.unanswered(err, leave)
	}
	out.Users, out.More, out.AsOf, out.Cost = users, more, state.Applied, cost(&d)
	return nil
}

// cold says that an answer is void, because a part of it is on disk. One that is
// left there is missing, and counted.
func (n *Node) cold(err error, leave bool) bool {
	is := errors.Is(err, tier.ErrCold)
	if is && leave {
		n.Stats.Left.Add(1)
	}
	return is && !leave
}

// unanswered is why there is no answer, in the reader's words.
func (n *Node) unanswered(err error, leave bool) error {
	switch {
	case n.cold(err, leave):
		return query.ErrCold
	case givenUp(err), errors.Is(err, query.ErrElsewhere):
		return err
	}
	return fmt.Errorf("%w: %w", query.ErrStopped, err)
}
