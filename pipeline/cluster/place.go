package cluster

import (
	"cmp"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
)

// placing is an assignment in the making. Nodes are indexes in nodes.
type placing struct {
	nodes    []candidate
	replicas int // that each shard can have
	perZone  int // copies of one shard in one zone, at most
	shares   []share

	holders [][]int    // of each shard, in no order
	held    []ShardSet // by each node
	load    []int      // how many these are

	near      []uint64 // distances of nodes from the shard nearShard; 0: not computed yet
	nearShard int
}

func newPlacing(nodes []candidate, o Options) *placing {
	p := &placing{
		nodes: nodes, replicas: min(o.Replicas, len(nodes)),
		holders: make([][]int, o.Shards), held: make([]ShardSet, len(nodes)), load: make([]int, len(nodes)), near: make([]uint64, len(nodes)),
	}
	p.perZone, p.shares = shares(nodes, o.Shards, p.replicas)
	return p
}

func (p *placing) distance(s, n int) uint64 { return distance(p.nodes[n].hash, pipeline.Shard(s)) }

// nearer orders two nodes by their weighted distances from a shard, then by
// name. One shard is looked at after the other, so its distances are kept.
func (p *placing) nearer(s, a, b int) int {
	if s != p.nearShard {
		clear(p.near)
		p.nearShard = s
	}
	for _, n := range [...]int{a, b} {
		if p.near[n] == 0 {
			p.near[n] = p.distance(s, n)
		}
	}
	return cmp.Or(
		cmp.Compare(p.near[a]*uint64(p.nodes[b].weight), p.near[b]*uint64(p.nodes[a].weight)),
		cmp.Compare(a, b))
}

func (p *placing) has(n, s int) bool { return p.held[n].Has(pipeline.Shard(s)) }

func (p *placing) ready(n, s int) bool { return p.nodes[n].ready.Has(pipeline.Shard(s)) }

func (p *placing) put(s, n int) {
	p.holders[s] = append(p.holders[s], n)
	p.held[n].Add(pipeline.Shard(s))
	p.load[n]++
}

func (p *placing) take(s, n int) {
	i := slices.Index(p.holders[s], n)
	p.holders[s] = slices.Delete(p.holders[s], i, i+1)
	p.held[n].Remove(pipeline.Shard(s))
	p.load[n]--
}

// inZone is how many copies of s are in n's zone.
func (p *placing) inZone(s, n int) int {
	count := 0
	for _, h := range p.holders[s] {
		if p.nodes[h].zone == p.nodes[n].zone {
			count++
		}
	}
	return count
}

// keep begins with what was assigned, as far as the holders are still there.
func (p *placing) keep(byShard [][]string) {
	index := make(map[string]int, len(p.nodes))
	for i, n := range p.nodes {
		index[n.name] = i
	}
	for s, holders := range byShard {
		for _, name := range holders {
			if n, there := index[name]; there && !p.has(n, s) {
				p.put(s, n)
			}
		}
	}
}

// trim takes copies away from shards that have too many, or too many in a zone.
func (p *placing) trim() {
	for s := range p.holders {
		for {
			var from []int
			for _, n := range p.holders[s] {
				if p.inZone(s, n) > p.perZone {
					from = append(from, n)
				}
			}
			if from == nil && len(p.holders[s]) > p.replicas {
				from = p.holders[s]
			}
			if from == nil {
				break
			}
			p.take(s, slices.MinFunc(from, func(a, b int) int {
				return cmp.Or(
					compareBool(p.nodes[a].up, p.nodes[b].up), // one that is away is missed least
					compareBool(p.ready(a, s), p.ready(b, s)),
					p.compareLoad(b, a),
					p.nearer(s, b, a))
			}))
		}
	}
}

// fill gives copies to shards that have too few: to the nearest node with room,
// or to the one that has held the shard and is still ready.
func (p *placing) fill() {
	for s := range p.holders {
		for len(p.holders[s]) < p.replicas {
			best := -1
			for n := range p.nodes {
				if p.fits(s, n, -1) && (best < 0 || p.better(s, n, best) < 0) {
					best = n
				}
			}
			if best < 0 {
				break // only nodes that are away could
			}
			p.put(s, best)
		}
	}
}

