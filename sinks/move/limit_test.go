package move

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The slowest moves allowed (move_rate 64KiB, moves 64): each reads its export
// often enough that it is not closed over there, and together they keep the rate.
func TestSlowestMoves(t *testing.T) {
	const rate, moves, chunks = 64 << 10, 64, 5
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(rate)
		var all sync.WaitGroup
		var mu sync.Mutex
		var longest time.Duration
		bytes := int64(0)
		begun := time.Now()
		for range moves {
			all.Go(func() {
				for range chunks {
					n, since := l.Turn(), time.Now()
					if err := l.Wait(t.Context(), int(n)); err != nil {
						t.Error(err)
					}
					mu.Lock()
					bytes += n
					longest = max(longest, time.Since(since))
					mu.Unlock()
				}
			})
		}
		all.Wait()
		took := time.Since(begun)
		if longest > exportIdle*3/4 {
			t.Errorf("one waited for %v: its export is closed after %v", longest, exportIdle)
		}
		if is := float64(bytes) / took.Seconds(); is > rate*1.1 || is < rate/2 {
			t.Errorf("%.0f bytes/s together, %d allowed", is, rate)
		}
	})
	if n := NewLimiter(64 << 20).Turn(); n != chunkMax {
		t.Errorf("at the default rate %d bytes at a time", n)
	}
}
