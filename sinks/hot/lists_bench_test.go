package hot

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// A post more by an author who has so many; of a list that long the oldest
// goes. And a followee more for a user who follows so many, anywhere among
// them.
func BenchmarkSet(b *testing.B) {
	for _, n := range []uint64{10, 1000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("post/%d", n), func(b *testing.B) {
			l, random := NewLists(1, ByBoth), rand.New(rand.NewPCG(1, 2))
			l.Make(1)
			last := uint64(0)
			add := func() {
				last += 1024
				l.Set(1, 0, Pair{last, random.Uint64()})
			}
			for range n {
				add()
			}
			for b.Loop() {
				add()
				first, _ := l.First(1, 0)
				l.Delete(1, 0, first.A)
			}
		})
		b.Run(fmt.Sprintf("followee/%d", n), func(b *testing.B) {
			l, random := NewLists(1, ByA), rand.New(rand.NewPCG(1, 2))
			l.Make(1)
			for range n {
				l.Set(1, 0, Pair{random.Uint64N(1 << 40), 1 << 30})
			}
			for b.Loop() {
				a := random.Uint64N(1 << 40)
				l.Set(1, 0, Pair{a, 1 << 30})
				l.Delete(1, 0, a)
			}
		})
	}
}
