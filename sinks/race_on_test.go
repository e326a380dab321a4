//go:build race

package sinks_test

import "flag"

// Of what rapid draws here most is one thread's: fewer cases are drawn. Tests of readers
// beside writers run as they are.
func init() {
	if err := flag.Set("rapid.checks", "50"); err != nil {
		panic(err)
	}
}

// floodRows is how many old rows there are: the race detector makes each ten times
// as slow.
const floodRows, rowsMany = 60_000, 70_000
