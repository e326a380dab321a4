package bucket_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

// renew is how often a lease is renewed whose end is waited for.
const renew = 50 * time.Millisecond

func (b *bench) leaseFor(s *jetlog.Streams, o bucket.LeaseOptions) *bucket.Lease {
	b.Helper()
	l, err := bucket.NewLease(s, o)
	b.must(err)
	return l
}

func (b *bench) acquire(l *bucket.Lease) (context.Context, func()) {
	b.Helper()
	held, release, err := l.Acquire(b.ctx)
	b.must(err)
	b.Cleanup(release)
	return held, release
}

// "Acquire blocks until the lease is this process's, or ctx ends."
func TestLeaseHasOneHolder(t *testing.T) {
	natstest.Long(t) // two expiries
	t.Parallel()
	const expiry = 4 * time.Second // a machine so slow that nothing is renewed for that long would be silent indeed
	b := newBench(t)
	lease := func(owner string) *bucket.Lease {
		return b.leaseFor(b.streams, bucket.LeaseOptions{Owner: owner, Renew: expiry / 8, Expiry: expiry})
	}
	first, second := lease("a"), lease("b")
	held, _ := b.acquire(first)
	ctx, cancel := context.WithTimeout(b.ctx, 2*expiry)
	defer cancel()
	if _, _, err := second.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a renewed lease was taken: %v", err)
	}
	if held.Err() != nil {
		t.Error("the holder lost it meanwhile")
	}
	if name, mine := first.Holder(); name != "a" || !mine {
		t.Errorf("the holder sees %q, %t", name, mine)
	}
	if name, mine := second.Holder(); name != "a" || mine {
		t.Errorf("the one standing by sees %q, %t", name, mine)
	}
}

// A holder cut off from the server gives up before another takes over.
func TestSilentHolderIsReplaced(t *testing.T) {
	b := newBench(t)
	streams, wire := b.streamsOnAWire()
	const expiry = 8 * renew
	held, _ := b.acquire(b.leaseFor(streams, bucket.LeaseOptions{Owner: "a", Renew: renew, Expiry: expiry}))

	wire.Stop() // both ways
	begin := time.Now()
	_, _ = b.acquire(b.leaseFor(b.streams, bucket.LeaseOptions{Owner: "b", Renew: renew, Expiry: expiry}))
	took := time.Since(begin)
	// The holder gives up first by its own clock; on a machine that is slow to
	// wake it, both may hold for a moment, and the delta log tells them apart.
	select {
	case <-held.Done():
	case <-time.After(e2e.Patience):
		t.Error("two hold the lease")
	}
	if !errors.Is(context.Cause(held), bucket.ErrLeaseLost) {
		t.Errorf("held ended for %v", context.Cause(held))
	}
	if took < expiry-renew {
		t.Errorf("taken over after %v, expiry is %v", took, expiry)
	}
}
