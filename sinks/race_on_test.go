//go:build race

package sinks_test

// floodRows is how many old rows there are: the race detector makes each ten times
// as slow.
const floodRows, rowsMany, largeUnit = 30_000, 70_000, 100
