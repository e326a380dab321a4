package cluster

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Holder returns the node that a backup takes a shard from: of the nodes that answer for
// it (for the channels: that answer for any shard), the one that has applied the most;
// asked again, the next one. asked is how often it was asked before.
func Holder(v *View, shard pipeline.Shard, asked int) (node string, err error) {
	var able []State
	for _, m := range v.Members {
		commons := int(shard) == m.Shards && m.Ready.Len() > 0
		if m.Status != Away && m.Roles.Has(Hold) && (commons || m.Ready.Has(shard)) {
			able = append(able, m)
		}
	}
	if len(able) == 0 {
		return "", fmt.Errorf("no node answers for shard %d: 'tidemark shards' shows who is to", shard)
	}
	slices.SortStableFunc(able, func(a, b State) int { return cmp.Compare(b.Applied.Sequence(), a.Applied.Sequence()) })
	return able[asked%len(able)].Node, nil
}

// Needed calls keep with each position of EVENTS that a node may still read from, and why:
// what a node that is there has not applied yet, and everything while a shard may be
// derived from the beginning, for a node does not say how far it is with that. of begins
// the reason.
func (v *View) Needed(of string, keep func(from uint64, why string)) {
	for _, m := range v.Members {
		if m.Status != Away && m.Roles.Has(Hold) {
			keep(m.Applied.Next(), of+"node "+m.Node+" has not applied the rest")
		}
	}
	if v.Assignment.Shards() == 0 {
		keep(1, of+"no shard is assigned to a node, and all may be derived")
	}
	for s := range pipeline.Shard(v.Assignment.Shards()) {
		if len(v.Answering(s)) == 0 {
			keep(1, of+fmt.Sprintf("shard %d is answered by nobody and may be derived", s))
			return
		}
	}
}
