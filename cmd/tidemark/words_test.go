package main

import (
	"strings"
	"testing"
	"time"
)

// A size in a sentence has a unit, however small it is.
func TestBytesText(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 bytes", 1: "1 byte", 252: "252 bytes", 1024: "1.0KiB", 3 << 20: "3.0MiB"} {
		if got := bytesText(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

// Of many that cannot be read some are named: the answer has them all.
func TestSomeAreNamed(t *testing.T) {
	ids := make([]string, missingNamed+1)
	for i := range ids {
		ids[i] = "7"
	}
	want := "the answer is not whole, these ids cannot be read now: 7" + strings.Repeat(", 7", missingNamed-1)
	if got := notWhole("ids", ids[1:]).Error(); got != want {
		t.Error(got)
	}
	if err := wholeOr("ids", nil, 2500*time.Millisecond); err == nil || !strings.Contains(err.Error(), "2500 ms old") {
		t.Errorf("a stale answer: %v", err)
	}
	if got := notWhole("ids", ids).Error(); got != want+" and 1 more" {
		t.Error(got)
	}
}
