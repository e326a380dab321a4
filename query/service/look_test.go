package service

import (
	"context"
	"sync"
	"testing"
	"time"
)

// A crowd does not wait for the time of the next look, unless looks fail.
func TestLookSooner(t *testing.T) {
	for _, fails := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		looks := make(chan struct{}, 1)
		e := newLogEnd(ctx, func(context.Context) (uint64, error) {
			looks <- struct{}{}
			return 7, nil
		}, func(f func()) bool { work.Go(f); return true })
		e.next, e.failed = time.Now().Add(time.Hour), fails
		var found sync.WaitGroup
		for range lookSooner {
			found.Add(1)
			e.await(7, func(error) { found.Done() })
		}
		if fails {
			time.Sleep(20 * time.Millisecond)
			cancel()
			work.Wait()
			if len(looks) != 0 {
				t.Error("a log that does not answer is asked sooner")
			}
			continue
		}
		<-looks
		found.Wait()
		cancel()
		work.Wait()
	}
}
