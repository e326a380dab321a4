package spread

import (
	"context"
	"fmt"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/wire"
)

// Inbox implements [query.Reader] with what this process holds.
func (r *Reader) Inbox(ctx context.Context, ask *query.InboxAsk, out *query.InboxPage, disk bool) error {
	return r.pageHere(ask.User, func(own query.Holder) (asOf pipeline.Position, err error) {
		err = own.Inbox(ctx, ask, out, disk)
		return out.AsOf, err
	})
}

// Inbox implements [query.Reader].
func (f *far) Inbox(ctx context.Context, ask *query.InboxAsk, out *query.InboxPage, _ bool) error {
	out.Reset()
	lost, err := f.scatter(ctx, &inboxQuestion{of: f, InboxAsk: ask, out: out}, 1)
	if err == nil && len(lost) > 0 {
		err = fmt.Errorf("spread: no node answers for user %d: %w", ask.User, query.ErrStopped)
	}
	return err
}

// inboxQuestion asks for a page of a user's items; the item is the user.
type inboxQuestion struct {
	of *far
	*query.InboxAsk
	out *query.InboxPage
}

func (q *inboxQuestion) shard(_ int32, v *View) pipeline.Shard { return v.shardOf(q.User) }

func (q *inboxQuestion) ask([]int32, int) (kind wire.Kind, body []byte, n int) {
	schema := q.of.schema
	a := wire.InboxAsk{
		Names: packed(schema, schema.Columns[q.Columns[0]].Counter, q.Columns), User: q.User, Before: q.Before, Limit: q.Limit, Unread: q.Unread,
	}
	return wire.Inbox, a.Append(nil), 1
}

func (q *inboxQuestion) answer(items []int32, pieces [][]byte, d *due) (again []int32, err error) {
	if err := wire.DecodeInboxPage(pieces, q.Columns, q.Limit, q.out); err != nil || !d.late(q.out.AsOf, &q.out.Cost) {
		return nil, err
	}
	return items, nil
}

func (q *inboxQuestion) here(ctx context.Context, own query.Holder, items []int32, disk bool, d *due) (again []int32, err error) {
	if err := own.Inbox(ctx, q.InboxAsk, q.out, disk); err != nil || !d.late(q.out.AsOf, &q.out.Cost) {
		return notHere(items, err)
	}
	return items, nil
}

func (b *batch) inbox(ctx context.Context, w *writer, a *wire.Ask, t *turn) error {
	var in wire.InboxAsk
	if err := in.Decode(a.Body, b.version); err != nil {
		return refused(err)
	}
	r, err := b.server.names.find(in.Names)
	if err != nil {
		return refused(err)
	}
	for _, column := range r.columns {
		if spec := &b.server.schema.Columns[column]; spec.Set.Items == 0 {
			return refused(fmt.Errorf("column %.64q keeps no items", b.server.schema.FullName(column)))
		}
	}
	ask := query.InboxAsk{User: in.User, Columns: r.columns, Before: in.Before, Limit: in.Limit, Unread: in.Unread}
	var page query.InboxPage
	if err := t.read(ctx, func(disk bool) error { return b.server.holder.Inbox(ctx, &ask, &page, disk) }); err != nil {
		return err
	}
	return w.answer(a, func(p *wire.Pieces) error {
		p.InboxPage(&page, ask.Columns)
		p.End(wire.Tail{AsOf: page.AsOf, Cost: page.Cost})
		return nil
	})
}
