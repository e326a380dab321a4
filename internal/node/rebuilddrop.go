package node

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
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
	keep := max(n.config.Rebuild.Keep, keepMin)
	if n.rebuilds.set().Lost {
		keep = keepMin
	}
	return !written.IsZero() && now.Sub(written) >= keep && caughtUp(n.Serving())
}

// keepMin is how long a generation that served is kept at least: as long as a node
// may take to hear that it serves no more, and to answer what was asked before.
const keepMin = 2 * settleWithin

// dropUnnamed deletes the counts of generations that the record does not name: while what
// serves is open here and has all that it is to have, and once that has been so for
// rebuild.keep, or keepMin where its room is needed. Until then /readyz names them.
func (n *Node) dropUnnamed(set generations.Set) {
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
		if n.mayDrop(set, number, left[number]) && n.drop(number, set) {
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
func (n *Node) mayDrop(set generations.Set, number generations.Number, since time.Time) bool {
	serving := n.Serving()
	return serving.Number == set.Serving && serving.HasAssigned() && n.waitedEnough(set, number, since)
}

// waitedEnough says whether something was kept for long enough, or its room is needed: by a
// rebuild that has begun, or because the disk is nearly full. What was aborted needs no wait:
// it can be built again.
func (n *Node) waitedEnough(set generations.Set, number generations.Number, since time.Time) bool {
	free, known := kit.DiskFree(n.dir.Path)
	if set.Building != 0 || datadir.LacksRoom(0, free, known) || set.State == generations.Aborted && number == set.Newest {
		return time.Since(since) >= keepMin
	}
	return time.Since(since) >= max(n.config.Rebuild.Keep, keepMin)
}

// unnamedBytes is what is stored of generations that the record does not name: a rebuild has
// their room.
func (n *Node) unnamedBytes() (bytes uint64) {
	set := n.rebuilds.set()
	stored, err := n.dir.Stored()
	if err != nil {
		return 0
	}
	for _, number := range stored {
		if _, named := set.All[number]; named {
			continue
		}
		if size, err := sizeOf(n.dir.Of(number, datadir.BadgerDir)); err == nil {
			bytes += size
		}
	}
	return bytes
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
	text := ""
	for _, number := range numbers {
		text += fmt.Sprintf("generations: %s has counts of generation %d, which the record does not name; they are deleted after rebuild.keep\n",
			n.dir.Of(number, datadir.BadgerDir), number)
	}
	n.rebuilds.left.Store(&text)
}

// sweepEvery is how often it is looked for what no generation is of, although the record
// has not changed: somebody may have put it there.
const sweepEvery = 5 * time.Second
