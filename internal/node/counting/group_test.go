package counting

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/nodetest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/move"
)

// A shard that EVENTS can no longer bring does not keep others from coming that
// it could be derived with: wherever EVENTS begins, each that stands there comes.
func TestHopelessShardIsDerivedAlone(t *testing.T) {
	g := &Generation{Process: &Process{}, holdings: newHoldings()}
	c := nodetest.EachLikeCounts()
	schema, err := c.Schema()
	if err != nil {
		t.Fatal(err)
	}
	g.store, err = cold.Open(t.TempDir(), schema, cold.Options{Shards: nodetest.Shards, Node: "n", MemTableBytes: 8 << 20, BlockCache: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer g.store.Close()
	checkpoint := g.store.Begin()
	at := func(s pipeline.Shard) pipeline.Position { return pipeline.Position(5 * s % nodetest.Shards) } // 0: nothing
	for s := pipeline.Shard(1); s < nodetest.Shards; s++ {
		checkpoint.Shard(s).State(cold.State{Applied: at(s), Sequence: 1, Time: 1})
	}
	if err := checkpoint.Commit(); err != nil {
		t.Fatal(err)
	}
	for s := range pipeline.Shard(nodetest.Shards) {
		g.store.Stack(s).Publish()
	}
	for begins := range pipeline.Position(nodetest.Shards + 1) {
		var due []pipeline.Shard
		for s := range pipeline.Shard(nodetest.Shards) {
			due = append(due, s)
			g.holdings.moves[s] = &moving{}
		}
		tries := 0
		for ; slices.ContainsFunc(due, func(s pipeline.Shard) bool { return at(s) >= begins }); tries++ {
			if tries == 100 {
				t.Fatalf("EVENTS begins at %d: %v do not come", begins, due)
			}
			group := g.togetherLocked(due)
			if tries == 0 && len(group) != nodetest.Shards {
				t.Errorf("at first %v of %v are derived", group, due)
			}
			fails := slices.ContainsFunc(group, func(s pipeline.Shard) bool { return at(s) < begins })
			for _, s := range group {
				g.holdings.moves[s].faults++
			}
			if !fails {
				due = slices.DeleteFunc(due, func(s pipeline.Shard) bool { return slices.Contains(group, s) })
			}
		}
		if most := 5; tries > most {
			t.Errorf("EVENTS begins at %d: %d derivations, at most %d are needed", begins, tries, most)
		}
	}
}

// What comes from another node and is older than DELTAS is not held as it is: all
// shards would wait until it has caught up.
func TestLateShardIsDerived(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Edit = func(c *config.Config) { c.Checkpoint.Interval = 50 * time.Millisecond }
	a := f.Start("a")
	f.Publish(10)
	f.Until("all likes", func() bool { return f.Likes(10, 1) })
	f.Until("it is checkpointed", func() bool {
		_, last, err := a.Serving().deltas.Tail(t.Context())
		return err == nil && a.Serving().needs() >= last
	})
	schema, err := a.Serving().Config.Schema()
	if err != nil {
		t.Fatal(err)
	}
	old, err := cold.Open(t.TempDir(), schema, cold.Options{Shards: nodetest.Shards, Node: "old", MemTableBytes: 8 << 20, BlockCache: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := old.SetStreams(a.Serving().store.Meta().Streams); err != nil {
		t.Fatal(err)
	}
	if _, err := move.Fetch(t.Context(), f.NC, "a", old, 3, move.Options{}); err != nil {
		t.Fatal(err)
	}
	served, err := move.Serve(f.NC, "old", old, move.ServeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer served.Close()
	for likes := range 3 { // in several windows
		f.Publish(10)
		f.Until("all likes", func() bool { return f.Likes(10, 2+likes) })
	}
	_, last, err := a.Serving().deltas.Tail(t.Context())
	if err == nil {
		f.Until("a needs no more", func() bool { return a.Serving().needs() >= last })
		err = a.Serving().deltas.Purge(t.Context(), last)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Edit = func(c *config.Config) { c.Weight = 0 }
	b := f.Start("b").Serving()
	m := &moving{cancel: func() {}}
	f.Until("it is to be derived", func() bool {
		b.holdings.mu.Lock()
		b.holdings.moves[3] = m
		b.holdings.mu.Unlock()
		b.bring(t.Context(), 3, m, []string{"old"})
		b.holdings.mu.Lock()
		defer b.holdings.mu.Unlock()
		return m.foreign
	})
	if held := b.heldNow(); held.Len() > 0 {
		t.Errorf("it holds %v", held)
	}
	f.Until("it is said", func() bool { return f.Log.Has("DELTAS does not bring them on any more") })
	f.Until("all likes", func() bool { return f.Likes(10, 4) })
}

// A shard of which nothing is stored begins with the first window, beside others that
// are further, only where there are few windows: what is answered is as old as the
// oldest shard. Where nothing is stored there is nothing newer to answer.
func TestWholeLog(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Edit = func(c *config.Config) {
		c.Windows.Events, c.Checkpoint.Interval, c.NodeExpiry = 1, time.Hour, 3*time.Hour
	}
	a := f.Start("a")
	whole := func(likes int) bool {
		t.Helper()
		for post := range likes {
			if _, err := f.NC.Request("events.like", fmt.Appendf(nil, `{"actor":7,"post":%d,"author":9}`, post+1), e2e.Patience); err != nil {
				t.Fatal(err)
			}
		}
		f.Until("all windows are known", func() bool {
			_, last, err := a.Serving().deltas.Tail(t.Context())
			m, there := a.Serving().members.View().Member("a")
			return err == nil && a.Serving().observeStreams(t.Context()) == nil &&
				a.Serving().state.Load().Deltas.Last == last &&
				a.Serving().sinks.Applied().Sequence() == a.Serving().state.Load().Events.Last && there && m.Applied > 0
		})
		_, _, whole := a.Serving().old()
		return whole
	}
	if !whole(10) {
		t.Error("nothing is stored, and DELTAS has few windows")
	}
	if !whole(wholeWindowsMax) {
		t.Error("nothing is stored, and DELTAS has many windows")
	}
	if last := a.Serving().state.Load().Deltas.Last; last < wholeWindowsMax {
		t.Fatalf("there are %d windows", last)
	}
	f.Stop(a)
	a = f.Start("a")
	if whole(0) {
		t.Error("shards are stored, and DELTAS has many windows")
	}
}

// A derivation ends when one of its shards can be taken from elsewhere, and the next
// one goes on with the others at once.
func TestDerivationGoesOnWithTheOthers(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Edit = func(c *config.Config) { c.Weight = 0 }
	g := f.Start("a").Serving()
	h := &g.holdings
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.Until("it goes on with shard 2", func() bool { // unless what is not assigned is cleared between
		two := &moving{cancel: func() {}, pause: time.Hour}
		h.mu.Lock()
		h.stopDerived = func() {}
		h.derived.Add(1)
		h.derived.Add(2)
		h.moves[2] = two
		unwanted := h.unwantedLocked()
		h.mu.Unlock()
		g.derive(ctx, []pipeline.Shard{1, 2})
		h.mu.Lock()
		defer h.mu.Unlock()
		return unwanted && h.derived.Len() == 0 && h.moves[2] == two && two.fault == nil &&
			time.Since(two.failed) >= two.pause && !two.failed.IsZero()
	})
}
