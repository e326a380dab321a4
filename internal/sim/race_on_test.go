//go:build race

package sim

// seedsFor is few: the race detector wants schedules, the model wants seeds.
func seedsFor(short bool) int {
	if short {
		return 10
	}
	return 60
}
