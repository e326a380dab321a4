package sim

import (
	"cmp"
	"context"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks"
)

func (q *inquiry) Has(ctx context.Context, column pipeline.Column, ids []uint64, m pipeline.Member, out *query.Has, disk bool) error {
	q.asOf = pipeline.PositionMax
	out.Reset(len(ids))
	lost, err := q.scatter(ctx, ids, func(n *sinks.Node, items []int) (func(int), []int, pipeline.Position, error) {
		var part query.Has
		err := n.Has(ctx, column, pickIDs(ids, items), m, &part, disk)
		return func(i int) { out.Has[items[i]] = part.Has[i] }, part.Missing, part.AsOf, err
	})
	out.Missing, out.AsOf = lost, q.asOf
	return err
}

func (q *inquiry) Members(ctx context.Context, column pipeline.Column, id uint64, after pipeline.Member, limit int, out *query.MemberPage, disk bool) error {
	q.asOf = pipeline.PositionMax
	lost, err := q.scatter(ctx, []uint64{id}, func(n *sinks.Node, _ []int) (func(int), []int, pipeline.Position, error) {
		var page query.MemberPage
		err := n.Members(ctx, column, id, after, limit, &page, disk)
		return func(int) { *out = page }, nil, page.AsOf, err
	})
	return cmp.Or(err, whenLost(lost))
}
