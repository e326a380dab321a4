package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// It ends by itself, also where what hangs is what must be closed.
func TestCloseOfWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if err := closeWithin(time.Minute, func() error { time.Sleep(59 * time.Second); return nil }); err != nil {
			t.Error(err)
		}
		err := closeWithin(time.Minute, func() error { time.Sleep(2 * time.Minute); return nil })
		if err == nil || !strings.Contains(err.Error(), "not closed within 1m0s") {
			t.Error(err)
		}
		time.Sleep(time.Minute) // the bubble wants it to end
	})
}
