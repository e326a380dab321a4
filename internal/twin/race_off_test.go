//go:build !race

package twin

// sequencesFor is how many sequences a run takes.
func sequencesFor(short bool) int {
	if short {
		return 200
	}
	return 3000
}
