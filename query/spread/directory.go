package spread

import (
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/query"
)

// Directory says which node holds which shard. Its methods are called for every request
// and concurrently, and must cost no more than a few loads.
type Directory interface {
	// View is the holders as far as this process knows; never nil, and never changed.
	View() *View
	// Own is what this process holds; nil: nothing. Which shards it has ready,
	// it says itself.
	Own() query.Holder
}

// View is the holders of all shards at one moment.
type View struct {
	// Epoch grows whenever Holders change.
	Epoch uint64
	// Holders are, for each shard, the other nodes that are ready to answer for it,
	// by name.
	Holders [][]string
	// Behind are others that have the shard and are behind the log: they are asked
	// once no holder is left, and waited for as long as a holder is. nil: no shard
	// has any.
	Behind [][]string
	// Coming are others that may come to answer for the shard: it is assigned to them, or
	// they are starting. Unheard says that there are such, or holders, that are away. nil:
	// no shard has any. Nobody asks them; a read that waits does not pass them over.
	Coming  [][]string
	Unheard []bool
	// OwnBehind are the shards that this process is behind with, if it has them,
	// while some of Holders are not: it is asked after those, before Behind. nil: none.
	OwnBehind []bool
	// Sessions tell a node's process from an earlier one: what that was asked this one
	// does not answer. A node without one is not known to have begun again.
	Sessions map[string]string
	// Wire is the newest version of the wire that a node is said to understand.
	Wire map[string]byte
	// Whole says that this process holds every shard and all are ready: it
	// answers as if it were alone, as long as its Own is a [query.Reader] too.
	Whole bool
}

// subjects is what the subjects of holders begin with.
const subjects = "tidemark.hold."

// Subject is where a node's Server listens that answers for a generation.
func Subject(node string, of generation.Number) string { return subjects + of.At(node) }

// nobody says that no node is known that holds anything.
func (v *View) nobody(own query.Holder) bool {
	if own != nil {
		return false
	}
	for _, nodes := range v.Holders {
		if len(nodes) > 0 {
			return false
		}
	}
	return true
}

// others says whether any other node holds anything.
func (v *View) others() bool {
	for _, nodes := range v.Holders {
		if len(nodes) > 0 {
			return true
		}
	}
	return false
}

// ownLast says that others are asked about a shard before this process is.
func (v *View) ownLast(shard pipeline.Shard) bool {
	return v.OwnBehind != nil && v.OwnBehind[shard] && len(v.Holders[shard]) > 0
}

// shards is how many there are.
func (v *View) shards() int { return len(v.Holders) }

func (v *View) shardOf(id uint64) pipeline.Shard { return pipeline.ShardOf(id, len(v.Holders)) }
