package sinks

import (
	"context"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// Members implements [query.Reader] and [query.Holder].
func (n *Node) Members(ctx context.Context, column pipeline.Column, id uint64, after pipeline.Member, limit int, out *query.MemberPage, disk bool) error {
	out.Reset()
	s, err := n.held.Load().of(id)
	if err != nil {
		return err
	}
	d, leave := n.onDisk(ctx, disk)
	members, more, state, err := s.Members(column, id, after, limit, &d)
	if err != nil {
		return n.unanswered(err, leave)
	}
	out.Members, out.More, out.AsOf, out.Cost = members, more, state.Applied, cost(&d)
	return nil
}
