package querytest

import (
	"context"
	"maps"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// Sets are what columns' sets have: maps.
type Sets map[pipeline.Column]map[uint64]map[pipeline.Member]bool

// Add puts members into the set of a column's row.
func (s Sets) Add(column pipeline.Column, id uint64, members ...pipeline.Member) {
	if s[column] == nil {
		s[column] = map[uint64]map[pipeline.Member]bool{}
	}
	if s[column][id] == nil {
		s[column][id] = map[pipeline.Member]bool{}
	}
	for _, m := range members {
		s[column][id][m] = true
	}
}

// has fills in which members are in the sets of an id.
func (s Sets) has(sets []pipeline.MemberOf, id uint64, has []bool) {
	for j, of := range sets {
		has[j] = s[of.Column][id][of.Member]
	}
}

func (s Sets) page(column pipeline.Column, id uint64, after pipeline.Member, limit int) (members []pipeline.Member, more bool) {
	for _, m := range slices.SortedFunc(maps.Keys(s[column][id]), pipeline.Member.Compare) {
		if m.Compare(after) > 0 {
			members = append(members, m)
		}
	}
	if more = len(members) > limit; more {
		members = members[:limit]
	}
	return members, more
}

// Inbox is query.Holder's. What is read says the item itself.
func (h *Holder) Inbox(ctx context.Context, ask *query.InboxAsk, out *query.InboxPage, disk bool) (err error) {
	out.Reset()
	if out.AsOf, out.Cost, err = h.begin(ctx, disk, []uint64{ask.User}); err != nil {
		return err
	}
	defer h.read()()
	if !h.has(ask.User) {
		return h.not
	}
	for _, i := range slices.Backward(h.Items[ask.User]) {
		if slices.Contains(ask.Columns, i.Column) && (ask.Before == 0 || i.Position < ask.Before) && !(ask.Unread && i.Read) {
			out.Items = append(out.Items, i)
		}
	}
	if out.More = len(out.Items) > ask.Limit; out.More {
		out.Items = out.Items[:ask.Limit]
	}
	return nil
}

// Members is query.Holder's.
func (h *Holder) Members(ctx context.Context, column pipeline.Column, id uint64, after pipeline.Member, limit int, out *query.MemberPage, disk bool) (err error) {
	out.Reset()
	if out.AsOf, out.Cost, err = h.begin(ctx, disk, []uint64{id}); err != nil {
		return err
	}
	defer h.read()()
	if !h.has(id) {
		return h.not
	}
	out.Members, out.More = h.Sets.page(column, id, after, limit)
	return nil
}
