package audit

import "testing"

// A round is all samples, compared whole: one of which a shard was skipped has to
// come again.
func TestRound(t *testing.T) {
	r := round{samples: 3}
	for i, step := range []struct {
		sample      uint64
		whole, full bool
	}{
		{2, true, false},
		{0, false, false},
		{1, true, false},
		{2, true, false},
		{0, true, true},
		{1, true, false},
		{2, true, false},
		{0, true, true},
	} {
		if full := r.end(step.sample, step.whole); full != step.full {
			t.Errorf("step %d: a full round: %v, want %v", i, full, step.full)
		}
	}
}
