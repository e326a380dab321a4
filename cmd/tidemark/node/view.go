package node

import (
	"fmt"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/query"
)

// clusterView tells tidemark.nodes and tidemark.shards what this process has seen
// of the others: view gives what it has seen last, silent for how long it has seen
// nothing at all.
type clusterView struct {
	view   func() *cluster.View
	silent func() time.Duration
}

var _ query.Cluster = clusterView{}

// silent is for how long nothing has been heard of any node, this one included; 0
// while that is no longer than one node may be silent. Nobody is away meanwhile: that
// nothing is heard says nothing about the others.
func (n *generation) silent() time.Duration {
	members := n.watched.Load()
	if members == nil {
		return 0
	}
	if silent := members.Silent(); silent > memberExpiry {
		return silent
	}
	return 0
}

// unheard says so.
func (n *generation) unheard() string {
	silent := n.silent()
	if silent == 0 {
		return n.unstored()
	}
	return fmt.Sprintf("nodes: for %d s nothing has been heard of any of them, this one included: it is cut off, or JetStream has no leader because most of the NATS servers are gone\n", int(silent.Seconds()))
}

// unstored says that the others do not hear of this node, and why.
func (n *generation) unstored() string {
	members := n.watched.Load()
	if members == nil {
		return ""
	}
	since, why := members.Unheard()
	if since < memberExpiry {
		return ""
	}
	return fmt.Sprintf("nodes: for %d s the others have heard nothing of this one, and take it to be away: %v\n", int(since.Seconds()), why)
}

// Nodes implements query.Cluster.
func (c clusterView) Nodes() query.Nodes {
	v := c.view()
	nodes := query.Nodes{Epoch: v.Assignment.Epoch, SilentMS: c.silent().Milliseconds()}
	for _, m := range v.Members {
		config := ""
		if m.Differs {
			config = query.ConfigDiffers
		}
		nodes.Nodes = append(nodes.Nodes, query.Node{
			Node: m.Node, Roles: m.Roles.Names(), Zone: m.Zone, Weight: m.Weight, Version: m.Version,
			State: query.NodeState(m.Status.String()), Routes: m.Routes && m.Status != cluster.Away,
			Shards: m.Ready.Len(), Applied: m.Applied, LagMS: m.LagMS, Config: config,
		})
	}
	return nodes
}

// Shards implements query.Cluster. Behind those to whom a shard is assigned come
// those that have it still and are there.
func (c clusterView) Shards() query.Shards {
	v := c.view()
	shards := query.Shards{Epoch: v.Assignment.Epoch, SilentMS: c.silent().Milliseconds()}
	for s := range pipeline.Shard(v.Assignment.Shards()) {
		line := query.ShardHolders{Shard: s}
		assigned := v.Assignment.Holders(s)
		for _, name := range assigned {
			m, there := v.Member(name)
			if !there { // its key is gone, or has not come yet
				line.Holders = append(line.Holders, query.ShardHolder{Node: name, State: query.HolderAway})
				continue
			}
			line.Holders = append(line.Holders, holderOf(m, s))
		}
		for _, m := range v.Members {
			if m.Status != cluster.Away && (m.Ready.Has(s) || m.Failed.Has(s)) && !slices.Contains(assigned, m.Node) {
				line.Holders = append(line.Holders, holderOf(m, s))
			}
		}
		shards.Shards = append(shards.Shards, line)
	}
	return shards
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
