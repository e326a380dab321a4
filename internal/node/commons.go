package node

import (
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/sinks/move"
)

// takeCommons takes what every node holds whole, and how columns are numbered,
// from another node where nothing of it is stored here, or it is damaged, or old: to
// derive it is to read much of EVENTS. Where nobody has it, it is derived.
func (n *generation) takeCommons() {
	number := pipeline.Shard(n.config.Shards)
	if n.store.Stack(number).Stored() && !n.commonsAreReplaced() {
		return
	}
	for _, m := range n.members.View().Members {
		if m.Node == n.name || m.Status == cluster.Away || !m.Roles.Has(cluster.Hold) || m.Applied == 0 {
			continue
		}
		o := move.Options{Generation: n.number, Version: m.Reads(pipeline.FormatMoves), Logger: n.log}
		there, err := move.Describe(n.ctx, n.nc, m.Node, o)
		if err == nil {
			err = n.store.Adopt(there.Dictionary)
		}
		if err == nil {
			_, err = move.Fetch(n.ctx, n.nc, m.Node, n.store, number, o)
		}
		if err == nil {
			n.log.Info("tidemark: channels and log time have come", "from", m.Node)
			return
		}
		n.log.Warn("tidemark: channels and log time could not be taken from another node", "from", m.Node, "error", err)
	}
}

// commonsAreReplaced says that what is stored of the commons is damaged; or old, and
// nothing stored goes on with it: log time of another node begins later, and what
// stands before its beginning needs what is here.
func (n *generation) commonsAreReplaced() bool {
	if n.damaged(pipeline.Shard(n.config.Shards)) {
		return true
	}
	old, commons, _ := n.old()
	if !commons {
		return false
	}
	view := n.members.View()
	for i := range n.config.Shards {
		if s := pipeline.Shard(i); n.store.Stack(s).Stored() && (!old.Has(s) || len(n.elsewhere(view, s)) == 0) {
			return false
		}
	}
	return true
}
