//go:build !race

package sinks_test

const floodRows = 120_000 // see race_on_test.go
