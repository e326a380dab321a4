package node

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/nodetest"
	"github.com/tidemark-io/tidemark/pipeline"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// refused publishes events that become dead letters.
func (f *fleet) refused(n int) {
	f.T.Helper()
	for i := range n {
		if _, err := f.NC.Request("events.like", fmt.Appendf(nil, `{"actor":0,"post":%d}`, i), e2e.Patience); err != nil {
			f.T.Fatal(err)
		}
	}
}

func (f *fleet) settledLetters(n *Node) {
	f.T.Helper()
	f.Until("no dead letters are owed", func() bool { s := n.rebuilds.set(); return s.All[s.Serving].Letters == 0 })
}

// "--back" is one step, and so is going forward again; the one that is kept goes on
// counting. An aborted rebuild leaves nothing, and places are used again. Dead letters
// come exactly once over all of it.
func TestBackAndForward(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.Start("a")
	plain := n.config
	asker := f.asks(5)
	letters := 0
	step := func(serving generations.Number, likes int) {
		t.Helper()
		f.serves(serving, n)
		f.refused(2)
		letters += 2
		f.Publish(20)
		f.Until("all likes", func() bool { return f.Likes(20, likes) })
		if has := f.Has("post", "fans", 7, likes)(); has != (serving%2 == 0) {
			t.Errorf("generation %d: fans are there: %v: %s", serving, has, f.Get("post", "fans", 7))
		}
		f.settledLetters(n)
	}
	step(1, 1)
	f.begin(fans(plain), false)
	step(2, 2)
	for i, serving := range []generations.Number{1, 2, 1, 2} {
		var s RebuildStatus
		f.Until("there is one to go back to", func() bool { return f.rebuild(RebuildBackVerb, struct{}{}, &s) == nil })
		if s.Serving != serving {
			t.Fatalf("%+v", s)
		}
		step(serving, 3+i)
	}
	if got := f.begin(plain, false); got != 3 {
		t.Errorf("generation %d is building", got)
	}
	n.shared.Turns.Take() // so it does not come to its end yet
	f.Until("it is open", func() bool { b := n.rebuilds.beside.Load(); return b != nil && b.Number == 3 })
	err := f.rebuild(RebuildAbortVerb, struct{}{}, nil)
	n.shared.Turns.Give()
	if err != nil {
		t.Fatal(err)
	}
	n.rebuilds.leader.say(3, "it waits: shards 0-7 were compared by no node") // of what is no more, until it looks again
	if s := f.status(); s.State != generations.Aborted || s.Building != 0 || s.Serving != 2 || !strings.HasPrefix(s.Why, "it was told to") || strings.Contains(s.Why, "it waits") {
		t.Errorf("%+v", s)
	}
	f.Until("nothing of it is left", func() bool { return !f.has3("a") })
	if err := f.rebuild(RebuildAbortVerb, struct{}{}, nil); err == nil || !strings.Contains(err.Error(), generations.ErrNone.Error()) {
		t.Errorf("aborted twice: %v", err)
	}
	if err := f.rebuild(RebuildBackVerb, struct{}{}, nil); err == nil || !strings.Contains(err.Error(), generations.ErrKept.Error()) {
		t.Errorf("back to nothing: %v", err)
	}
	if got := f.begin(fans(plain), false); got != 4 {
		t.Errorf("generation %d is building", got)
	}
	step(4, 7)
	asker.end()
	f.letters(letters)
}

// unaudited leaves what differs alone.
func unaudited(c *config.Config) { c.Audit.Rate = 0 }

