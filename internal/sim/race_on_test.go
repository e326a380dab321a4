//go:build race

package sim

// seedsFor is few: the race detector wants schedules, the model wants seeds.
func seedsFor(short bool) int {
	if short {
		return 10
	}
	return 60
}

// nodeSeedsFor is the same among nodes, where a seed takes longer.
func nodeSeedsFor(short bool) int {
	if short {
		return 2
	}
	return 5
}
