package sinks

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

// Resident is the memory that the shards, the channels, the indexes of what
// is on disk, and others (Options.Others) take, in bytes.
func (n *Node) Resident() (bytes int) { return n.residentShards() + n.fixed() }

// fixed is what of it cannot be evicted: channels, indexes and filters of runs, others.
// Of two nodes over one store only one counts them.
func (n *Node) fixed() int {
	if n.o.Beside {
		return 0
	}
	bytes := n.commons.Bytes() + n.store.Memory() + n.posted.bytes()
	if n.o.Others != nil {
		bytes += n.o.Others()
	}
	return bytes
}

// Lend has the shards do with so many bytes less of Options.MemoryBytes, which a node
// beside this one has for a while; 0 ends it. A budget without a bound stays without.
func (n *Node) Lend(bytes int) { n.lent.Store(int64(bytes)) }

// budget is what there is for shards, channels and indexes; 0: no bound.
func (n *Node) budget() int {
	memory := n.memory.Load()
	if memory == 0 {
		return 0
	}
	return max(int(memory-n.lent.Load()), 1)
}

func (n *Node) residentShards() (bytes int) {
	for _, s := range n.held.Load().shards {
		bytes += s.Bytes()
	}
	return bytes
}

// SetMemory changes Options.MemoryBytes. What is over it goes with the next
// windows.
func (n *Node) SetMemory(bytes int) { n.memory.Store(int64(bytes)) }

// shardsMin is what the shards keep of the budget, as one part in so many,
// however much the rest takes, which cannot be evicted.
const shardsMin = 8

// shardsMay is how much memory the shards may take.
func (n *Node) shardsMay() int {
	budget := n.budget()
	return max(budget-n.fixed(), budget/shardsMin)
}

// over says whether the shards take more memory than they may.
func (n *Node) over() bool { return n.budget() > 0 && n.residentShards() > n.shardsMay() }

// near says whether memory will be over its budget before long.
func (n *Node) near() bool { return n.budget() > 0 && n.residentShards() > n.shardsMay()/4*3 }

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

// Warmth is how many of the shards held have been loaded since they were taken
// up. Queries are answered from the disk until then.
func (n *Node) Warmth() (loaded, all int) {
	shards := n.held.Load().shards
	for _, s := range shards {
		if s.Warmed() {
			loaded++
		}
	}
	return loaded, len(shards)
}

// warm loads shards in the background: everything where it fits, else what was
// written last.
func (n *Node) warm(shards []*tier.Shard) {
	shards = slices.DeleteFunc(slices.Clone(shards), (*tier.Shard).Warmed) // nothing of them is on disk
	all := tier.WarmOptions{
		Bytes: n.perShard(), Bounds: n.shardsMay() / boundsShare / n.holds(), Entries: n.entriesAtATime(), Tight: !n.fits(2),
	}
	more := func(s *tier.Shard) bool { // each its share: one must not take that of those after it
		share := (n.shardsMay() - n.shardsMay()/slack) / n.holds()
		return !n.stopping.Load() && (n.budget() == 0 || s.Bytes() < share)
	}
	load := func(s *tier.Shard) error {
		o := all
		o.More = func() bool { return more(s) }
		return s.Warm(o)
	}
	next := make(chan *tier.Shard)
	for range min(n.o.Owners, len(shards)) {
		n.wait.Go(func() {
			for s := range next {
				if err := load(s); err != nil && !n.stopping.Load() && !errors.Is(err, query.ErrElsewhere) {
					n.o.Logger.Error("sinks: not loaded", "what", s.Name(), "error", err)
				}
			}
		})
	}
	for _, s := range shards {
		next <- s
	}
	close(next)
}

// holds is how many shards share the budget.
func (n *Node) holds() int { return max(len(n.held.Load().shards), 1) }

// perDiskByte is how much memory a byte of a run takes at most, once it is
// loaded: a row of neighbouring ids takes 3 bytes there and 17 to 22 here.
const perDiskByte = 8

// perShard is how many bytes of each shard's newest runs may be loaded: no more
// than there is memory, as no entry takes less there. Shards are alike.
func (n *Node) perShard() int64 {
	if n.fits(1) {
		return tier.Everything
	}
	return int64(n.shardsMay() / n.holds())
}

// fits says whether memory has room for all that is on disk, so many times.
func (n *Node) fits(times int64) bool {
	return n.budget() == 0 || n.store.RunBytes() <= int64(n.shardsMay())/perDiskByte/times
}

// boundsShare is how much of the shards' memory may bound the newest posts of
// authors who are not in it, as one part in so many.
const boundsShare = 8

// entryBytes is about what an entry takes in memory.
const entryBytes = 32

// entriesAtATime is how many entries an owner's shard loads between two looks
// at the memory taken: those of all owners stay within the slack.
func (n *Node) entriesAtATime() int {
	if n.budget() == 0 {
		return tier.PartMax
	}
	return max(n.shardsMay()/slack/n.o.Owners/entryBytes, 1)
}

// verify compares what the store holds with its checksums. A damaged table
// stops the shards whose keys it may hold; the others serve.
func (n *Node) verify() {
	n.store.Verify(func() bool { return !n.stopping.Load() }, func(d cold.Damage) {
		n.o.Logger.Error("sinks: the database is damaged", "file", d.File, "shards", fmt.Sprintf("%d to %d", d.First, d.Last), "error", d)
		for _, u := range n.units() {
			if number := u.Section(); d.First <= number && number <= d.Last {
				u.Fail(d)
			}
		}
	})
}
