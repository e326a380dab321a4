package node

import (
	"context"

	generations "github.com/tidemark-io/tidemark/pipeline/generation"
)

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
	if n.dir == nil || set.Epoch == 0 {
		return
	}
	stored, err := n.dir.stored()
	if err != nil {
		n.rebuilds.trouble.set(rebuildPart, err)
		return
	}
	serving := n.gen()
	for _, number := range stored {
		if _, named := set.All[number]; named || number == serving.number {
			continue
		}
		if b := n.rebuilds.beside.Load(); b != nil && b.number == number {
			continue
		}
		if o := n.rebuilds.opening; o != nil && o.generation.number == number {
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
}
