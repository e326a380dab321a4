package twin

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// merged is a dumb query.Reader over holders: it asks one of them, any, for one
// id at a time.
type merged struct {
	*rand.Rand
	shards  int
	holders []query.Holder
}

// nobody is what the merger panics with where no holder answers for an id.
type nobody string

// of is a holder of an id's shard.
func (m *merged) of(id uint64) query.Holder {
	number := pipeline.ShardOf(id, m.shards)
	for _, i := range m.Perm(len(m.holders)) {
		if m.holders[i].Holds(number) {
			return m.holders[i]
		}
	}
	panic(nobody(fmt.Sprintf("no holder answers for id %d of shard %d", id, number)))
}

func (m *merged) Applied() pipeline.Position {
	lowest := m.holders[0].Applied()
	for _, h := range m.holders {
		lowest = min(lowest, h.Applied())
	}
	return lowest
}

func (m *merged) WaitApplied(ctx context.Context, p pipeline.Position) error {
	for _, h := range m.holders {
		if err := h.WaitApplied(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (m *merged) Rows(ctx context.Context, counter int, columns []pipeline.Column, ids []uint64, rows *query.Rows, disk bool) error {
	rows.Reset(len(ids), len(columns))
	rows.AsOf = pipeline.PositionMax
	for i, id := range ids {
		h := m.of(id)
		one := query.Rows{Sets: rows.Sets}
		if err := h.Rows(ctx, counter, columns, []uint64{id}, &one, disk); err != nil {
			return err
		}
		copy(rows.Values[i*len(columns):], one.Values)
		copy(rows.Has[i*len(rows.Sets):], one.Has)
		rows.Exist[i], rows.AsOf = one.Exist[0], min(rows.AsOf, one.AsOf)
		if len(one.Missing) > 0 {
			rows.Missing = append(rows.Missing, i)
		}
	}
	return nil
}

func (m *merged) Unread(ctx context.Context, users []uint64, channels []string, out *query.Unreads, disk bool) error {
	for i, user := range users {
		h := m.of(user)
		p := query.Profiles{Rest: []query.CountAsk{{Mark: 5, Followees: []query.Followee{{User: 1}}}}} // of another answer
		if err := h.Profiles(ctx, []uint64{user}, channels, &p, disk); err != nil {
			return err
		}
		if i == 0 {
			out.Reset(len(users), len(p.Users[0].Counts), p.Notices, p.Dots)
			out.AsOf = p.AsOf
		}
		u := &out.Users[i]
		copy(u.Counts, p.Users[0].Counts)
		copy(u.Notices, p.Users[0].Notices)
		copy(u.Dots, p.Users[0].Dots)
		u.Feed, out.AsOf = p.Users[0].Feed, min(out.AsOf, p.AsOf)
		missing := len(p.Missing) > 0
		for _, f := range p.Rest[0].Followees {
			h := m.of(f.User)
			var c query.Counts
			if err := h.CountPosts(ctx, []query.CountAsk{{Mark: p.Rest[0].Mark, Followees: []query.Followee{f}}}, &c, disk); err != nil {
				return err
			}
			u.Feed += c.Posts[0]
			missing, out.AsOf = missing || len(c.Missing) > 0, min(out.AsOf, c.AsOf)
		}
		if missing {
			out.Missing = append(out.Missing, i)
		}
	}
	return nil
}

func (m *merged) Feed(ctx context.Context, user uint64, before pipeline.Position, limit int, out *query.FeedPage, disk bool) error {
	out.Reset()
	if before == 0 {
		before = pipeline.PositionMax
	}
	var from pipeline.Position
	var page query.UserPage
	out.AsOf = pipeline.PositionMax
	for after, first := uint64(0), true; first || page.More; first = false {
		h := m.of(user)
		at, err := h.Followees(ctx, user, after, 3, &page, disk)
		if err != nil {
			return err
		}
		if first {
			from = at
		}
		out.AsOf = min(out.AsOf, page.AsOf)
		for _, followee := range page.Users {
			after = followee
			h := m.of(followee)
			var part query.FeedPage
			if err := h.Posts(ctx, []uint64{followee}, from, before, limit, &part, disk); err != nil {
				return err
			}
			out.Posts = append(out.Posts, part.Posts...)
			out.More, out.Missing, out.AsOf = out.More || part.More, out.Missing || part.Missing, min(out.AsOf, part.AsOf)
		}
	}
	slices.SortFunc(out.Posts, func(a, b query.FeedPost) int { return cmp.Compare(b.Position, a.Position) })
	if len(out.Posts) > limit {
		out.Posts, out.More = out.Posts[:limit], true
	}
	return nil
}

func (m *merged) Following(ctx context.Context, user, after uint64, limit int, out *query.UserPage, disk bool) error {
	return m.of(user).Following(ctx, user, after, limit, out, disk)
}

func (m *merged) Followers(ctx context.Context, user, after uint64, limit int, out *query.UserPage, disk bool) error {
	return m.of(user).Followers(ctx, user, after, limit, out, disk)
}

func (m *merged) Members(ctx context.Context, column pipeline.Column, id uint64, after pipeline.Member, limit int, out *query.MemberPage, disk bool) error {
	return m.of(id).Members(ctx, column, id, after, limit, out, disk)
}

func (m *merged) Inbox(ctx context.Context, ask *query.InboxAsk, out *query.InboxPage, disk bool) error {
	return m.of(ask.User).Inbox(ctx, ask, out, disk)
}
