package pipeline

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// So many compute at once as there are turns, and with nil all of them.
func TestTurns(t *testing.T) {
	for _, most := range []int64{1, 3} {
		turns := NewTurns(int(most))
		var at, highest, done atomic.Int64
		var work sync.WaitGroup
		for range 8 {
			work.Go(func() {
				for range 200 {
					turns.Do(func() {
						now := at.Add(1)
						for was := highest.Load(); now > was && !highest.CompareAndSwap(was, now); was = highest.Load() {
						}
						for range 20 { // long enough for the others to come, if they could
							runtime.Gosched()
						}
						at.Add(-1)
						done.Add(1)
					})
				}
			})
		}
		work.Wait()
		if highest.Load() != most || done.Load() != 8*200 {
			t.Errorf("%d of %d were at work at once, %d in all", highest.Load(), most, done.Load())
		}
	}
	var free Turns
	inner := false
	free.Do(func() { free.Do(func() { free.Do(func() { inner = true }) }) })
	if !inner {
		t.Error("without a bound it waits")
	}
}
