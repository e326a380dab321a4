//go:build !race

package sinks_test

const floodRows, rowsMany, largeUnit = 60_000, 100_000, 300 // see race_on_test.go
