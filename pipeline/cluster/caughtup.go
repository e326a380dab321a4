package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Come is how far all shards have come, as the members say: the furthest holder of each
// shard, the least of all shards; 0 before shards are assigned.
func (v *View) Come(shards int) pipeline.Position {
	if v.Assignment.Shards() != shards {
		return 0
	}
	least := pipeline.PositionMax
	for s := range pipeline.Shard(shards) {
		at := pipeline.Position(0)
		for _, m := range v.Members {
			if m.Status != Away && m.Ready.Has(s) {
				at = max(at, m.Applied)
			}
		}
		least = min(least, at)
	}
	return least
}

// Lacking is how many shards are assigned to no node, how many shards each node is to hold
// and does not answer for, and of how many each node lags. A node that lacks or lags none is
// in no map.
func (v *View) Lacking(shards int) (nobody int, lacks, behind map[string]int) {
	if v.Assignment.Shards() != shards {
		return shards, nil, nil
	}
	lacks, behind = map[string]int{}, map[string]int{}
	for s := range pipeline.Shard(shards) {
		holders := v.Assignment.Holders(s)
		if len(holders) == 0 {
			nobody++
		}
		for _, node := range holders {
			switch m, there := v.Member(node); {
			case !there || m.Status == Away || !m.Ready.Has(s):
				lacks[node]++
			case m.Behind:
				behind[node]++
			}
		}
	}
	return nobody, lacks, behind
}

// CaughtUp says whether all shards have all their holders, and each of these is there,
// has it ready, and does not lag.
func (v *View) CaughtUp(shards int) bool {
	nobody, lacks, behind := v.Lacking(shards)
	return nobody == 0 && len(lacks) == 0 && len(behind) == 0
}

// WaitsFor is what Lacking finds, in words; "": nothing. Before all shards are at the end of
// the log (atEnd false), it leaves out what is a matter of time.
func (v *View) WaitsFor(shards int, atEnd bool) string {
	nobody, lacks, behind := v.Lacking(shards)
	var why []string
	if nobody > 0 && atEnd {
		why = append(why, fmt.Sprintf("%d of %d shards are assigned to no node", nobody, shards))
	}
	for _, node := range slices.Sorted(maps.Keys(lacks)) {
		switch m, there := v.Member(node); {
		case !there || m.Status == Away:
			why = append(why, fmt.Sprintf("node %s, which is to hold %d shards, is away: start it, or 'tidemark nodes forget' it", node, lacks[node]))
		case atEnd:
			why = append(why, fmt.Sprintf("node %s does not answer for %d of its shards yet", node, lacks[node]))
		}
	}
	if atEnd && len(behind) > 0 {
		why = append(why, "behind are "+strings.Join(slices.Sorted(maps.Keys(behind)), ", "))
	}
	return strings.Join(why, "; ")
}

// Unanswered is how many shards no node answers for, of those that are assigned. here says
// whether the process that asks answers for a shard, which it knows before its key says so.
func (v *View) Unanswered(here func(pipeline.Shard) bool) (none, shards int) {
	shards = v.Assignment.Shards()
	for s := range pipeline.Shard(shards) {
		if len(v.Answering(s)) == 0 && !here(s) {
			none++
		}
	}
	return none, shards
}
