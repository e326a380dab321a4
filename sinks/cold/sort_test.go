package cold

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// sortEntries against the library's stable sort.
func TestSortEntries(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		wide := []uint64{1, 3, 256, 70_000, 1 << 40, 1<<64 - 1}
		a, b := wide[r.IntN(len(wide))], wide[r.IntN(len(wide))]
		entries := make([]entry, r.IntN(50))
		for i := range entries {
			entries[i] = entry{r.Uint64N(a), r.Uint64N(b), uint64(i)}
		}
		want := slices.Clone(entries)
		slices.SortStableFunc(want, func(x, y entry) int { return cmp.Or(cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b)) })
		if got := sortEntries(entries, make([]entry, len(entries))); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
}
