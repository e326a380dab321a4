package node

import (
	"context"
	"time"

	generations "github.com/tidemark-io/tidemark/pipeline/generation"
)

// dropKept drops the generation that served before, once it was kept for long enough
// and all nodes that hold answer by the new one.
func (n *Node) dropKept(ctx context.Context, set generations.Set) error {
	r := n.rebuilds.writer.Load()
	if r == nil {
		return nil
	}
	now, written := n.gen().state.Load().Events.Now, r.Written() // both by the server's clock
	if written.IsZero() || now.Sub(written) < max(n.config.Rebuild.Keep, keepMin) || !n.gen().caughtUp() {
		return nil
	}
	return n.step(ctx, set.Equal, generations.Set.Drop)
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
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	there, err := n.rebuilds.record.Load(ctx)
	return err == nil && there.Equal(set)
}

// dropUnnamed deletes the counts of generations that the record does not name, once
// what serves by it is open here and has what it is to have.
func (n *Node) dropUnnamed(ctx context.Context, set generations.Set) {
	r := &n.rebuilds
	if n.dir == nil || set.Epoch == 0 || r.swept == set.Epoch && time.Since(r.sweptAt) < sweepEvery {
		return
	}
	stored, err := n.dir.stored()
	if err != nil {
		r.trouble.set(rebuildPart, err)
		return
	}
	serving, opened := n.gen(), false
	for _, number := range stored {
		if _, named := set.All[number]; named {
			continue
		}
		b, o := r.beside.Load(), r.opening
		if number == serving.number || b != nil && b.number == number || o != nil && o.generation.number == number {
			opened = true
			continue
		}
		if serving.number != set.Serving || !serving.hasAssigned() || !n.stands(ctx, set) {
			return
		}
		n.log.Info("tidemark: the counts of a generation are deleted: the record names it no more", "generation", number, "epoch", set.Epoch)
		if err := n.dir.drop(number); err != nil {
			n.log.Warn("tidemark: the counts of a generation are not deleted; trying again", "generation", number, "error", err)
			return
		}
	}
	if !opened { // what is open and not named is dropped once it is closed
		r.swept, r.sweptAt = set.Epoch, time.Now()
	}
}

// sweepEvery is how often it is looked for what no generation is of, although the record
// has not changed: somebody may have put it there.
const sweepEvery = 5 * time.Second
