package counting

import (
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/sinks/move"
)

// takeCommons takes what every node holds whole, and the numbers of columns, from another
// node, if what is stored of it here is missing, damaged or old: deriving it would read
// much of EVENTS. If no node has it, it is derived.
func (g *Generation) takeCommons() {
	number := pipeline.Shard(g.Config.Shards)
	if g.store.Stack(number).Stored() && !g.commonsAreReplaced() {
		return
	}
	for _, m := range g.members.View().Members {
		if m.Node == g.Name || m.Status == cluster.Away || !m.Roles.Has(cluster.Hold) || m.Applied == 0 {
			continue
		}
		o := move.Options{Generation: g.Number, Version: m.Reads(pipeline.FormatMoves), Logger: g.Log}
		there, err := move.Describe(g.ctx, g.NC, m.Node, o)
		if err == nil {
			err = g.store.Adopt(there.Dictionary)
		}
		if err == nil {
			_, err = move.Fetch(g.ctx, g.NC, m.Node, g.store, number, o)
		}
		if err == nil {
			g.Log.Info("tidemark: channels and log time have come", "from", m.Node)
			return
		}
		g.Log.Warn("tidemark: channels and log time could not be taken from another node", "from", m.Node, "error", err)
	}
}

// commonsAreReplaced says that what is stored of the commons is damaged; or that it is old
// and no stored shard goes on with it. Log time of another node begins later, and a shard
// that stands before that beginning needs the log time that is stored here.
func (g *Generation) commonsAreReplaced() bool {
	if g.damaged(pipeline.Shard(g.Config.Shards)) {
		return true
	}
	old, commons, _ := g.old()
	if !commons {
		return false
	}
	view := g.members.View()
	for i := range g.Config.Shards {
		if s := pipeline.Shard(i); g.store.Stack(s).Stored() && (!old.Has(s) || len(g.elsewhere(view, s)) == 0) {
			return false
		}
	}
	return true
}
