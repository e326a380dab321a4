package sinks

import (
	"context"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// plan is the ids of one request sorted by shard.
type plan struct {
	ids   []uint64 // shard by shard
	place []int    // ids[i] was place[i] in the request
	start []int    // shard s has ids[start[s]:start[s+1]]
	shard []pipeline.Shard
}

var plans = sync.Pool{New: func() any { return new(plan) }}

// lay sorts ids by shard, keeping their order within one (counting sort).
func (p *plan) lay(ids []uint64, shards int) {
	p.ids = grown(p.ids, len(ids))
	p.place = grown(p.place, len(ids))
	p.shard = grown(p.shard, len(ids))
	p.start = grown(p.start, shards+1)
	clear(p.start)
	for i, id := range ids {
		s := pipeline.ShardOf(id, shards)
		p.shard[i] = s
		p.start[s+1]++
	}
	for s := range shards {
		p.start[s+1] += p.start[s]
	}
	// start[s] moves up to start[s+1] while shard s is filled, and is moved back.
	for i, id := range ids {
		at := p.start[p.shard[i]]
		p.start[p.shard[i]]++
		p.ids[at], p.place[at] = id, i
	}
	copy(p.start[1:], p.start[:shards])
	p.start[0] = 0
}

func grown[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// Applied implements [query.Reader].
func (n *Node) Applied() pipeline.Position { return n.progress.get() }

// WaitApplied implements [query.Reader].
func (n *Node) WaitApplied(ctx context.Context, p pipeline.Position) error {
	return n.progress.wait(ctx, p)
}

// Rows implements [query.Reader].
func (n *Node) Rows(_ context.Context, counter int, columns []pipeline.Column, ids []uint64, rows *query.Rows) error {
	rows.Reset(len(ids), len(columns))
	rows.AsOf = n.Applied()
	p := plans.Get().(*plan)
	defer plans.Put(p)
	p.lay(ids, len(n.shards))
	first := n.schema.Counters[counter].First
	asOf, answered := pipeline.Position(0), false
	for s, sh := range n.shards {
		from, to := p.start[s], p.start[s+1]
		if from == to {
			continue
		}
		state, err := sh.Read(counter, p.ids[from:to], func(i int, cells []int64) {
			place := p.place[from+i]
			for j, c := range columns {
				if cells != nil {
					rows.Values[place*len(columns)+j] = cells[c-first]
				}
			}
			rows.Exist[place] = exists(cells)
		})
		if err != nil {
			rows.Missing = append(rows.Missing, p.place[from:to]...)
			continue
		}
		if !answered || state.Applied < asOf {
			asOf, answered = state.Applied, true
		}
	}
	if answered {
		rows.AsOf = asOf
	}
	return nil
}

// exists says whether there is a row: one of zeros only is none. (In counters
// whose default is not 0 a hidden column keeps a written row from being all
// zeros.)
func exists(cells []int64) bool {
	for _, v := range cells {
		if v != 0 {
			return true
		}
	}
	return false
}

var _ query.Reader = (*Node)(nil)
