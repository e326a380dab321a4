//go:build race

package hot

import "flag"

// Of what is drawn here, one thread does all: the race detector finds nothing in it
// and makes it slow, so that fewer cases are drawn. Those of readers run as they are.
func init() {
	if err := flag.Set("rapid.checks", "25"); err != nil {
		panic(err)
	}
}

const listLong = 200_000 // how many pairs a long list has
