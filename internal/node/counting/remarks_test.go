package counting

import (
	"strings"
	"testing"
	"time"
)

// A log time that is ahead of this machine's is said; one that is behind is as it must be.
func TestLogTimeAheadIsSaid(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for ahead, want := range map[time.Duration]string{
		-time.Hour:        "",
		30 * time.Second:  "",
		87600 * time.Hour: "log time is 87600h0m0s ahead of this node's clock: a NATS server has stamped an event with 2036-02-27T12:00:00Z",
	} {
		if got := aheadOfTime(now.Add(ahead), now); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%v ahead: %q", ahead, got)
		}
	}
}
