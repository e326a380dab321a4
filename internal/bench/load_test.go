package main

import (
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
)

// More threads that compute than there are processors must wait for them.
func TestWaitedForAProcessor(t *testing.T) {
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		t.Skip("the system does not tell:", err)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2*runtime.NumCPU() + 2))
	before := waited(os.Getpid())
	var work sync.WaitGroup
	end := time.Now().Add(200 * time.Millisecond)
	for range runtime.GOMAXPROCS(0) {
		work.Go(func() {
			for time.Now().Before(end) {
			}
		})
	}
	work.Wait()
	if got := waited(os.Getpid()) - before; got < 20*time.Millisecond {
		t.Errorf("twice as many threads as processors computed for 200 ms and waited for one for %v", got)
	}
}