// docs/contract.md: "One that differs serves only with `--accept`".
func TestRebuildDiffers(t *testing.T) {
	t.Parallel()
	for _, then := range []string{RebuildAcceptVerb, RebuildAbortVerb} {
		t.Run(then, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			n := f.Start("a")
			f.Publish(30)
			f.Until("all likes", func() bool { return f.Likes(30, 1) })
			f.Stop(n)
			f.Plant(7, "a")
			f.Edit = unaudited
			n = f.Start("a")
			if err := f.rebuild(RebuildVerb, RebuildAsk{}, nil); err != nil {
				t.Fatal(err)
			}
			f.Until("it waits", func() bool { return f.status().Waits })
			s := f.status()
			if s.Differs == 0 || s.State != generations.Comparing || !strings.Contains(s.Why, "generation 1 differs from the log") || len(s.Examples) == 0 {
				t.Errorf("%+v", s)
			}
			time.Sleep(4 * leadEvery)
			if n.Serving().Number != 1 || !f.Has("post", "like", 7, 3)() {
				t.Errorf("generation %d serves", n.Serving().Number)
			}
			if err := f.rebuild(then, struct{}{}, nil); err != nil {
				t.Fatal(err)
			}
			if then == RebuildAbortVerb {
				f.Until("nothing of it is left", func() bool { return len(f.stored("a")) == 1 && n.rebuilds.beside.Load() == nil })
				if !f.Has("post", "like", 7, 3)() {
					t.Error(f.Get("post", "like", 7))
				}
				return
			}
			f.serves(2, n)
			f.Until("what the log says", f.Has("post", "like", 7, 2))
		})
	}
}

// What is accepted amid the comparison is compared to its end, and not from its beginning.
func TestAcceptAmidTheComparison(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Edit = func(c *config.Config) { c.Audit.Rate = 0 }
	n := f.Start("a")
	f.Publish(20)
	f.Until("all likes", func() bool { return f.Likes(20, 1) })
	auditor, goOn := n.Serving().Inside().Auditor, make(chan struct{})
	reached, open := make(chan struct{}, 2), auditor.Open
	auditor.Open = func(ctx context.Context, from pipeline.Position) (pipeline.Source, error) {
		reached <- struct{}{}
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		return open(ctx, from)
	}
	f.begin(fans(n.config), false)
	<-reached
	if err := f.rebuild(RebuildAcceptVerb, struct{}{}, nil); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * leadEvery) // in which it would end
	close(goOn)
	f.serves(2, n)
	if s := f.record(); !s.Compared || !s.Accept || len(reached) > 0 || strings.Count(f.Log.String(), "both are compared with the log") != 1 {
		t.Errorf("it has begun again: compared %v, accepted %v, epoch %d", s.Compared, s.Accept, s.Epoch)
	}
}

// A node that is closed in the midst of anything closes.
func TestCloseAmidRebuild(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes long")
	}
	t.Parallel()
	f := newFleet(t)
	f.Edit = func(c *config.Config) {
		c.Router.LeaseRenew, c.Router.LeaseExpiry = 50*time.Millisecond, 200*time.Millisecond
	}
	n := f.Start("a")
	f.Publish(30)
	f.Until("all likes", func() bool { return f.Likes(30, 1) })
	plain := n.config
	number := n.rebuilds.set().Serving
	// More rounds, each for longer, until a rebuild has come to its end.
	const rounds, roundsMax = 12, 20
	most := 2500 // ms that a round goes on
	for i := 0; i < rounds || i < roundsMax && number == 1; i++ {
		if i >= rounds {
			most *= 2
		}
		by := plain
		if i%2 == 0 {
			by = fans(plain)
		}
		counting, err := by.Counting()
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = f.rebuild(RebuildVerb, f.confirmed(RebuildAsk{Counting: counting}), nil) }()
		time.Sleep(time.Duration(rand.IntN(most)) * time.Millisecond)
		if err := n.Close(); err != nil {
			t.Errorf("closing fails: %v", err)
		}
		number = max(number, n.rebuilds.set().Serving)
		for _, edit := range []func(*config.Config){func(*config.Config) {}, withFans} {
			c := nodetest.EachLikeCounts()
			c.Node, c.DataDir, c.NATS.URL, c.HTTP.Listen, c.Shards = "a", f.Dirs["a"], f.URL, "", nodetest.Shards
			f.Edit(c)
			edit(c)
			n, err = Start(t.Context(), c, Options{Version: "test", Processors: 2, Logger: slog.New(slog.NewTextHandler(&f.Log, nil))})
			if err == nil {
				break
			}
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, f.Log.String())
		}
		t.Cleanup(func() { n.Close() })
		f.Until("all likes", func() bool { return f.Likes(30, 1) })
	}
	if number == 1 {
		t.Error("no rebuild ever came to its end")
	}
}

