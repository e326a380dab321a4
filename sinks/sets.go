package sinks

import (
	"context"
	"errors"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

// Has implements [query.Reader] and [query.Holder].
func (n *Node) Has(ctx context.Context, column pipeline.Column, ids []uint64, m pipeline.Member, out *query.Has, disk bool) error {
	out.Reset(len(ids))
	out.AsOf = n.Applied()
	r := readings.Get().(*reading)
	defer readings.Put(r)
	p := &r.plan
	p.lay(ids, n.o.Shards)
	var leave bool
	r.disk, leave = n.onDisk(ctx, disk)
	r.has = grown(r.has, len(ids))
	clear(r.has)
	var reach reach
	for s, sh := range n.held.Load().answers {
		from, to := p.start[s], p.start[s+1]
		switch {
		case from == to:
			continue
		case sh == nil:
			out.Missing = append(out.Missing, p.place[from:to]...)
			continue
		}
		// Of a shard that has something on disk, one id after the other says what is left.
		step := to - from
		for at := from; at < to; {
			end := min(at+step, to)
			state, err := sh.Has(column, p.ids[at:end], m, r.has[at:end], &r.disk)
			switch {
			case errors.Is(err, tier.ErrCold) && leave && step > 1:
				clear(r.has[at:end])
				step = 1
				continue
			case n.cold(err, leave):
				return query.ErrCold
			case givenUp(err):
				return err
			case err != nil:
				out.Missing = append(out.Missing, p.place[at:end]...)
			default:
				reach.add(state.Applied)
			}
			at = end
		}
	}
	for i, place := range p.place {
		out.Has[place] = r.has[i]
	}
	for _, i := range out.Missing {
		out.Has[i] = false
	}
	out.AsOf, out.Cost = reach.or(out.AsOf), cost(&r.disk)
	return nil
}

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
