//go:build race

package sim

// raced says that the race detector looks on. One goroutine at a time goes on in a world:
// the detector finds little, and a seed takes ten times as long. So it sees a few seeds,
// and `make test` runs all of them without it.
const raced = true

const (
	seedsMost      = 5
	nodeSeedsMost  = 1
	auditSeedsMost = 1
)
