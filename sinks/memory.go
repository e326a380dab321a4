package sinks

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// Resident is the memory that the shards and the channels take, in bytes.
func (n *Node) Resident() (bytes int) { return n.residentShards() + n.commons.Bytes() }

func (n *Node) residentShards() (bytes int) {
	for _, s := range n.shards {
		bytes += s.Bytes()
	}
	return bytes
}

// shardsMin is what the shards keep of the budget, as one part in so many,
// however much the channels take, which cannot be evicted.
const shardsMin = 8

// shardsMay is how much memory the shards may take.
func (n *Node) shardsMay() int {
	return max(n.o.MemoryBytes-n.commons.Bytes(), n.o.MemoryBytes/shardsMin)
}

// over says whether the shards take more memory than they may.
func (n *Node) over() bool { return n.o.MemoryBytes > 0 && n.residentShards() > n.shardsMay() }

// near says whether memory will be over its budget before long.
func (n *Node) near() bool { return n.o.MemoryBytes > 0 && n.residentShards() > n.shardsMay()/4*3 }

// slack is how far below the budget memory is brought when it was over it, as
// one part in so many.
const slack = 16

// excess is the share of what the shards have in memory that must go; 0 within
// the budget.
func (n *Node) excess() float64 {
	if !n.over() {
		return 0
	}
	resident, may := n.residentShards(), n.shardsMay()
	return float64(resident-(may-may/slack)) / float64(resident)
}

// Warmth is how many of the shards have been loaded after the start. Queries
// are answered from the disk meanwhile.
func (n *Node) Warmth() (loaded, all int) { return int(n.warmed.Load()), len(n.shards) }

// warm loads the shards in the background: everything where it fits, else what
// was written last.
func (n *Node) warm() {
	if !slices.ContainsFunc(n.units(), func(u unit) bool { return u.State() != cold.State{} }) {
		n.warmed.Store(int64(len(n.shards)))
		return // nothing is on disk
	}
	written := n.writtenLast()
	more := func() bool {
		return !n.stopping.Load() && (n.o.MemoryBytes == 0 || n.residentShards() < n.shardsMay()-n.shardsMay()/slack)
	}
	next := make(chan int)
	for range n.o.Owners {
		n.wait.Go(func() {
			for i := range next {
				if err := n.shards[i].Warm(n.store, written, more); err != nil && !n.stopping.Load() {
					n.o.Logger.Error("sinks: not loaded", "what", n.shards[i].Name(), "error", err)
				}
				n.warmed.Add(1)
			}
		})
	}
	for i := range n.shards {
		next <- i
	}
	close(next)
}

// perDiskByte is how much memory a byte on disk takes at most, once it is
// loaded: edges lose the least.
const perDiskByte = 1.5

// writtenLast is the version as of which all that was written since fits into
// memory; 0 when everything does. Shards are alike: one is looked at.
func (n *Node) writtenLast() uint64 {
	disk := float64(n.store.DataBytes()) * perDiskByte
	if n.o.MemoryBytes == 0 || disk <= float64(n.shardsMay()) {
		return 0
	}
	keys, all := make(map[uint64]int), 0 // by version
	err := n.store.View(cold.Newest, func(v *cold.View) error {
		return v.Written(pipeline.Shard(0), func(version uint64) (more bool) {
			keys[version]++
			all++
			return !n.stopping.Load()
		})
	})
	if err != nil || all == 0 {
		return 1
	}
	old := int(float64(all) * (1 - float64(n.shardsMay())/disk))
	versions := slices.Sorted(maps.Keys(keys))
	for _, version := range versions {
		if old -= keys[version]; old < 0 {
			return version
		}
	}
	return versions[len(versions)-1]
}

// verify compares what the store holds with its checksums. A damaged table
// stops the shards whose keys it may hold; the others serve.
func (n *Node) verify() {
	n.store.Verify(func() bool { return !n.stopping.Load() }, func(d cold.Damage) {
		n.o.Logger.Error("sinks: the database is damaged", "table", d.File, "shards", fmt.Sprintf("%d to %d", d.First, d.Last), "error", d)
		for i, u := range n.units() {
			if number := pipeline.Shard(i); d.First <= number && number <= d.Last {
				u.Fail(d)
			}
		}
	})
}
