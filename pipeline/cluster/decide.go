package cluster

import (
	"slices"
	"strings"
	"time"
)

// Options are what the configuration says of an assignment.
type Options struct {
	Shards       int           // from 1 to pipeline.ShardsMax
	Replicas     int           // from 1 to ReplicasMax
	ReplaceAfter time.Duration // a holder away for longer is replaced
}

// Decide is the assignment that follows the previous one with these members.
//
// Those that can hold have the role hold, a weight above 0, are not drained,
// and have not been away for longer than ReplaceAfter. One that is away keeps
// what it has and gets nothing. Each shard has Replicas holders, or as many as
// there are; never two of them are one node, and no more than need be are in one
// zone. No node holds more than sharePercentMax of its share, and none that is
// up less than sharePercentMin, both rounded in its favour and as far as those
// that are away let it; a share is the proportion of the node's weight, as far
// as zones and whole nodes let it.
//
// What the previous assignment says stays, as far as it may. When a node goes
// only its copies are placed again; when one comes, copies move to it and no
// others, unless a bound is broken otherwise.
//
// The result is a function of its arguments: the order of the members means
// nothing. Deciding again on it changes nothing. The epoch is the next one when
// anything is different, else that of previous. When nobody can hold anything
// the previous assignment stays.
func Decide(previous Assignment, members []State, o Options) Assignment {
	nodes := candidates(members, o)
	if len(nodes) == 0 {
		return previous
	}
	p := newPlacing(nodes, o)
	if previous.Shards() == o.Shards { // of another number, no shard is what it was
		p.keep(previous.ByShard)
	}
	p.trim()
	p.fill()
	p.level()
	next := Assignment{Epoch: previous.Epoch, Replicas: o.Replicas, ByShard: p.result()}
	if !next.same(&previous) {
		next.Epoch++
	}
	return next
}

// candidate is a member that can hold shards.
type candidate struct {
	name   string
	hash   uint64
	zone   int
	weight int
	up     bool     // may get shards
	ready  ShardSet // what it has already
}

// candidates are in the order of their names.
func candidates(members []State, o Options) []candidate {
	zones := make(map[string]int)
	var list []candidate
	for _, m := range members {
		if !m.Roles.Has(Hold) || m.Weight <= 0 || m.Drained || m.Status == Away && m.Unseen > o.ReplaceAfter {
			continue
		}
		zone, known := zones[m.Zone]
		if !known {
			zone = len(zones)
			zones[m.Zone] = zone
		}
		list = append(list, candidate{
			name: m.Node, hash: nameHash(m.Node), zone: zone, weight: min(m.Weight, WeightMax), up: m.Status == Up, ready: m.Ready,
		})
	}
	slices.SortFunc(list, func(a, b candidate) int { return strings.Compare(a.name, b.name) })
	list = slices.CompactFunc(list, func(a, b candidate) bool { return a.name == b.name })
	return list[:min(len(list), NodesMax)]
}

// result lists the holders of each shard, the nearest first.
func (p *placing) result() [][]string {
	byShard := make([][]string, len(p.holders))
	for s, holders := range p.holders {
		slices.SortFunc(holders, func(a, b int) int { return p.nearer(s, a, b) })
		byShard[s] = make([]string, len(holders))
		for i, n := range holders {
			byShard[s][i] = p.nodes[n].name
		}
	}
	return byShard
}
