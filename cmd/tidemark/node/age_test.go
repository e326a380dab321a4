package node

import (
	"testing"
	"time"
)

// An age is told as it is given: in days.
func TestAgeText(t *testing.T) {
	for d, want := range map[time.Duration]string{7 * 24 * time.Hour: "7d", 2 * time.Minute: "2m0s", 36 * time.Hour: "36h0m0s"} {
		if got := ageText(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
