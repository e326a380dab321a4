//go:build !race

package hot

import "testing"

func skipRaced(*testing.T) {} // see race_on_test.go
