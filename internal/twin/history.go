package twin

import (
	"sort"

	"github.com/tidemark-io/tidemark/pipeline"
)

// History is what each number of a community's rows was, as of every position.
// What is answered while more comes in is as of some position between two.
type History struct {
	cells map[cellName][]since
}

// since is what a number is from a position on.
type since struct {
	at    pipeline.Position
	value int64
}

// History goes through the events that have been noted.
func (c *Community) History() *History {
	h := &History{map[cellName][]since{}}
	c.model.countEach(func(e *logged, after *counts) {
		for _, cell := range after.touched {
			h.cells[cell] = append(h.cells[cell], since{e.position, max(after.values[cell], 0)})
		}
	})
	return h
}

// Between is the least and the most that may be answered of a number as of any
// position from one to another, both included. Ages are left out: an unread
// number of a user who was dropped is 0 as well.
func (h *History) Between(counter, column string, id uint64, from, to pipeline.Position) (low, high int64) {
	row := h.cells[cellName{counter + "." + column, id}]
	i := sort.Search(len(row), func(i int) bool { return row[i].at > from })
	if i > 0 {
		low = row[i-1].value
	}
	high = low
	for ; i < len(row) && row[i].at <= to; i++ {
		low, high = min(low, row[i].value), max(high, row[i].value)
	}
	return low, high
}
