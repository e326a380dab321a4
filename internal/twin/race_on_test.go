//go:build race

package twin

// sequencesFor is how many sequences a run takes: the race detector makes one
// take ten times as long.
func sequencesFor(short bool) int {
	if short {
		return 50
	}
	return 200
}
