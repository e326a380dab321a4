package counting

import (
	"context"
	"log/slog"
	"os"
	"testing"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/internal/nodetest"
	"github.com/tidemark-io/tidemark/pipeline"
)

// Node is a process, as tests of its generations use it.
type Node interface {
	nodetest.Process
	Serving() *Generation
	WaitApplied(context.Context, pipeline.Position) error
	Failure() error
}

// StartNode starts a process: start_test.go, which may import internal/node, sets it.
var StartNode func(ctx context.Context, c *config.Config, log *slog.Logger) (Node, error)

func TestMain(m *testing.M) {
	natstest.SideBySide(8)
	code := m.Run()
	natstest.Clean()
	os.Exit(code)
}

type fleet struct{ *nodetest.Fleet[Node] }

func newFleet(t *testing.T) *fleet { return &fleet{nodetest.NewFleet(t, StartNode)} }

func newSite(t testing.TB) *nodetest.Site[Node] { return nodetest.NewSite(t, StartNode) }

// settled says that each of the nodes holds what is assigned to it, something, and nothing
// else, and that all shards are held.
func settled(nodes ...Node) bool {
	var of []nodetest.Holder
	for _, n := range nodes {
		g := n.Serving()
		of = append(of, nodetest.Holder{Name: g.Name, View: g.View(), Sinks: g.Sinks()})
	}
	return nodetest.Settled(of...)
}

// dropSpares deletes what nodes have given up: it would be taken back.
func (f *fleet) dropSpares(nodes ...Node) {
	f.T.Helper()
	for _, n := range nodes {
		held := n.Serving().heldNow()
		for s := range pipeline.Shard(nodetest.Shards) {
			if held.Has(s) {
				continue
			}
			if err := n.Serving().store.Drop(s); err != nil {
				f.T.Fatal(err)
			}
		}
	}
}
