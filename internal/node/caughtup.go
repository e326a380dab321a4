package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/query/spread"
)

// come is how far all shards of a generation have come; see cluster.View.Come.
func (g *generation) come() pipeline.Position { return g.view().Come(g.config.Shards) }

// caughtUp says whether all shards have all their holders, and each of these is there,
// has it ready, and is not behind.
func (g *generation) caughtUp() bool {
	nobody, lacks, behind := g.view().Lacking(g.config.Shards)
	return nobody == 0 && len(lacks) == 0 && len(behind) == 0
}

// waitsFor says which nodes and shards keep a generation from having caught up; "": none.
// Before it is at the end of the log, only what is not a matter of time.
func (g *generation) waitsFor(atEnd bool) string { return g.view().WaitsFor(g.config.Shards, atEnd) }

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

// mayServeAgain says that what is open beside (nil: nothing) is up to date, if it is what
// a record keeps.
func (g *generation) mayServeAgain(s generations.Set) bool {
	return s.Kept == 0 || g != nil && g.number == s.Kept && g.caughtUp()
}

// waitsHere is waitsFor of a generation beside; nil: it is not open here.
func (g *generation) waitsHere() string {
	if g == nil {
		return "it is not open on the node that routes"
	}
	return g.waitsFor(true)
}

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
