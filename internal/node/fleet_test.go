package node

import (
	"context"
	"log/slog"
	"testing"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/nodetest"
	"github.com/tidemark-io/tidemark/pipeline"
)

// fleet is one of nodes of this package.
type fleet struct{ *nodetest.Fleet[*Node] }

func newFleet(t *testing.T) *fleet {
	return &fleet{nodetest.NewFleet(t, startInFleet)}
}

func startInFleet(ctx context.Context, c *config.Config, log *slog.Logger) (*Node, error) {
	return Start(ctx, c, Options{Version: "test", Processors: 2, Logger: log})
}

// settled says that each of the nodes holds what is assigned to it, something, and nothing
// else, and that all shards are held.
func settled(nodes ...*Node) bool {
	var of []nodetest.Holder
	for _, n := range nodes {
		of = append(of, nodetest.Holder{Name: n.name, View: n.Serving().View(), Sinks: n.Serving().Sinks()})
	}
	return nodetest.Settled(of...)
}

// dropSpares deletes what nodes have given up: it would be taken back.
func (f *fleet) dropSpares(nodes ...*Node) {
	f.T.Helper()
	for _, n := range nodes {
		held := n.Serving().Inside().Held()
		for s := range pipeline.Shard(nodetest.Shards) {
			if held.Has(s) {
				continue
			}
			if err := n.Serving().Inside().Store.Drop(s); err != nil {
				f.T.Fatal(err)
			}
		}
	}
}
