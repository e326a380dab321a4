package backup

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
)

// Holder is the node that a shard is taken from: of those who answer for it, and of
// the channels all who answer for any, the one that is furthest; when it is asked
// again, the next one. asked is how often it was before.
func Holder(v *cluster.View, shard pipeline.Shard, asked int) (node string, err error) {
	var able []cluster.State
	for _, m := range v.Members {
		commons := int(shard) == m.Shards && m.Ready.Len() > 0
		if m.Status != cluster.Away && m.Roles.Has(cluster.Hold) && (commons || m.Ready.Has(shard)) {
			able = append(able, m)
		}
	}
	if len(able) == 0 {
		return "", fmt.Errorf("no node answers for shard %d: 'tidemark shards' shows who is to", shard)
	}
	slices.SortStableFunc(able, func(a, b cluster.State) int { return cmp.Compare(b.Applied.Sequence(), a.Applied.Sequence()) })
	return able[asked%len(able)].Node, nil
}
