package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/node/led"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
)

// keptLong says that the generation that served before was kept for long enough, and all
// nodes that hold answer by the new one.
func (n *Node) keptLong() bool {
	r := n.rebuilds.writer.Load()
	if r == nil {
		return false
	}
	now, written := n.Serving().SeenEvents().Now, r.Written() // both by the server's clock
	return !written.IsZero() && now.Sub(written) >= max(n.config.Rebuild.Keep, keepMin) && caughtUp(n.Serving())
}

// keepMin is how long a generation that served is kept at least: as long as a node
// may take to hear that it serves no more, and to answer what was asked before.
const keepMin = 2 * settleWithin

// stands says whether the record is what this node acts on, as it stands: not gone, and
// not another one that is not followed yet, or may not be.
func (n *Node) stands(ctx context.Context, set generations.Set) bool {
	if n.rebuilds.record == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, led.LookWithin)
	defer cancel()
	there, err := n.rebuilds.record.Load(ctx)
	return err == nil && there.Equal(set)
}

// dropUnnamed deletes the counts of generations that the record does not name. A record
// may be forged, or left over from before a restore: so it does that only
//
//   - of a generation that was given up in normal order, as this node or another has seen,
//   - while what serves is open here and has all that it is to have, and the record stands,
//   - and once that has been so for rebuild.keep, or keepMin where its room is needed.
//
// Of any other the counts stay, and /readyz names them.
func (n *Node) dropUnnamed(ctx context.Context, set generations.Set) {
	r := &n.rebuilds
	if n.dir == nil || r.swept == set.Epoch && time.Since(r.sweptAt) < sweepEvery {
		return
	}
	stored, err := n.dir.Stored()
	if err != nil {
		r.trouble.Set(rebuildPart, err)
		return
	}
	left := map[generations.Number]time.Time{}
	for _, number := range stored {
		if _, named := set.All[number]; named || n.isOpen(number) {
			continue
		}
		left[number] = time.Now()
		if since, known := r.unnamed[number]; known {
			left[number] = since
		}
		if n.mayDrop(ctx, set, number, left[number]) && n.drop(number, set) {
			delete(left, number)
		}
	}
	r.unnamed = left
	n.sayUnnamed(slices.Sorted(maps.Keys(left)))
	r.swept, r.sweptAt = set.Epoch, time.Now()
}

// isOpen says whether a generation is open here, or about to be.
func (n *Node) isOpen(number generations.Number) bool {
	b, o := n.rebuilds.beside.Load(), n.rebuilds.opening
	return number == n.Serving().Number || b != nil && b.Number == number || o != nil && o.generation.Number == number
}

// mayDrop says whether what is stored of a generation may be deleted; since is when it was
// first seen to be of no use.
func (n *Node) mayDrop(ctx context.Context, set generations.Set, number generations.Number, since time.Time) bool {
	serving := n.Serving()
	if serving.Number != set.Serving || !serving.HasAssigned() || !n.waitedEnough(set, number, since) {
		return false
	}
	return n.stands(ctx, set) && n.hasEnded(ctx, number)
}

// waitedEnough says whether something was kept for long enough, or its room is needed: by a
// rebuild that has begun, or because the disk is nearly full.
// So is one that has never served: it can be built again.
func (n *Node) waitedEnough(set generations.Set, number generations.Number, since time.Time) bool {
	free, known := kit.DiskFree(n.dir.Path)
	if set.Building != 0 || datadir.LacksRoom(0, free, known) || n.dir.Aborted(number) {
		return time.Since(since) >= keepMin
	}
	return time.Since(since) >= max(n.config.Rebuild.Keep, keepMin)
}

// endedBytes is what is stored of generations that were given up: a rebuild has their room.
func (n *Node) endedBytes() (bytes uint64) {
	set := n.rebuilds.set()
	for _, number := range n.dir.Ended() {
		if _, named := set.All[number]; named {
			continue
		}
		if size, err := sizeOf(n.dir.Of(number, datadir.BadgerDir)); err == nil {
			bytes += size
		}
	}
	return bytes
}

// hasEnded says whether a generation was given up in normal order, as this node has seen,
// or another one that runs.
func (n *Node) hasEnded(ctx context.Context, number generations.Number) bool {
	if slices.Contains(n.dir.Ended(), number) {
		return true
	}
	for _, p := range n.known(ctx, n.Serving().View().Members) {
		if slices.Contains(p.Ended, number) {
			return true
		}
	}
	return false
}

// drop deletes what is stored of a generation, and says whether it did.
func (n *Node) drop(number generations.Number, set generations.Set) bool {
	n.log.Info("tidemark: the counts of a generation are deleted: the record names it no more", "generation", number, "epoch", set.Epoch)
	if err := n.dir.Drop(number); err != nil {
		n.log.Warn("tidemark: the counts of a generation are not deleted; trying again", "generation", number, "error", err)
		return false
	}
	return true
}

// sayUnnamed notes what is stored here and of no use, for /readyz.
func (n *Node) sayUnnamed(numbers []generations.Number) {
	ended := n.dir.Ended()
	text := ""
	for _, number := range numbers {
		why := "no node has seen it given up, so it stays: if it is of no use, stop this node and delete it"
		if slices.Contains(ended, number) {
			why = "it was given up, and is deleted after rebuild.keep"
		}
		text += fmt.Sprintf("generations: %s has counts of generation %d, which the record does not name; %s\n", n.dir.Of(number, datadir.BadgerDir), number, why)
	}
	n.rebuilds.left.Store(&text)
}

// sweepEvery is how often it is looked for what no generation is of, although the record
// has not changed: somebody may have put it there.
const sweepEvery = 5 * time.Second
