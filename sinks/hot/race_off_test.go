//go:build !race

package hot

import (
	"flag"
	"testing"
)

// Twins of what is in memory alone take milliseconds: many cases are drawn.
func init() {
	if err := flag.Set("rapid.checks", "400"); err != nil {
		panic(err)
	}
}

func skipRaced(*testing.T) {} // see race_on_test.go
