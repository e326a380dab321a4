package bucket_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

// renew is how often a lease is renewed whose end is waited for.
const renew = 50 * time.Millisecond

// lease is one whose holder is never taken for silent.
func (b *bench) lease(owner string) *bucket.Lease {
	b.Helper()
	return b.leaseFor(b.streams, bucket.LeaseOptions{Owner: owner, Renew: never / 40, Expiry: never})
}

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

func TestReleasedLeaseIsTakenAtOnce(t *testing.T) {
	b := newBench(t)
	held, release := b.acquire(b.lease("a"))
	release()
	release()
	if !errors.Is(context.Cause(held), context.Canceled) {
		t.Errorf("released, but held ended for %v", context.Cause(held))
	}
	begin := time.Now()
	b.acquire(b.lease("b"))
	if took := time.Since(begin); took >= never { // silence would have taken that long
		t.Errorf("it took %v", took)
	}
}

// The same owner after a crash does not wait for its own old lease.
func TestRestartedOwnerTakesItsLeaseAtOnce(t *testing.T) {
	b := newBench(t)
	old, _ := b.acquire(b.lease("a"))
	begin := time.Now()
	held, _ := b.acquire(b.lease("a"))
	if took := time.Since(begin); took >= never { // silence would have taken that long
		t.Errorf("it took %v", took)
	}
	<-old.Done()
	if !errors.Is(context.Cause(old), bucket.ErrLeaseLost) {
		t.Errorf("the old one ended for %v", context.Cause(old))
	}
	if held.Err() != nil {
		t.Error("the new one lost it")
	}
}

// A holder cut off from the server gives up before another takes over.
func TestSilentHolderIsReplaced(t *testing.T) {
	b := newBench(t)
	wire := natstest.NewWire(t, b.server)
	nc, err := jetlog.Connect(jetlog.ConnectOptions{URL: "nats://" + wire.Address()})
	b.must(err)
	t.Cleanup(nc.Close)
	streams, err := jetlog.OpenStreams(b.ctx, nc, natstest.Options())
	b.must(err)
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

// Somebody who writes the key again and again kept everybody from routing, for
// good. As long as windows come, or there is nothing to route, nobody minds.
func TestLeaseThatNobodyRoutesWith(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	kv, err := b.js.KeyValue(b.ctx, jetlog.Bucket)
	b.must(err)
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_, _ = kv.PutString(ctx, "router", `{"owner":"ghost","session":"x"}`)
			time.Sleep(renew)
		}
	}()
	defer func() { cancel(); <-done }()
	const expiry = 3 * renew // shorter than the others': it takes sixteen
	log := new(e2e.Lines)
	standby, err := bucket.NewLease(b.streams, bucket.LeaseOptions{Owner: "a", Renew: renew, Expiry: expiry, Logger: slog.New(slog.NewTextHandler(log, nil))})
	b.must(err)
	once := func(d time.Duration, meanwhile func()) error {
		for { // until the ghost has the lease
			if e, err := kv.Get(b.ctx, "router"); err == nil && strings.Contains(string(e.Value()), "ghost") {
				break
			}
			time.Sleep(renew)
		}
		ctx, cancel := context.WithTimeout(b.ctx, d)
		var others sync.WaitGroup
		defer others.Wait()
		defer cancel()
		others.Go(func() {
			for meanwhile != nil && ctx.Err() == nil {
				meanwhile()
				time.Sleep(renew)
			}
		})
		held, release, err := standby.Acquire(ctx)
		if err == nil {
			release()
			if !errors.Is(context.Cause(held), context.Canceled) {
				t.Errorf("released, and held ended for %v", context.Cause(held))
			}
		}
		return err
	}
	// On a busy machine the ghost is silent for an expiry, and then its lease is taken: that
	// says nothing of which node routes.
	within := func(d time.Duration, meanwhile func()) (err error) {
		for range 20 {
			taken := strings.Count(log.String(), "is silent, taking over")
			if err = once(d, meanwhile); strings.Count(log.String(), "is silent, taking over") == taken {
				break
			}
		}
		return err
	}
	b.publish(3)
	deltas := jetlog.NewDeltaLog(b.streams)
	_, err = deltas.Append(b.ctx, 0, window(0, pipeline.EndOf(3)))
	b.must(err)
	if err := within(20*expiry, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("there is nothing to route: %v", err)
	}
	last := uint64(1)
	to := pipeline.EndOf(3)
	if err := within(20*expiry, func() {
		if _, err := b.js.Publish(b.ctx, "events.like", nil); err != nil {
			return
		}
		if _, err := deltas.Append(b.ctx, last, window(to, to+1)); err == nil {
			last, to = last+1, to+1
		}
	}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("another one routes: %v", err)
	}
	if err := within(e2e.Patience, nil); err != nil {
		t.Errorf("nobody routes: %v", err)
	}
}

func TestLeaseEndsWithItsContext(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(b.ctx)
	held, release, err := b.lease("a").Acquire(ctx)
	b.must(err)
	cancel()
	<-held.Done()
	release()
	begin := time.Now()
	b.acquire(b.lease("b"))
	if took := time.Since(begin); took >= never { // silence would have taken that long
		t.Errorf("it took %v", took)
	}
}
