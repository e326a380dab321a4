package cluster

import (
	"cmp"
	"slices"
)

// Bounds of what a node holds, in percent of its share: one outside them is
// brought back, others are left alone.
const (
	sharePercentMax = 115
	sharePercentMin = 85
)

// share is what a node of a weight should hold: weight × num/den copies, and no
// more than there are shards.
type share struct {
	num, den int
	weight   int
	shards   int
}

// scaled is so much of the share, times den times 100.
func (s share) scaled(percent int) int {
	return min(s.weight*s.num*percent, s.shards*s.den*100)
}

// times is the share times den.
func (s share) times() int { return min(s.weight*s.num, s.shards*s.den) }

func (s share) floor() int { return s.scaled(100) / (s.den * 100) }
func (s share) ceil() int  { return divideUp(s.scaled(100), s.den*100) }

// most is what a node may hold: above it, copies are taken from it.
func (s share) most() int { return max(s.ceil(), s.scaled(sharePercentMax)/(s.den*100)) }

// least is what a node may hold: below it, it gets copies until it has floor.
func (s share) least() int {
	return min(s.floor(), divideUp(s.weight*s.num*sharePercentMin, s.den*100))
}

// compareLoad orders two nodes by what they hold relative to their shares.
func compareLoad(a share, loadA int, b share, loadB int) int {
	return cmp.Compare(loadA*a.den*b.times(), loadB*b.den*a.times())
}

func divideUp(a, b int) int { return (a + b - 1) / b }

// shares divides the copies of all shards among nodes by weight. No node can
// hold a shard twice, and no zone more than perZone copies of one: what would
// go over that goes to the others. perZone is the least with which every shard
// has its replicas.
//
// As each shard alone could be divided in these proportions, there is a
// placement in which every node holds its share, rounded up or down (flows with
// whole bounds have whole solutions).
func shares(nodes []candidate, shards, replicas int) (perZone int, all []share) {
	zones := make(map[int][]int) // zone: weights
	for _, n := range nodes {
		zones[n.zone] = append(zones[n.zone], n.weight)
	}
	perZone = spread(zones, replicas)
	ratios := make(map[int]share)
	left := shards * replicas
	for len(ratios) < len(zones) {
		var weights []int
		for z, ws := range zones {
			if _, full := ratios[z]; !full {
				weights = append(weights, ws...)
			}
		}
		common := divide(left, weights, shards)
		full := false
		for z, ws := range zones {
			if _, done := ratios[z]; done {
				continue
			}
			demand, room := 0, shards*min(len(ws), perZone)
			for _, w := range ws {
				common.weight = w
				demand += common.scaled(100)
			}
			if demand > room*common.den*100 {
				ratios[z], full = divide(room, ws, shards), true
				left -= room
			}
		}
		if full {
			continue // the others get more than with this ratio
		}
		for z := range zones {
			if _, done := ratios[z]; !done {
				ratios[z] = common
			}
		}
	}
	for _, n := range nodes {
		s := ratios[n.zone]
		s.weight = n.weight
		all = append(all, s)
	}
	return perZone, all
}

// spread is how many copies of a shard a zone must be able to take.
func spread(zones map[int][]int, replicas int) int {
	for perZone := 1; ; perZone++ {
		room := 0
		for _, ws := range zones {
			room += min(len(ws), perZone)
		}
		if room >= replicas || perZone >= replicas {
			return perZone
		}
	}
}

// divide finds the ratio with which nodes of these weights hold total copies:
// those whose proportion would be more than all shards hold them all.
func divide(total int, weights []int, shards int) share {
	weights = slices.Sorted(slices.Values(weights))
	sum := 0
	for _, w := range weights {
		sum += w
	}
	for _, w := range slices.Backward(weights) {
		if w*total <= shards*sum {
			return share{num: total, den: sum, shards: shards}
		}
		total, sum = total-shards, sum-w
	}
	return share{num: shards, den: 1, shards: shards}
}
