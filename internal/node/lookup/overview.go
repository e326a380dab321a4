package lookup

import (
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
	"github.com/tidemark-io/tidemark/query"
)

// heardWithin is how old what a node last said of itself may be, to be reported as how it
// is now. A node says it once a beat, so one beat may be lost.
const heardWithin = 2 * bucket.MemberBeat

// Overview reports what this process knows of the others to tidemark.nodes and
// tidemark.shards.
type Overview struct {
	me     string
	view   func() *cluster.View
	silent func() time.Duration // how long nothing has been heard of any node
}

var _ query.Cluster = Overview{}

// NewOverview reports as node me. silent is how long nothing has been heard of any node.
func NewOverview(me string, view func() *cluster.View, silent func() time.Duration) Overview {
	return Overview{me, view, silent}
}

// seen is what is known now, and for how long nothing has been heard of any node; 0
// within heardWithin. While nothing is heard, how the others are is not known: they are away.
func (c Overview) seen() (v *cluster.View, silent time.Duration) {
	v = c.view()
	if silent = c.silent(); silent <= heardWithin {
		return v, 0
	}
	return without(v, c.me, func(*cluster.State) bool { return true }), silent
}

// without is a view in which those members, but for me, are away.
func without(v *cluster.View, me string, gone func(*cluster.State) bool) *cluster.View {
	cut := *v
	cut.Members = slices.Clone(v.Members)
	for i := range cut.Members {
		if m := &cut.Members[i]; m.Node != me && gone(m) {
			m.Status = cluster.Away
		}
	}
	return &cut
}

// Heard is a view for people, in which members of which nothing was heard lately do not
// answer: one that was killed is away only after bucket.MemberExpiry.
func Heard(v *cluster.View, me string) *cluster.View {
	return without(v, me, func(m *cluster.State) bool { return time.Since(m.Heard) > heardWithin })
}

// Nodes implements query.Cluster.
func (c Overview) Nodes() query.Nodes {
	v, silent := c.seen()
	nodes := query.Nodes{Epoch: v.Assignment.Epoch, SilentMS: silent.Milliseconds()}
	for _, m := range v.Members {
		nodes.Nodes = append(nodes.Nodes, nodeOf(m))
	}
	return nodes
}

// nodeOf is how a member is. Whether it routes, and how far it lags, is known only of one
// that was heard lately.
func nodeOf(m cluster.State) query.Node {
	n := query.Node{
		Node: m.Node, Roles: m.Roles.Names(), Zone: m.Zone, Weight: m.Weight, Version: m.Version,
		State: query.NodeState(m.Status.String()), Shards: m.Ready.Len(), Applied: m.Applied,
	}
	if unheard := time.Since(m.Heard); unheard > heardWithin {
		n.SilentMS = unheard.Milliseconds()
	} else if m.Status != cluster.Away {
		n.Routes, n.LagMS = m.Routes, &m.LagMS
	}
	if m.Differs {
		n.Config = query.ConfigDiffers
	}
	return n
}

// Shards implements query.Cluster. The nodes to which a shard is assigned come first, then
// those that have it still and are there.
func (c Overview) Shards() query.Shards {
	v, silent := c.seen()
	v = Heard(v, c.me)
	shards := query.Shards{Epoch: v.Assignment.Epoch, SilentMS: silent.Milliseconds(), Replicas: v.Assignment.Replicas}
	for s := range pipeline.Shard(v.Assignment.Shards()) {
		shards.Shards = append(shards.Shards, query.ShardHolders{Shard: s, Holders: holdersOf(v, s)})
	}
	return shards
}

func holdersOf(v *cluster.View, s pipeline.Shard) (holders []query.ShardHolder) {
	assigned := v.Assignment.Holders(s)
	for _, name := range assigned {
		m, there := v.Member(name)
		if !there { // its key is gone, or has not come yet
			holders = append(holders, query.ShardHolder{Node: name, State: query.HolderAway})
			continue
		}
		holders = append(holders, holderOf(m, s))
	}
	for _, m := range v.Members {
		if m.Status != cluster.Away && (m.Ready.Has(s) || m.Failed.Has(s)) && !slices.Contains(assigned, m.Node) {
			holders = append(holders, holderOf(m, s))
		}
	}
	return holders
}

// holderOf is what a member has of a shard. One that has not begun to load what
// is assigned to it has nothing of it.
func holderOf(m cluster.State, s pipeline.Shard) query.ShardHolder {
	h := query.ShardHolder{Node: m.Node, State: query.HolderReady, Applied: m.Applied}
	switch {
	case m.Status == cluster.Away:
		h.State = query.HolderAway
	case m.Failed.Has(s):
		h.State = query.HolderFailed
	case !m.Ready.Has(s):
		loaded := m.Loading[s]
		h.State, h.Applied, h.Loaded = query.HolderLoading, 0, &loaded
	}
	return h
}
