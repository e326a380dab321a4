//go:build !race

package sim

const raced = false // see race_on_test.go

// How many seeds of each kind of world a minute is enough for. With -short TestNet runs the first
// of them.
const (
	seedsMost      = 500
	nodeSeedsMost  = 300
	auditSeedsMost = 100
)
