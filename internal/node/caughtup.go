package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/query/spread"
)

// come is how far all shards of a generation have come, as the members say: the
// furthest holder of each, the least of all.
func (g *generation) come() pipeline.Position {
	view := g.view()
	if view.Assignment.Shards() != g.config.Shards {
		return 0
	}
	least := pipeline.PositionMax
	for s := range pipeline.Shard(g.config.Shards) {
		at := pipeline.Position(0)
		for _, m := range view.Members {
			if m.Status != cluster.Away && m.Ready.Has(s) {
				at = max(at, m.Applied)
			}
		}
		least = min(least, at)
	}
	return least
}

// caughtUp says whether all shards have all their holders, and each of these is there,
// has it ready, and is not behind.
func (g *generation) caughtUp() bool {
	nobody, lacks, behind := g.lacking()
	return nobody == 0 && len(lacks) == 0 && len(behind) == 0
}

// lacking are how many shards have no holder, how many each node is to hold and does not
// answer for, and which nodes are behind.
func (g *generation) lacking() (nobody int, lacks, behind map[string]int) {
	view := g.view()
	if view.Assignment.Shards() != g.config.Shards {
		return g.config.Shards, nil, nil
	}
	lacks, behind = map[string]int{}, map[string]int{}
	for s := range pipeline.Shard(g.config.Shards) {
		holders := view.Assignment.Holders(s)
		if len(holders) == 0 {
			nobody++
		}
		for _, node := range holders {
			switch m, there := view.Member(node); {
			case !there || m.Status == cluster.Away || !m.Ready.Has(s):
				lacks[node]++
			case m.Behind:
				behind[node]++
			}
		}
	}
	return nobody, lacks, behind
}

// waitsFor says which nodes and shards keep a generation from having caught up; "": none.
// Before it is at the end of the log, only what is not a matter of time.
func (g *generation) waitsFor(atEnd bool) string {
	nobody, lacks, behind := g.lacking()
	var why []string
	if nobody > 0 && atEnd {
		why = append(why, fmt.Sprintf("%d of %d shards are assigned to no node", nobody, g.config.Shards))
	}
	view := g.view()
	for _, node := range slices.Sorted(maps.Keys(lacks)) {
		switch m, there := view.Member(node); {
		case !there || m.Status == cluster.Away:
			why = append(why, fmt.Sprintf("node %s, which is to hold %d shards, is away: start it, or 'tidemark nodes forget' it", node, lacks[node]))
		case atEnd:
			why = append(why, fmt.Sprintf("node %s does not answer for %d of its shards yet", node, lacks[node]))
		}
	}
	if atEnd && len(behind) > 0 {
		why = append(why, "behind are "+strings.Join(slices.Sorted(maps.Keys(behind)), ", "))
	}
	return strings.Join(why, "; ")
}

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