// better orders nodes that could get one more copy of s.
func (p *placing) better(s, a, b int) int {
	rank := func(n int) int {
		switch {
		case p.ready(n, s) && p.load[n] < p.shares[n].most():
			return 0
		case p.load[n] < p.shares[n].floor():
			return 1
		case p.load[n] < p.shares[n].ceil():
			return 2
		}
		return 3
	}
	if order := cmp.Compare(rank(a), rank(b)); order != 0 {
		return order
	}
	if rank(a) == 3 {
		if order := p.compareLoad(a, b); order != 0 {
			return order
		}
	}
	return p.nearer(s, a, b)
}

// fits says whether node n can get a copy of s when instead, unless -1, gives up
// its own.
func (p *placing) fits(s, n, instead int) bool {
	if !p.nodes[n].up || p.has(n, s) {
		return false
	}
	if instead >= 0 && p.nodes[instead].zone == p.nodes[n].zone {
		return true
	}
	return p.inZone(s, n) < p.perZone
}

// level moves copies one by one until no node is outside its bounds, or nothing
// helps. Every move brings a node nearer to its share and none away from it, so
// it ends.
func (p *placing) level() {
	for moved := true; moved; {
		moved = false
		for n := range p.nodes {
			for under := p.nodes[n].up && p.load[n] < p.shares[n].least(); under && p.load[n] < p.shares[n].floor(); moved = true {
				if !p.shift(p.where(func(m int) bool { return p.load[m] > p.shares[m].floor() }), []int{n}) {
					break
				}
			}
		}
		for n := range p.nodes {
			for ; p.load[n] > p.shares[n].most(); moved = true {
				if !p.shift([]int{n}, p.where(func(m int) bool { return p.nodes[m].up && p.load[m] < p.shares[m].ceil() })) {
					break
				}
			}
		}
	}
}

// where lists the nodes of which a condition is true, the fullest first.
func (p *placing) where(condition func(int) bool) []int {
	var list []int
	for n := range p.nodes {
		if condition(n) {
			list = append(list, n)
		}
	}
	slices.SortStableFunc(list, func(a, b int) int { return p.compareLoad(b, a) })
	return list
}

func (p *placing) compareLoad(a, b int) int {
	return compareLoad(p.shares[a], p.load[a], p.shares[b], p.load[b])
}

// shift makes one of the nodes in from hold a copy less, and one of those in to
// one more: by moving a copy, or else by a chain of moves over other nodes. It
// says whether there was a way.
func (p *placing) shift(from, to []int) bool {
	for _, a := range from {
		for _, b := range slices.Backward(to) {
			if s := p.movable(a, b); s >= 0 {
				p.take(s, a)
				p.put(s, b)
				return true
			}
		}
	}
	return p.chain(from, to)
}

// movable is the shard that node b takes over from node a: one it is ready for
// if it can be, and the one nearest to it; -1 for none.
func (p *placing) movable(a, b int) int {
	best := -1
	for shard := range p.held[a].All() {
		s := int(shard)
		if !p.fits(s, b, a) {
			continue
		}
		if best < 0 || cmp.Or(compareBool(p.ready(b, best), p.ready(b, s)), cmp.Compare(p.distance(s, b), p.distance(best, b))) < 0 {
			best = s
		}
	}
	return best
}

// chain is shift by the shortest chain of moves (a breadth-first search for an
// augmenting path). In a shortest chain no two moves are in each other's way:
// two of one shard that were could be one.
func (p *placing) chain(from, to []int) bool {
	type link struct{ from, shard int }
	links := make([]*link, len(p.nodes)) // how a copy comes to it
	for _, n := range from {
		links[n] = new(link)
	}
	for queue := slices.Clone(from); len(queue) > 0; queue = queue[1:] {
		a := queue[0]
		for b := range p.nodes {
			if links[b] != nil {
				continue
			}
			s := p.movable(a, b)
			if s < 0 {
				continue
			}
			links[b] = &link{a, s}
			if !slices.Contains(to, b) {
				queue = append(queue, b)
				continue
			}
			for ; !slices.Contains(from, b); b = links[b].from {
				p.take(links[b].shard, links[b].from)
				p.put(links[b].shard, b)
			}
			return true
		}
	}
	return false
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
