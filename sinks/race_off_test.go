//go:build !race

package sinks_test

const floodRows, rowsMany = 120_000, 100_000 // see race_on_test.go
