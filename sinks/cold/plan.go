package cold

import "math"

const (
	// RunsWanted is how many runs of a shard views see before merging begins.
	RunsWanted = 8
	// RunsMax is how many runs a shard may have: a checkpoint of one that has as
	// many waits for merges.
	RunsMax = 32
	// runsHurry is how many runs of a shard have merges go on without rest.
	runsHurry = RunsMax * 3 / 4
)

// plan says which neighbouring runs of a shard to merge, by their sizes in
// bytes, newest first: those from from to before to; none where from == to. It
// leaves at least one run fewer, so that after merges there are at most
// [RunsWanted].
//
// It takes the stretch with the fewest bytes for the cube of how many runs go:
// many small ones rather than two large ones, and none twice where once will
// do. Checkpoints whose keys are all different, so that nothing gets smaller,
// are written again 1.8 times each after 100 of them, 4 times after 1,000, 7.5
// after 10,000, 15 after 100,000, near to the least there can be for 8 runs (about
// 14). Where merged runs stop growing, because keys come again, it
// stays at 3 for 100 checkpoints' worth of keys, at 7 for 1,000. Merging the
// newest with those no larger than what is taken so far comes to 29 and to 72
// after 100,000 of one and of any size: in its forced merges of two it pays for
// large runs again and again.
func plan(sizes []int64) (from, to int) {
	if len(sizes) <= RunsWanted {
		return 0, 0
	}
	least := math.Inf(1)
	for i := range sizes {
		sum := sizes[i]
		for j := i + 1; j < len(sizes); j++ {
			sum += sizes[j]
			fewer := float64(j - i)
			if cost := float64(sum) / (fewer * fewer * fewer); cost < least {
				least, from, to = cost, i, j+1
			}
		}
	}
	return from, to
}
