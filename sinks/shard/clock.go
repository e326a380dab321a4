package shard

import (
	"sort"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Clock is log time: which position each moment of the log began with. Ages
// are compared as positions, so nobody's wall clock has a say and a replay
// comes to the same answers. All shards of a node share one.
type Clock struct {
	grain int64 // seconds told apart: 1, or 1/43,200 of the longest age
	keep  int64 // seconds

	mu    sync.RWMutex
	marks []pipeline.TimeMark // ascending, one for each grain that has an event
}

const (
	clockGrains = 43_200
	// clockSlack is kept beyond the longest age, for shards that lag.
	clockSlack = 86_400
)

// NewClock makes a clock for ages up to `longest` seconds.
func NewClock(longest int64) *Clock {
	return &Clock{grain: max(1, longest/clockGrains), keep: longest + clockSlack}
}

// Note takes in a window's marks and returns those that are new. It keeps the
// first of each grain, so how the log was cut into windows does not matter.
func (c *Clock) Note(marks []pipeline.TimeMark) (noted []pipeline.TimeMark) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range marks {
		if n := len(c.marks); n > 0 && m.Second/c.grain <= c.marks[n-1].Second/c.grain {
			continue
		}
		c.marks = append(c.marks, m)
		noted = append(noted, m)
	}
	return noted
}

// Newest is the second of the newest mark; 0: there is none.
func (c *Clock) Newest() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if n := len(c.marks); n > 0 {
		return c.marks[n-1].Second
	}
	return 0
}

// Trim forgets marks that no age reaches back to from a position on, and returns them,
// at most so many. Earlier positions must no longer be asked for: not by a shard that
// lags, nor by one that applies windows again after a crash.
func (c *Clock) Trim(from pipeline.Position, most int) (old []pipeline.TimeMark) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.atLocked(from)
	if now < 0 {
		return nil
	}
	oldest := c.marks[now].Second - c.keep
	n := sort.Search(now, func(i int) bool { return c.marks[i].Second >= oldest })
	n = min(n, most)
	old, c.marks = c.marks[:n:n], c.marks[n:]
	return old
}

// atLocked is the place of the mark that a position lies behind, or -1.
func (c *Clock) atLocked(at pipeline.Position) int {
	return sort.Search(len(c.marks), func(i int) bool { return c.marks[i].Position > at }) - 1
}

// Horizon is the first position that, at position `at`, is no older than an
// age in seconds.
func (c *Clock) Horizon(at pipeline.Position, age int64) pipeline.Position {
	c.mu.RLock()
	defer c.mu.RUnlock()
	now := c.atLocked(at)
	if now < 0 {
		return 0
	}
	oldest := c.marks[now].Second/c.grain - age/c.grain
	// Nearly always the log is younger than the age, or much older than one mark.
	first := sort.Search(now, func(i int) bool { return c.marks[i].Second/c.grain >= oldest })
	return c.marks[first].Position
}
