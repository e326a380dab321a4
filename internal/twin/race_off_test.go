//go:build !race

package twin

// sequencesFor is how many sequences a run takes.
func sequencesFor(short bool) int {
	if short {
		return 400
	}
	return 3000
}
