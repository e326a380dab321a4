package counting

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/internal/nodetest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks/check"
)

// killedMember is the key of a member that answers nothing any more: it says that it has all
// shards.
func killedMember(like Node, name string) []byte {
	m := like.Serving().same
	m.Node, m.Session, m.Weight, m.Epoch, m.Routes = name, "killed", 0, 1, false
	for s := range pipeline.Shard(nodetest.Shards) {
		m.Ready.Add(s)
	}
	value, err := m.Encode()
	if err != nil {
		panic(err)
	}
	return value
}

// A shard of which there is no other copy is not dropped where EVENTS lacks its
// beginning: neither when it is found to differ, nor when it is given up.
func TestOnlyCopyIsKept(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.With("a", func(*config.Config) {})
	f.Publish(50)
	f.Until("all likes", func() bool { return f.Likes(50, 1) })
	if err := natstest.Stream(t, f.NC, jetlog.EventsStream).Purge(t.Context(), jetstream.WithPurgeSequence(11)); err != nil {
		t.Fatal(err)
	}
	g, s := n.Serving(), pipeline.ShardOf(5, nodetest.Shards)
	if err := g.distrust(t.Context(), s, []uint64{5}, time.Now()); !errors.Is(err, errOnlyCopy) ||
		len(g.audits.renewed) != 0 {
		t.Errorf("it says %v, %v", err, g.audits.renewed)
	}
	g.renew(s, nil)
	f.Until("it says so", func() bool { return f.Log.Has("are not given up") && f.Log.Has("begins with message 11") })
	f.Until("all likes", func() bool { return g.sinks.Whole() && f.Likes(50, 1) })
}

// A shard is taken again only where it is known that what others counted is by
// today's rules; the audit ends when it is not.
func TestNotKnownIsNotNow(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	two := func(c *config.Config) { c.Cluster.Replicas = 2 }
	a := f.With("a", func(c *config.Config) {
		two(c)
		c.Audit.Rate, c.Audit.Sample = 1_000_000, "1/1"
	})
	b := f.With("b", two)
	f.Publish(50)
	f.Until("copies", func() bool { return a.Serving().sinks.Whole() && b.Serving().sinks.Whole() && f.Likes(50, 1) })
	f.Put("member.c", killedMember(b, "c")) // it answers nothing
	f.Until("it is seen", func() bool { _, there := a.Serving().View().Member("c"); return there })
	g, s := a.Serving(), pipeline.ShardOf(42, nodetest.Shards)
	if err := g.distrust(t.Context(), s, []uint64{42}, time.Now()); err == nil ||
		!strings.Contains(err.Error(), "node c does not say") || len(g.audits.renewed) != 0 {
		t.Errorf("it says %v, %v", err, g.audits.renewed)
	}
	g.audits.mu.Lock()
	g.audits.stop = nil // of the node's own
	g.audits.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.audit(g.ctx)
	}()
	f.Until("it has begun", func() bool {
		g.audits.mu.Lock()
		defer g.audits.mu.Unlock()
		return g.audits.stop != nil
	})
	g.setMixed()
	select {
	case <-ended:
	case <-time.After(e2e.Patience):
		t.Error("the audit goes on")
	}
	if err := g.distrust(t.Context(), s, []uint64{42}, time.Now()); !errors.Is(err, errMixed) {
		t.Errorf("it says %v", err)
	}
}

// What is done to a shard that differs, of one node: it is not derived from what is about to
// be dropped. docs/contract.md: "has shards that differ be taken again by itself": a second
// comparison that finds it while it is taken again does not call it a bug; nor does one that
// began before it was there again. A job ends with what it compares.
func TestRenewals(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.Start("a")
	f.Publish(50)
	f.Until("all likes", func() bool { return f.Likes(50, 1) })
	g, s := n.Serving(), pipeline.ShardOf(42, nodetest.Shards)
	t.Run("a shard that is given up is leaving", func(t *testing.T) { givenUpIsLeaving(t, f, g, s) })
	t.Run("found by two", func(t *testing.T) { foundByTwo(t, g, s) })
	t.Run("a job ends with the generation", func(t *testing.T) { checksEnd(t, g) }) // the last one
}

func givenUpIsLeaving(t *testing.T, f *fleet, g *Generation, s pipeline.Shard) {
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	var open atomic.Bool // to be derived from what is stored
	go func() {
		defer close(ended)
		for ; ctx.Err() == nil; runtime.Gosched() {
			h := &g.holdings
			h.mu.Lock()
			stored, held := g.store.Stack(s).Stored(), g.heldNow()
			if stored && !held.Has(s) && h.moves[s] == nil && !h.derived.Has(s) && !h.leaving.Has(s) {
				open.Store(true)
			}
			h.mu.Unlock()
		}
	}()
	for i := range 4 {
		g.renew(s, nil)
		f.Until("it is given up", func() bool {
			g.holdings.mu.Lock()
			defer g.holdings.mu.Unlock()
			return len(g.audits.due) == 0 && !g.holdings.leaving.Has(s)
		})
		f.Until("it has come again", func() bool { return g.sinks.Whole() })
		if !f.Likes(50, 1) {
			t.Fatalf("after %d times: %s", i+1, f.Like(42))
		}
	}
	stop()
	if <-ended; open.Load() {
		t.Error("between Release and Drop it could be derived from what is dropped")
	}
}

func foundByTwo(t *testing.T, g *Generation, s pipeline.Shard) {
	if err := g.audits.first(s); err != nil {
		t.Fatal(err)
	}
	renewing := func(is bool) {
		g.holdings.mu.Lock()
		defer g.holdings.mu.Unlock()
		if is {
			g.audits.wrong = map[pipeline.Shard][]string{s: nil}
		} else {
			g.audits.endLocked(s)
		}
	}
	renewing(true)
	amid := time.Now()
	if err := g.distrust(t.Context(), s, []uint64{42}, amid); err != nil {
		t.Errorf("while it is taken again: %v", err)
	}
	renewing(false)
	if err := g.distrust(t.Context(), s, []uint64{42}, amid); err != nil {
		t.Errorf("found before it was there again: %v", err)
	}
	r, err := g.audits.Run(t.Context(), check.Task{IDs: []uint64{42}, Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.distrust(t.Context(), s, []uint64{42}, r.Shards[s].Since); err == nil ||
		!strings.Contains(err.Error(), "less than an hour ago") {
		t.Errorf("it differs again: %v", err)
	}
}

func checksEnd(t *testing.T, g *Generation) {
	begun, ended := make(chan struct{}), make(chan error)
	go func() {
		_, err := g.whileOpen(t.Context(), func(ctx context.Context) (any, error) {
			close(begun)
			<-ctx.Done()
			return nil, ctx.Err()
		})
		ended <- err
	}()
	<-begun
	g.cancel()
	select {
	case err := <-ended:
		if e, ok := errors.AsType[*job.Error](err); !ok || e.Code != job.CodeGone {
			t.Errorf("it says %v", err)
		}
	case <-time.After(e2e.Patience):
		t.Fatal("it goes on")
	}
}
