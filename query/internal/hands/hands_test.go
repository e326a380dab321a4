package hands

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Every work is done once, however many there are at a time; no more goroutines than
// said are kept, and none once the context has ended; what comes then is done too.
func TestHands(t *testing.T) {
	const idle, works = 3, 200
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h := New(ctx, idle)
	kept := func(what string, want int) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); len(h.idle) != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %d goroutines wait, want %d", what, len(h.idle), want)
			}
		}
	}
	var done atomic.Int64
	burst := func() {
		var all sync.WaitGroup
		begin := make(chan struct{})
		for range works {
			all.Add(1)
			h.Do(func() {
				defer all.Done()
				<-begin // all are under way at once: nobody waits for a goroutine
				done.Add(1)
			})
		}
		close(begin)
		all.Wait()
	}
	burst()
	kept("after a burst", idle)
	burst()
	kept("after another", idle)
	cancel()
	kept("when it has ended", 0)
	burst()
	kept("and after a burst", 0)
	if got := done.Load(); got != 3*works {
		t.Errorf("%d works were done, want %d", got, 3*works)
	}
}
