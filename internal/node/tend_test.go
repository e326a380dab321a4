package node

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// A server that hangs, as nats-server does where a purge meets a disk that is just full,
// ends the process: only a new one helps. One that is slow does not.
func TestServerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n := &Node{log: slog.New(slog.DiscardHandler), ctx: ctx, failed: make(chan struct{})}
		looks, hung := 0, make(chan struct{})
		go n.tend(func() error {
			if looks++; looks == 3 {
				<-hung
				return nil
			}
			time.Sleep(hangLooks * tendEvery / 2)
			return nil
		})
		time.Sleep(2 * hangLooks * tendEvery)
		synctest.Wait()
		if err := n.Failure(); err != nil || looks != 3 {
			t.Fatalf("after %d looks: %v", looks, err)
		}
		time.Sleep(hangLooks * tendEvery)
		synctest.Wait()
		if err := n.Failure(); !errors.Is(err, errServerHangs) {
			t.Errorf("%v", err)
		}
		close(hung)
	})
}
