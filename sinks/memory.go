package sinks

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// Resident is the memory that the shards take, in bytes.
func (n *Node) Resident() (bytes int) {
	for _, s := range n.shards {
		bytes += s.Bytes()
	}
	return bytes
}

// over says whether the shards take more memory than they may.
func (n *Node) over() bool { return n.o.MemoryBytes > 0 && n.Resident() > n.o.MemoryBytes }

// near says whether memory will be over its budget before long.
func (n *Node) near() bool { return n.o.MemoryBytes > 0 && n.Resident() > n.o.MemoryBytes/4*3 }

// slack is how far below the budget memory is brought when it was over it, as
// one part in so many.
const slack = 16

// excess is the share of what is in memory that must go; 0 within the budget.
func (n *Node) excess() float64 {
	if !n.over() {
		return 0
	}
	resident, goal := n.Resident(), n.o.MemoryBytes-n.o.MemoryBytes/slack
	return float64(resident-goal) / float64(resident)
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
		return !n.stopping.Load() && (n.o.MemoryBytes == 0 || n.Resident() < n.o.MemoryBytes-n.o.MemoryBytes/slack)
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
	if n.o.MemoryBytes == 0 || disk <= float64(n.o.MemoryBytes) {
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
	old := int(float64(all) * (1 - float64(n.o.MemoryBytes)/disk))
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
