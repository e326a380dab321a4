package twin

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

// A history says of two positions what the model says of every log that ends
// between them.
func TestHistory(t *testing.T) {
	const events = 400
	board := NewBoard(Bounds{})
	c := NewCommunity(rand.New(rand.NewPCG(7, 1)), 3, board)
	for i := range uint64(events) {
		c.Log(c.Next(pipeline.EndOf(i)), pipeline.At(i+1, 0))
	}
	h := c.History()
	random := rand.New(rand.NewPCG(7, 2))
	for range 40 {
		from := random.IntN(events)
		to := min(from+random.IntN(20), events)
		var prefixes []*counts
		for n := from; n <= to; n++ {
			prefixes = append(prefixes, (&model{ages: c.model.ages, log: c.model.log[:n]}).count())
		}
		for cell := range h.cells {
			var values []int64
			for _, p := range prefixes {
				values = append(values, max(p.values[cell], 0))
			}
			counter, column, _ := strings.Cut(cell.column, ".")
			low, high := h.Between(counter, column, cell.id, pipeline.EndOf(uint64(from)), pipeline.EndOf(uint64(to)))
			if low != slices.Min(values) || high != slices.Max(values) {
				t.Fatalf("%v from event %d to %d: %d to %d, the model says %v", cell, from, to, low, high, values)
			}
		}
	}
}