// Each role alone: the node that routes leads, the one that holds counts, the one that
// answers switches.
func TestRebuildWithRolesApart(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	start := func(name, role string) *Node {
		f.Edit = func(c *config.Config) { c.Roles = []string{role} }
		return f.Start(name)
	}
	h1, h2 := start("h1", config.RoleHold), start("h2", config.RoleHold)
	r := start("r", config.RoleRoute)
	a := start("a", config.RoleAnswer)
	f.Until("a part each", func() bool { return settled(h1, h2) })
	f.Publish(40)
	f.Until("all likes", func() bool { return f.Likes(40, 1) })
	asker := f.asks(5)
	f.begin(fans(h1.config), false)
	f.serves(2, h1, h2, r, a)
	f.Publish(40)
	f.Until("all fans", f.Has("post", "fans", 7, 2))
	f.Until("all likes", func() bool { return f.Likes(40, 2) })
	asker.end()
	f.Until("the one that routes is ready", func() bool { return r.Ready() == nil })
}

// "A generation that is building has `rebuild.memory`; the one that
// serves has the rest of `memory.budget`."
func TestRebuildSharesMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes long")
	}
	t.Parallel()
	f := newFleet(t)
	f.Edit = func(c *config.Config) { c.Rebuild.Keep = 0 }
	n := f.Start("a")
	c := n.config
	first := n.Serving()
	if got := first.Inside().Memory.Load(); got != int64(c.ShardBytes()) {
		t.Errorf("alone it has %d", got)
	}
	f.begin(fans(c), false)
	n.shared.Turns.Take() // so it does not come to its end yet
	f.Until("the second one is open, or nothing is", func() bool { return n.rebuilds.beside.Load() != nil || f.Log.Has("does not open") })
	second := n.rebuilds.beside.Load()
	if second == nil {
		n.shared.Turns.Give()
		t.Fatal(f.Log.String())
	}
	if first.Inside().Memory.Load()+second.Inside().Memory.Load() > int64(c.ShardBytes()) || second.Inside().Memory.Load() != int64(c.ShardBytesSecond()) {
		t.Errorf("of %d the one that serves has %d, the other %d", c.ShardBytes(), first.Inside().Memory.Load(), second.Inside().Memory.Load())
	}
	n.shared.Turns.Give()
	f.serves(2, n)
	f.Until("the shares are swapped", func() bool {
		return second.Inside().Memory.Load() == int64(c.ShardBytesBeside()) && first.Inside().Memory.Load() == int64(c.ShardBytesSecond())
	})
	f.Until("it has all, alone", func() bool { return second.Inside().Memory.Load() == int64(c.ShardBytes()) })
}

