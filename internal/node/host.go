package node

import (
	"context"

	"github.com/tidemark-io/tidemark/internal/node/counting"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
)

// host is what generations ask of the process. It implements Host.
type host struct{ n *Node }

var _ counting.Host = host{}

func (h host) IsServing(g *counting.Generation) bool { return h.n.isServing(g) }
func (h host) Generations() generations.Set          { return h.n.generations() }
func (h host) InCluster() bool                       { return h.n.inCluster() }
func (h host) Ready() error                          { return h.n.Ready() }
func (h host) Stats() map[string]any                 { return h.n.stats() }
func (h host) Fail(err error)                        { h.n.fail(err) }

func (h host) CountAgain(ctx context.Context, g *counting.Generation, why error) error {
	return h.n.countAgain(ctx, g, why)
}

func (h host) ChangeRecord(ctx context.Context, change func(generations.Set) (generations.Set, error)) (generations.Set, error) {
	return h.n.changeRecord(ctx, change)
}
