package spread

import (
	"context"
	"fmt"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/wire"
)

var _ query.BadgeReader = (*far)(nil)

// Standpoint implements [query.BadgeReader].
func (f *far) Standpoint(ctx context.Context, ask *query.StandpointAsk, out *query.Standpoint, _ bool) error {
	q := &standpointQuestion{StandpointAsk: *ask, out: out}
	lost, err := f.scatter(ctx, q, 1)
	if err == nil && len(lost) > 0 {
		err = fmt.Errorf("spread: no node answers for user %d: %w", ask.User, query.ErrStopped)
	}
	return err
}

// Posts implements [query.BadgeReader].
func (f *far) Posts(ctx context.Context, followees []uint64, from, before pipeline.Position, limit int, out *query.FeedPage, _ bool) error {
	out.Reset()
	q := &postsQuestion{from: from, before: before, limit: limit + 1, followees: followees, out: out}
	err := f.posts(ctx, q)
	if err == nil {
		q.finish(f.Applied())
	}
	return err
}

// standpointQuestion asks for one user's; the item is the user.
type standpointQuestion struct {
	query.StandpointAsk
	out *query.Standpoint
}

func (q *standpointQuestion) shard(_ int32, v *View) pipeline.Shard { return v.shardOf(q.User) }

func (q *standpointQuestion) ask([]int32, int) (kind wire.Kind, body []byte, n int) {
	return wire.Standpoint, wire.AppendStandpointAsk(nil, &q.StandpointAsk), 1
}

func (q *standpointQuestion) answer(items []int32, pieces [][]byte, d *due) (again []int32, err error) {
	if err := wire.DecodeStandpoint(pieces, q.Limit, q.out); err != nil || !d.late(q.out.AsOf, &q.out.Cost) {
		return nil, err
	}
	return items, nil
}

func (q *standpointQuestion) here(ctx context.Context, own query.Holder, items []int32, disk bool, d *due) (again []int32, err error) {
	if err := own.Standpoint(ctx, &q.StandpointAsk, q.out, disk); err != nil || !d.late(q.out.AsOf, &q.out.Cost) {
		return notHere(items, err)
	}
	return items, nil
}

func (b *batch) standpoint(ctx context.Context, w *writer, a *wire.Ask, t *turn) error {
	ask, err := wire.DecodeStandpointAsk(a.Body, b.version)
	if err != nil {
		return refused(err)
	}
	var out query.Standpoint
	if err := t.read(ctx, func(disk bool) error { return b.server.holder.Standpoint(ctx, &ask, &out, disk) }); err != nil {
		return err
	}
	return w.answer(a, func(p *wire.Pieces) error {
		p.Standpoint(&out)
		p.End(wire.Tail{AsOf: out.AsOf, Cost: out.Cost})
		return nil
	})
}
