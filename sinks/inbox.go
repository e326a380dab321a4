package sinks

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// Inbox implements [query.Reader] and [query.Holder].
func (n *Node) Inbox(ctx context.Context, ask *query.InboxAsk, out *query.InboxPage, disk bool) error {
	out.Reset()
	s, err := n.held.Load().of(ask.User)
	if err != nil {
		return err
	}
	most := math.MaxInt // what is unread, or before a position, may be anywhere
	if ask.Before == 0 && !ask.Unread {
		most = ask.Limit + 1 // one more shows whether there are more
	}
	asked := make([]shard.Asked, len(ask.Columns))
	for i, column := range ask.Columns {
		asked[i] = shard.Asked{Column: column, ID: ask.User}
	}
	d, leave := n.onDisk(ctx, disk)
	err = s.Lists(asked, most, &d, func(i int, l *shard.Listing) bool {
		out.AsOf = l.State.Applied
		n.inboxOf(ask, ask.Columns[i], l, out)
		return true
	})
	if err != nil {
		return n.unanswered(err, leave)
	}
	slices.SortFunc(out.Items, func(a, b query.InboxItem) int {
		return cmp.Or(cmp.Compare(b.Position, a.Position), cmp.Compare(a.Column, b.Column))
	})
	end := ask.Limit
	for end < len(out.Items) && out.Items[end].Position == out.Items[end-1].Position { // an event may be in two lists, and a page begins before a position
		end++
	}
	if out.More = len(out.Items) > end; out.More {
		out.Items = out.Items[:end]
	}
	out.Cost = cost(&d)
	return nil
}

// inboxOf adds what a list has for a page.
func (n *Node) inboxOf(ask *query.InboxAsk, column pipeline.Column, l *shard.Listing, out *query.InboxPage) {
	spec, came := &n.schema.Columns[column].Set, 0
	for j := range l.Items {
		i := &l.Items[j]
		read := i.Read || i.Position <= l.Mark
		if ask.Before != 0 && i.Position >= ask.Before || ask.Unread && read {
			continue
		}
		out.Items = append(out.Items, query.InboxItem{
			Position: i.Position, Column: column, Second: i.Second, Read: read,
			Actor: cmp.Or(i.Actor, spec.Actor.Of(i.Identity)), Post: cmp.Or(i.Post, spec.Post.Of(i.Identity)),
		})
		if came++; came > ask.Limit {
			return
		}
	}
}
