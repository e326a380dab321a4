package sinks

import (
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// ShardStats gathers the figures of every shard held; and behind them, once there
// are any, what those given up have counted, so that no sum of counts goes down.
func (n *Node) ShardStats() []shard.Stats {
	var out []shard.Stats
	for _, s := range n.held.Load().shards {
		out = append(out, s.Stats())
	}
	return n.released.appendTo(out)
}

// releasedStats are what the shards given up have counted since the start.
type releasedStats struct {
	mu  sync.Mutex
	sum *shard.Stats // nil: there are none
}

func (r *releasedStats) add(s shard.Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s = s.Counts()
	if r.sum != nil {
		for i := range s.Counters {
			s.Counters[i].Add(r.sum.Counters[i])
		}
		for i := range s.Columns {
			s.Columns[i].Add(r.sum.Columns[i])
		}
		s.Evictions += r.sum.Evictions
	}
	r.sum = &s
}

func (r *releasedStats) appendTo(all []shard.Stats) []shard.Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sum == nil {
		return all
	}
	return append(all, *r.sum)
}

// CounterStats sums the figures of each counter over shards.
func CounterStats(schema *pipeline.Schema, shards []shard.Stats) []shard.CounterStats {
	out := make([]shard.CounterStats, len(schema.Counters))
	for _, s := range shards {
		for i, c := range s.Counters {
			out[i].Add(c)
		}
	}
	return out
}

// ColumnStats sums the figures of each column over shards.
func ColumnStats(schema *pipeline.Schema, shards []shard.Stats) []shard.ColumnStats {
	out := make([]shard.ColumnStats, len(schema.Columns))
	for _, s := range shards {
		for i, c := range s.Columns {
			out[i].Add(c)
		}
	}
	return out
}

// Probe measures how the rows of a counter lie in their tables: how far from
// home, in places, and how many for each place.
type Probe struct {
	Mean    float64
	Longest int
	Load    float64
}

// Probe looks at one shard: ids are spread evenly over them.
func (n *Node) Probe(counter int) (p Probe) {
	if shards := n.held.Load().shards; len(shards) > 0 {
		p.Mean, p.Longest, p.Load = shards[0].Probes(counter)
	}
	return p
}
