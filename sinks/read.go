package sinks

import (
	"context"
	"errors"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

// plan is the ids of one request sorted by shard.
type plan struct {
	ids   []uint64 // shard by shard
	place []int    // ids[i] was place[i] in the request
	start []int    // shard s has ids[start[s]:start[s+1]]
	shard []pipeline.Shard
}

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

// Applied implements [query.Reader] and [query.Holder].
func (n *Node) Applied() pipeline.Position { return n.progress.get() }

// WaitApplied implements [query.Reader] and [query.Holder].
func (n *Node) WaitApplied(ctx context.Context, p pipeline.Position) error {
	return n.progress.wait(ctx, p)
}

// reading is the memory that one request works in, and what it cost.
type reading struct {
	plan  plan
	batch tier.Batch
	disk  tier.Disk
}

var readings = sync.Pool{New: func() any { return new(reading) }}

// cost is what the disk cost a request.
func cost(d *tier.Disk) query.Cost { return query.Cost{Cold: d.Reads, Disk: d.Time} }

// MemoryOnly says whether reads leave what is only on disk: it is missing from
// answers, whatever disk says, and ErrCold is not returned. Reads under way go on
// as they began.
func (n *Node) MemoryOnly(on bool) { n.memoryOnly.Store(on) }

// onDisk is how a request may use the disk; leave: what is only there is left.
func (n *Node) onDisk(ctx context.Context, disk bool) (d tier.Disk, leave bool) {
	leave = n.memoryOnly.Load()
	return tier.Disk{May: disk && !leave, Context: ctx}, leave
}

// Rows implements [query.Reader] and [query.Holder].
func (n *Node) Rows(ctx context.Context, counter int, columns []pipeline.Column, ids []uint64, rows *query.Rows, disk bool) error {
	rows.Reset(len(ids), len(columns))
	rows.AsOf = n.Applied()
	r := readings.Get().(*reading)
	defer readings.Put(r)
	p := &r.plan
	p.lay(ids, n.o.Shards)
	var leave bool
	r.disk, leave = n.onDisk(ctx, disk)
	r.batch.Sets = rows.Sets
	first := n.schema.Counters[counter].First
	var reach reach
	for s, sh := range n.held.Load().answers {
		from, to := p.start[s], p.start[s+1]
		switch {
		case from == to:
			continue
		case sh == nil:
			rows.Missing = append(rows.Missing, p.place[from:to]...)
			continue
		}
		state, err := sh.Read(counter, p.ids[from:to], &r.batch, &r.disk, func(i int, cells []int64) {
			place := p.place[from+i]
			for j, c := range columns {
				rows.Values[place*len(columns)+j] = cells[c-first]
			}
			rows.Exist[place] = exists(cells)
		})
		switch {
		case errors.Is(err, tier.ErrCold) && leave:
			n.left(r, from, rows)
			reach.add(state.Applied)
		case errors.Is(err, tier.ErrCold):
			return query.ErrCold
		case givenUp(err):
			return err
		case err != nil:
			rows.Missing = append(rows.Missing, p.place[from:to]...)
			continue
		default:
			reach.add(state.Applied)
		}
		r.members(from, to, rows)
	}
	rows.AsOf, rows.Cost = reach.or(rows.AsOf), cost(&r.disk)
	return nil
}

// left notes what was not read, of ids of one shard that begin at from.
func (n *Node) left(r *reading, from int, rows *query.Rows) {
	left := r.batch.Left()
	for _, i := range left {
		rows.Missing = append(rows.Missing, r.plan.place[from+i])
	}
	n.Stats.Left.Add(uint64(len(left)))
}

// members notes which members are in the sets of ids of one shard.
func (r *reading) members(from, to int, rows *query.Rows) {
	if len(rows.Sets) == 0 {
		return
	}
	for i, place := range r.plan.place[from:to] {
		copy(rows.Has[place*len(rows.Sets):], r.batch.Has(i))
	}
}

// givenUp says that an error is that of a context: reading was given up, and
// nothing is wrong with what was read.
func givenUp(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
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

var (
	_ query.Reader = (*Node)(nil)
	_ query.Holder = (*Node)(nil)
)
