package checks

import (
	"testing"
	"time"
)

// "a node that is gone may come back": also one that is lost when it has compared for
// longer than is waited for it.
func TestCompareWaitsAfterALongRound(t *testing.T) {
	v, now := inVain{patience: 10 * time.Minute}, time.Now()
	for i, round := range []struct {
		takes            time.Duration
		compared, enough bool
	}{
		{3 * time.Hour, false, false},
		{9 * time.Minute, false, false},
		{2 * time.Hour, true, false},
		{3 * time.Hour, false, false},
		{9 * time.Minute, false, false},
		{time.Minute, false, true},
	} {
		if now = now.Add(round.takes); v.round(round.compared, now) != round.enough {
			t.Errorf("round %d: enough is not %v", i, round.enough)
		}
	}
}
