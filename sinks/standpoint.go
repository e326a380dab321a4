package sinks

import (
	"cmp"
	"context"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// Standpoint implements [query.Holder].
func (n *Node) Standpoint(ctx context.Context, ask *query.StandpointAsk, out *query.Standpoint, disk bool) error {
	out.Reset()
	out.PostsMax, out.NoticesMax = n.o.Users.PostsMax, n.o.Channels.Notices
	notices, dots, named := n.commons.Names()
	at := n.Applied()
	horizon, active := n.clock.Horizon(at, n.o.Users.Retention), n.clock.Horizon(at, n.o.Users.Inactive)
	g := n.gather(ctx, disk)
	defer g.put()
	if ask.Channels != nil {
		g.sort(ask.Channels, dots)
		notices, dots = g.notices, g.dots
	}
	g.channels = append(append(g.channels[:0], notices...), dots...)
	s, err := g.held.of(ask.User)
	if err != nil {
		return err
	}
	p := &g.profile
	state, err := s.Profile(ask.User, -1, g.channels, p, &g.disk)
	if err != nil {
		return n.unanswered(err, g.leave)
	}
	var reach reach
	reach.add(state.Applied)
	reach.add(named.Applied)
	if out.Dropped = p.Marks.Last != 0 && p.Marks.Last < active; out.Dropped {
		out.AsOf, out.Cost = reach.or(at), cost(&g.disk)
		return nil
	}
	out.Read = max(p.Marks.Feed, p.Marks.All)
	if out.Feed.Mark = out.Read; horizon > 0 {
		out.Feed.Mark = max(out.Read, horizon-1)
	}
	if out.Follows = len(p.Following); out.Follows <= query.FolloweesMax {
		for _, f := range p.Following {
			out.Feed.Followees = append(out.Feed.Followees, query.Followee{User: f.A, Since: pipeline.Position(f.B)})
		}
	}
	for i, name := range g.channels {
		c := query.StandpointChannel{Name: name, Dot: i >= len(notices), Cursor: max(p.Cursors[i], p.Marks.All, p.Marks.First)}
		if err := n.behind(c, p.Marks.First == 0, ask, out, &reach); err != nil {
			return n.unanswered(err, g.leave)
		}
	}
	newestNotices(out, ask.Limit)
	out.AsOf, out.Cost = reach.or(at), cost(&g.disk)
	return nil
}

// behind adds a channel and what is unread in it. To a new user notice channels show
// nothing.
func (n *Node) behind(c query.StandpointChannel, isNew bool, ask *query.StandpointAsk, out *query.Standpoint, reach *reach) error {
	if isNew && !c.Dot {
		if ask.Channels != nil {
			out.Channels = append(out.Channels, c)
		}
		return nil
	}
	before, some := len(out.Notices), 0
	held, unread, state, err := n.commons.Behind(c.Name, c.Cursor, ask.Before, func(position pipeline.Position, notice uint64) bool {
		if some++; some > ask.Limit+1 { // one more shows that there are more
			return false
		}
		out.Notices = append(out.Notices, query.Notice{Position: position, Notice: notice, Channel: len(out.Channels)})
		return true
	})
	reach.add(state.Applied)
	if err != nil || unread == 0 && ask.Channels == nil {
		out.Notices = out.Notices[:before]
		return err
	}
	c.Held, c.Unread = uint64(held), uint64(unread)
	out.Channels = append(out.Channels, c)
	if len(out.Notices) > noticesSorted+2*ask.Limit {
		newestNotices(out, ask.Limit)
	}
	return nil
}

// noticesSorted is how many notices are gathered, of all channels, before those that
// are too many go.
const noticesSorted = 4096

// newestNotices sorts what was gathered, and leaves the newest.
func newestNotices(out *query.Standpoint, limit int) {
	slices.SortFunc(out.Notices, func(a, b query.Notice) int { return cmp.Compare(b.Position, a.Position) })
	if len(out.Notices) > limit {
		out.Notices, out.More = out.Notices[:limit], true
	}
}
