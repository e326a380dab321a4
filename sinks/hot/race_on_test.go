//go:build race

package hot

import (
	"flag"
	"testing"
)

// Of what is drawn here, one thread does all: the race detector finds nothing in it
// and makes it slow, so that fewer cases are drawn. Those of readers run as they are.
func init() {
	if err := flag.Set("rapid.checks", "25"); err != nil {
		panic(err)
	}
}

// skipRaced is for what has one goroutine and many rows: make test runs it without the
// race detector.
func skipRaced(t *testing.T) { t.Skip("one goroutine: run without -race, as make test does too") }
