package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/spread"
)

// hasAssigned says whether this node answers for all shards that are assigned to it.
func (g *generation) hasAssigned() bool {
	if g.sinks == nil || !g.open.Load() {
		return false
	}
	view := g.view()
	if view.Assignment.Shards() != g.config.Shards {
		return false
	}
	for s := range pipeline.Shard(g.config.Shards) {
		if slices.Contains(view.Assignment.Holders(s), g.name) && !g.sinks.Holds(s) {
			return false
		}
	}
	return true
}

// upToDate says whether this node may answer by it: it is open, has what is assigned, and
// does not lag.
func (g *generation) upToDate() bool { return g.isOpen() && g.lags() == nil && g.hasAssigned() }

// routedUpTo is the end of the last window of a generation.
func (g *generation) routedUpTo(ctx context.Context) (pipeline.Position, error) {
	tail, _, err := g.deltas.Tail(ctx)
	return max(tail.To, g.sinks.Applied()), err
}

// reach waits until all nodes that answer for a shard have come to a position.
func (g *generation) reach(ctx context.Context, reader *spread.Reader, to pipeline.Position) error {
	if g.sinks != nil {
		if err := g.sinks.WaitApplied(ctx, to); err != nil {
			return err
		}
	}
	view := g.view()
	asked := make(map[string]bool) // sets of holders
	var faults []error
	var mu sync.Mutex
	var work sync.WaitGroup
	for s := range pipeline.Shard(view.Assignment.Shards()) {
		holders := strings.Join(view.Answering(s), " ")
		if asked[holders] {
			continue
		}
		asked[holders] = true
		id := uint64(1)
		for pipeline.ShardOf(id, view.Assignment.Shards()) != s {
			id++
		}
		work.Go(func() {
			if err := reader.Reached(ctx, id, to); err != nil {
				mu.Lock()
				defer mu.Unlock()
				faults = append(faults, err)
			}
		})
	}
	work.Wait()
	return errors.Join(faults...)
}
