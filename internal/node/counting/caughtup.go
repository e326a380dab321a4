package counting

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/spread"
)

// HasAssigned says whether this node answers for all shards that are assigned to it.
func (g *Generation) HasAssigned() bool {
	if g.sinks == nil || !g.open.Load() {
		return false
	}
	view := g.View()
	if view.Assignment.Shards() != g.Config.Shards {
		return false
	}
	for s := range pipeline.Shard(g.Config.Shards) {
		if slices.Contains(view.Assignment.Holders(s), g.Name) && !g.sinks.Holds(s) {
			return false
		}
	}
	return true
}

// UpToDate says whether this node may answer by it: it is open, has what is assigned, and
// does not lag.
func (g *Generation) UpToDate() bool { return g.IsOpen() && g.lags() == nil && g.HasAssigned() }

// RoutedUpTo is the end of the last window of a generation, or that of EVENTS if it has lost
// its tail.
func (g *Generation) RoutedUpTo(ctx context.Context) (pipeline.Position, error) {
	tail, _, err := g.deltas.Tail(ctx)
	if err != nil {
		return 0, err
	}
	last, err := g.LogEnd(ctx)
	return min(max(tail.To, g.sinks.Applied()), pipeline.EndOf(last)), err
}

// Reach waits until all nodes that answer for a shard have come to a position.
func (g *Generation) Reach(ctx context.Context, reader *spread.Reader, to pipeline.Position) error {
	if g.sinks != nil {
		if err := g.sinks.WaitApplied(ctx, to); err != nil {
			return err
		}
	}
	view := g.View()
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
