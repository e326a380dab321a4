package sinks

import (
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// ShardStats gathers every shard's figures.
func (n *Node) ShardStats() []shard.Stats {
	out := make([]shard.Stats, len(n.shards))
	for i, s := range n.shards {
		out[i] = s.Stats()
	}
	return out
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

// Probe tells how the rows of a counter lie in their tables: how far from
// home, in places, and how many for each place.
type Probe struct {
	Mean    float64
	Longest int
	Load    float64
}

// Probe looks at one shard: ids are spread evenly over them.
func (n *Node) Probe(counter int) (p Probe) {
	p.Mean, p.Longest, p.Load = n.shards[0].Probes(counter)
	return p
}
