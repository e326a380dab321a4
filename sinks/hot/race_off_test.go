//go:build !race

package hot

const listLong = 1_000_000 // see race_on_test.go
