package audit

import (
	"slices"
	"sort"

	"github.com/tidemark-io/tidemark/pipeline"
)

// clock is log time: with which position each grain of it began. "Ages are measured in
// log time, the stream timestamp of the newest applied event." They are kept to the
// second or, where the longest is more than half a day, to 1/43,200 of it; it never
// goes back.
type clock struct {
	grain, longest int64 // seconds
	marks          []pipeline.TimeMark
}

const clockGrains = 43_200

func newClock(longest int64) clock {
	return clock{grain: max(1, longest/clockGrains), longest: longest}
}

// note takes in marks of a window.
func (c *clock) note(marks []pipeline.TimeMark) {
	for _, m := range marks {
		if n := len(c.marks); n == 0 || m.Second/c.grain > c.marks[n-1].Second/c.grain {
			c.marks = append(c.marks, m)
		}
	}
	if len(c.marks) > 4*clockGrains { // more than twice the longest age
		c.marks = slices.Clone(c.marks[len(c.marks)-2*clockGrains:])
	}
}

// horizon is the first position that, at a position, is no older than an age.
func (c *clock) horizon(at pipeline.Position, age int64) pipeline.Position {
	now := sort.Search(len(c.marks), func(i int) bool { return c.marks[i].Position > at }) - 1
	if now < 0 {
		return 0
	}
	oldest := c.marks[now].Second/c.grain - age/c.grain
	return c.marks[sort.Search(now, func(i int) bool { return c.marks[i].Second/c.grain >= oldest })].Position
}
