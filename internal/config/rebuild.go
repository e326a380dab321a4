package config

import (
	"fmt"
	"math"
	"time"
)

// Rebuild is what the generation beside the one that serves may take, and how
// long the one that served before is kept.
type Rebuild struct {
	Memory Size          `yaml:"memory"` // bytes of memory.budget, 0 = a quarter of it; 0
	Cores  int           `yaml:"cores"`  // processors that it takes until it serves, and the comparison too, 1 to 1024; 1
	Keep   time.Duration `yaml:"keep"`   // 0 to 30d, and 10s at least whatever it says; 1h
}

// shardBytesMin is what the shards of a generation need of memory.budget.
const shardBytesMin = 4 * MiB

// badgerBytes is what one Badger takes of memory.budget: one buffer that is
// written to and two that are written out, each with a quarter for its
// entries' links, and the caches. Each generation has one.
func (c *Config) badgerBytes() Size {
	return 3*(c.Badger.MemTable+c.Badger.MemTable/4) + c.Badger.BlockCache + c.Badger.IndexCache
}

// generationMin is what one generation needs of memory.budget.
func (c *Config) generationMin() Size { return c.badgerBytes() + shardBytesMin }

// rebuildShare is the part of memory.budget for a second generation where the
// file does not state it: most of the memory is for what is asked.
const rebuildShare = 4

// secondBytes is what the generation beside the one that serves has, its Badger
// included.
func (c *Config) secondBytes() Size {
	if c.Rebuild.Memory > 0 {
		return c.Rebuild.Memory
	}
	return max(c.Memory.Budget/rebuildShare, c.generationMin())
}

// ShardBytes is what memory.budget leaves to the shards of the generation that
// serves, when it is alone: rows, outboxes, lists.
func (c *Config) ShardBytes() int { return shardBytes(c.Memory.Budget - c.badgerBytes()) }

// TwoFit says why memory.budget does not hold two generations; nil: it does. A file
// that says nothing of rebuild.memory is good all the same: only a rebuild is not.
func (c *Config) TwoFit() error {
	if least := 2 * c.generationMin(); c.Memory.Budget < least {
		return fmt.Errorf("memory.budget is %s, and two generations need %s: for each, %s for its Badger and %s for its state", c.Memory.Budget, least, c.badgerBytes(), Size(shardBytesMin))
	}
	return nil
}

// ShardBytesBeside is what it leaves to them while there is another generation
// beside. A budget that does not hold two (TwoFit), and was lowered after the second
// one was begun, is exceeded: by as much as one generation needs at most.
func (c *Config) ShardBytesBeside() int {
	return shardBytes(max(c.Memory.Budget-c.secondBytes()-c.badgerBytes(), shardBytesMin))
}

// ShardBytesSecond is what the shards of the generation beside the one that
// serves have.
func (c *Config) ShardBytesSecond() int { return shardBytes(c.secondBytes() - c.badgerBytes()) }

func shardBytes(s Size) int { return int(min(s, math.MaxInt)) }

// rebuildKeepMax bounds how long two generations are kept up to date.
const rebuildKeepMax = 30 * day

func (d *decoder) checkRebuild(c *Config) {
	const memory = "rebuild.memory"
	r := &c.Rebuild
	within(d, memory, r.Memory, 0, 64*1024*GiB)
	within(d, "rebuild.cores", r.Cores, 1, 1024)
	within(d, "rebuild.keep", r.Keep, 0, rebuildKeepMax)
	if r.Memory <= 0 || c.Memory.Budget < c.generationMin() { // which has a fault of its own
		return
	}
	switch least := c.generationMin(); {
	case r.Memory < least:
		d.crossFault([]string{memory, "badger.memtable", "badger.block_cache", "badger.index_cache"},
			"rebuild.memory is %s; allowed: %s or more, of which the Badger of a second generation takes %s and its state at least %s, or 0 for a quarter of memory.budget",
			r.Memory, least, c.badgerBytes(), Size(shardBytesMin))
	case r.Memory > c.Memory.Budget-least:
		d.crossFault([]string{memory, "memory.budget", "badger.memtable", "badger.block_cache", "badger.index_cache"},
			"rebuild.memory is %s of a memory.budget of %s, and the generation that serves needs %s; allowed: up to %s",
			r.Memory, c.Memory.Budget, least, c.Memory.Budget-least)
	}
}