// The one that serves gives memory up as soon as there is a second one, also if that
// does not open, and may take it again when it is gone.
func TestRebuildTakesMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes long")
	}
	t.Parallel()
	f := newFleet(t)
	f.Edit = func(c *config.Config) {
		c.Memory.Budget = c.Memory.Budget - config.Size(c.ShardBytes()) + 40*config.MiB
		c.Rebuild.Memory = 36 * config.MiB
		c.Checkpoint.Interval = 100 * time.Millisecond
	}
	n := f.Start("a")
	f.Crowd(500)
	g := n.Serving()
	less := n.config.ShardBytesBeside()
	f.Until("much is in memory", func() bool { return n.Ready() == nil && g.Sinks().Resident() > less+less/4 })
	if err := os.WriteFile(filepath.Join(f.Dirs["a"], datadir.GenerationsDir), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.begin(fans(n.config), false)
	f.Until("it does with less", func() bool {
		f.Publish(20)
		return g.Sinks().Resident() <= less
	})
	if err := f.rebuild(RebuildAbortVerb, struct{}{}, nil); err != nil {
		t.Fatal(err)
	}
	// What it does with it is up to what is asked: see sinks.SetMemory.
	f.Until("it may have all again", func() bool { return int(g.Inside().Memory.Load()) == n.config.ShardBytes() })
}

// Dead letters come exactly once over a switch, however many are under way, and with
// whichever node routes which generation.
func TestLettersOverASwitch(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes long")
	}
	t.Parallel()
	f := newFleet(t)
	a, b := f.Start("a"), f.Start("b")
	f.Publish(20)
	f.Until("a part each", func() bool { return settled(a, b) })
	const publishers = 8 // more would be a test of the server's patience
	js, err := jetstream.New(f.NC)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var publishing sync.WaitGroup
	var published atomic.Int64
	for p := range publishers {
		publishing.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				event, id := fmt.Appendf(nil, `{"actor":0,"post":%d}`, n), jetstream.WithMsgID(fmt.Sprintf("%d of %d", n, p))
				for {
					_, err := js.Publish(context.Background(), "events.like", event, id)
					if err == nil {
						break
					}
					t.Logf("published again: %v", err)
					time.Sleep(100 * time.Millisecond)
				}
				published.Add(1)
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	defer func() { stop(); publishing.Wait() }()
	f.begin(fans(a.config), false)
	f.serves(2, a, b)
	for _, serving := range []generations.Number{1, 2, 1} {
		var s RebuildStatus
		f.Until("there is one to go back to", func() bool { return f.rebuild(RebuildBackVerb, struct{}{}, &s) == nil })
		f.serves(serving, a, b)
	}
	stop()
	publishing.Wait()
	letters := int(published.Load())
	f.Publish(1)
	f.settledLetters(a)
	f.Until("all is counted", func() bool { return f.Has("post", "like", 1, 2)() && a.Ready() == nil && b.Ready() == nil })
	deadLetters, err := js.Stream(t.Context(), jetlog.DeadLetterStream)
	if err != nil {
		t.Fatal(err)
	}
	f.Until("all letters are there", func() bool {
		info, err := deadLetters.Info(t.Context())
		return err == nil && info.State.Msgs >= uint64(letters)
	})
	time.Sleep(time.Second) // and no more
	f.letters(letters)
	t.Logf("%d letters", letters)
}

// What a generation has routed before it served, and nobody has stored, it stores when
// it comes to serve; then the record says that nothing is owed.
func TestOwedLetters(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.Start("a")
	f.refused(3)
	f.Publish(5)
	f.Until("all is counted", func() bool { return f.Likes(5, 1) })
	g := n.Serving()
	behind := g.Inside().Router.Stats.Position.Load()
	g.KeepLetters(false)
	f.refused(4)
	f.Publish(5)
	f.Until("all is counted", func() bool { return f.Likes(5, 2) })
	f.letters(3)
	_, err := n.changeRecord(t.Context(), func(s generations.Set) (generations.Set, error) {
		s.Epoch++
		s.All = map[generations.Number]generations.Generation{1: {Counting: s.All[1].Counting, Letters: behind}}
		return s, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	f.Until("it is known", func() bool { return n.rebuilds.set().Epoch > 1 })
	g.KeepLetters(true)
	f.settledLetters(n)
	f.letters(7)
	f.refused(2)
	f.Publish(5)
	f.Until("all is counted", func() bool { return f.Likes(5, 3) })
	f.letters(9)
}
