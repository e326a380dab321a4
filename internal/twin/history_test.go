package twin

import (
	"math/rand/v2"
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
		ids := map[string][]uint64{"user": c.Users(), "post": c.Posts(), "page": c.Pages(), "unread": c.Users()}
		for counter, columns := range map[string][]string{"user": UserColumns, "post": PostColumns, "page": PageColumns, "unread": unreadKinds} {
			for _, id := range ids[counter] {
				for _, column := range columns {
					cell := cellName{counter + "." + column, id}
					wantLow, wantHigh := max(prefixes[0].values[cell], 0), max(prefixes[0].values[cell], 0)
					for _, p := range prefixes {
						wantLow, wantHigh = min(wantLow, max(p.values[cell], 0)), max(wantHigh, max(p.values[cell], 0))
					}
					low, high := h.Between(counter, column, id, pipeline.EndOf(uint64(from)), pipeline.EndOf(uint64(to)))
					if low != wantLow || high != wantHigh {
						t.Fatalf("%v from event %d to %d: %d to %d, the model says %d to %d", cell, from, to, low, high, wantLow, wantHigh)
					}
				}
			}
		}
	}
}
