//go:build !race

package sinks_test

const floodRows, rowsMany, largeUnit = 120_000, 100_000, 1000 // see race_on_test.go
