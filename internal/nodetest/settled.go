package nodetest

import (
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/sinks"
)

// Holder is what a node holds, and what it knows of the others.
type Holder struct {
	Name  string
	View  *cluster.View
	Sinks *sinks.Node
}

// Settled says that each of the nodes holds what is assigned to it, something, and nothing
// else, and that all shards are held.
func Settled(nodes ...Holder) bool {
	all := 0
	for _, n := range nodes {
		var held cluster.ShardSet
		for _, s := range n.Sinks.Standings() {
			held.Add(s.Shard)
		}
		if held.Len() == 0 || held != n.View.Assignment.HeldSet(n.Name) {
			return false
		}
		for s := range held.All() {
			if !n.Sinks.Holds(s) {
				return false
			}
		}
		all += held.Len()
	}
	return all == Shards
}
