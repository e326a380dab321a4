package kit

import (
	"context"
	"time"
)

// started is where sinceStart begins.
var started = time.Now()

// sinceStart is the clock of a system without a better one. The wall clock goes on during a
// suspension, and the monotonic one does not go back: the later of the two counts.
func sinceStart() time.Duration {
	now := time.Now()
	return max(now.Sub(started), now.Round(0).Sub(started.Round(0)))
}

// Sleep waits so long, or until ctx ends: then it returns ctx's error.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}
