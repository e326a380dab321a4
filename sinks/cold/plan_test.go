package cold

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

func TestPlan(t *testing.T) {
	for _, c := range []struct {
		sizes    []int64
		from, to int
	}{
		{nil, 0, 0},
		{[]int64{1, 1, 1, 1, 1, 1, 1, 1}, 0, 0},
		{[]int64{1, 1, 1, 1, 1, 1, 1, 1, 1}, 0, 9},
		{[]int64{1, 1, 1, 1, 1, 1, 1, 1, 1000}, 0, 8},
		{[]int64{1, 2, 4, 8, 16, 32, 64, 128, 256}, 0, 5},
		{[]int64{900, 1, 1, 1, 900, 900, 900, 900, 900}, 1, 4},
		{[]int64{0, 0, 0, 0, 0, 0, 0, 0, 0}, 0, 2},
	} {
		if from, to := plan(c.sizes); from != c.from || to != c.to {
			t.Errorf("of %v: %d to %d, want %d to %d", c.sizes, from, to, c.from, c.to)
		}
	}
}

// "written again 1.8 times each after 100 of them … 15 after 100,000": of one
// size, or of any.
func TestPlanAmplification(t *testing.T) {
	const checkpoints = 100_000
	for name, size := range map[string]func(i int) int64{
		"of one size": func(int) int64 { return 1000 },
		"of any size": func(i int) int64 { return 1 + int64(uint32(i)*2654435761)>>12 },
	} {
		var sizes []int64
		var checkpointed, merged int64
		most := 0
		at := map[int]string{}
		for i := range checkpoints {
			s := size(i)
			sizes, checkpointed = append([]int64{s}, sizes...), checkpointed+s
			most = max(most, len(sizes))
			for {
				from, to := plan(sizes)
				if from == to {
					break
				}
				sum := int64(0)
				for _, s := range sizes[from:to] {
					sum += s
				}
				merged += sum
				sizes = slices.Replace(sizes, from, to, sum)
			}
			if len(sizes) > RunsWanted {
				t.Fatalf("%s: %d runs after merges: %v", name, len(sizes), sizes)
			}
			if n := i + 1; n == 100 || n == 1000 || n == 10_000 || n == checkpoints {
				at[n] = fmt.Sprintf("%.1f", float64(merged)/float64(checkpointed))
			}
		}
		t.Log(name, at)
		if most > RunsWanted+1 {
			t.Errorf("%s: %d runs at once", name, most)
		}
		if got := float64(merged) / float64(checkpointed); got > amplificationMax || math.IsNaN(got) {
			t.Errorf("%s: merges wrote each byte %.1f times", name, got)
		}
	}
}

// amplificationMax is what plan's docstring says of 100,000 checkpoints.
const amplificationMax = 15.5
