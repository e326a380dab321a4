package sim

import (
	"cmp"
	"context"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks"
)

func (q *inquiry) Members(ctx context.Context, column pipeline.Column, id uint64, after pipeline.Member, limit int, out *query.MemberPage, disk bool) error {
	q.asOf = pipeline.PositionMax
	lost, err := q.scatter(ctx, []uint64{id}, func(n *sinks.Node, _ []int) (func(int), []int, pipeline.Position, error) {
		var page query.MemberPage
		err := n.Members(ctx, column, id, after, limit, &page, disk)
		return func(int) { *out = page }, nil, page.AsOf, err
	})
	return cmp.Or(err, whenLost(lost))
}

func (q *inquiry) Inbox(ctx context.Context, ask *query.InboxAsk, out *query.InboxPage, disk bool) error {
	q.asOf = pipeline.PositionMax
	lost, err := q.scatter(ctx, []uint64{ask.User}, func(n *sinks.Node, _ []int) (func(int), []int, pipeline.Position, error) {
		var page query.InboxPage
		err := n.Inbox(ctx, ask, &page, disk)
		return func(int) { *out = page }, nil, page.AsOf, err
	})
	return cmp.Or(err, whenLost(lost))
}
