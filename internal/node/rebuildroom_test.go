package node

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/internal/nodetest"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
	"github.com/tidemark-io/tidemark/query/spread"
)

// noRebuild asks for one, which must be refused before anything has started.
func (f *fleet) noRebuild(n *Node, words ...string) {
	f.T.Helper()
	counting, err := fans(n.config).Counting()
	if err != nil {
		f.T.Fatal(err)
	}
	err = f.rebuild(RebuildVerb, f.confirmed(RebuildAsk{Counting: counting}), nil)
	if err == nil {
		f.T.Fatal("it begins")
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			f.T.Errorf("it does not say %q: %v", word, err)
		}
	}
	if s := f.record(); s.Newest != 1 || n.rebuilds.set().Newest != 1 {
		f.T.Errorf("the record is %+v", s)
	}
	if _, err := f.JetStream().Stream(f.T.Context(), "DELTAS2"); err == nil {
		f.T.Error("DELTAS2 is there")
	}
}

// "A rebuild for which there is too little memory or disk is refused
// before it starts, with the numbers": the streams of others have reserved what the
// server stores.
func TestRebuildNeedsRoomOnTheServer(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.Start("a")
	f.Publish(20)
	f.Until("all likes", func() bool { return f.Likes(20, 1) })
	others := jetstream.StreamConfig{Name: "OTHERS", Subjects: []string{"others"}, MaxBytes: 1<<40 - 24<<30} // and DELTAS2 has 4 GiB
	if _, err := f.JetStream().CreateStream(t.Context(), others); err != nil {
		t.Fatal(err)
	}
	f.noRebuild(n, "no rebuild was begun", "DELTAS2 of 4096 MiB", "no room", "5 streams have reserved", "max_bytes")
	if err := f.JetStream().DeleteStream(t.Context(), others.Name); err != nil {
		t.Fatal(err)
	}
	f.begin(fans(n.config), false)
	f.serves(2, n)
}

// The same where it is the account that may not store so much, or have one stream more.
func TestRebuildNeedsRoomInTheAccount(t *testing.T) {
	t.Parallel()
	for limit, words := range map[string][]string{
		"max_file: 22GB":                {"reserved 21520 MiB of the 22528 MiB"},
		"max_file: 1TB, max_streams: 4": {"4 streams have reserved", "may have 4 streams"},
	} {
		server := natstest.NewOutside(t, fmt.Sprintf("accounts {T {jetstream {max_mem: 1MB, %s}, users [{user: t, password: t}]}}\nno_auth_user: t\n", limit))
		nc, err := nats.Connect(server.URL(), nats.Timeout(e2e.Patience))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		f := &fleet{nodetest.FleetOn(t, nc, server.URL(), startInFleet)}
		n := f.Start("a")
		f.Publish(5)
		f.Until("all likes", func() bool { return f.Likes(5, 1) })
		f.noRebuild(n, append(words, "no rebuild was begun", "DELTAS2 of 4096 MiB")...)
		f.Stop(n)
	}
}

// A generation that nobody remembers has left its windows: the next one has a number that
// none ever had, and finds the slot empty.
func TestRebuildAfterOneThatNobodyRemembers(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.Start("a")
	f.Publish(20)
	f.Until("all likes", func() bool { return f.Likes(20, 1) })
	o := n.Serving().StreamOptions()
	o.Slot, o.Generation = 1, jetlog.Owner{Number: 7}
	f.Stop(n) // a leader may take what is left for a reservation, before it has a window
	if err := jetlog.Reserve(t.Context(), f.NC, o); err != nil {
		t.Fatal(err)
	}
	left, err := f.JetStream().Stream(t.Context(), o.Slot.Deltas())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.JetStream().Publish(t.Context(), left.CachedInfo().Config.Subjects[0], []byte("a window")); err != nil {
		t.Fatal(err)
	}
	n = f.Start("a")
	if got := f.begin(fans(n.config), false); got != 8 {
		t.Errorf("generation %d is building", got)
	}
	f.serves(8, n)
	if is, err := jetlog.SlotOf(t.Context(), f.JetStream(), 1); err != nil || is.Number != 8 || !f.Log.Has("no node and no record knows of it") {
		t.Errorf("DELTAS2 is of %v: %v", is, err)
	}
	f.Until("all fans", f.Has("post", "fans", 7, 1))
}

// waiting starts a node that is to wait, and returns what it says at /readyz. end stops it.
func (f *fleet) waiting(c *config.Config, words string) (end func()) {
	f.T.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.T.Fatal(err)
	}
	c.HTTP.Listen = free.Addr().String()
	free.Close()
	ctx, cancel := context.WithCancel(f.T.Context())
	over := make(chan error, 1)
	go func() {
		n, err := Start(ctx, c, Options{Version: "test", Processors: 2, Logger: f.Logger()})
		if err == nil {
			n.Close()
		}
		over <- err
	}()
	end = func() {
		f.T.Helper()
		cancel()
		if err := <-over; err == nil {
			f.T.Error("it has started")
		}
	}
	f.Until("it says why it waits", func() bool {
		reply, err := http.Get("http://" + c.HTTP.Listen + "/readyz")
		if err != nil {
			return false
		}
		defer reply.Body.Close()
		body, _ := io.ReadAll(reply.Body)
		return reply.StatusCode == http.StatusServiceUnavailable && strings.Contains(string(body), words) && strings.Contains(string(body), "tidemark repair --record")
	})
	return end
}

// Where everything is lost but the streams of a later generation, a start waits, is not
// ready, and says what to do; one command has it start.
func TestStartWhereNobodyRemembers(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Dirs["a"] = t.TempDir()
	c := f.Plain("a")
	o := jetlog.StreamOptions{Deltas: jetlog.Limits{BytesMax: int64(c.NATS.Streams.Deltas.MaxBytes)}, Generation: jetlog.Owner{Number: 3}}
	if err := jetlog.Reserve(t.Context(), f.NC, o); err != nil {
		t.Fatal(err)
	}
	f.waiting(c, "are of generation 3")()
	if err := Repair(f.Plain("a"), RepairOptions{Record: true, Logger: f.Logger()}); err != nil {
		t.Fatal(err)
	}
	n := f.Start("a")
	f.Publish(20)
	f.Until("all likes", func() bool { return f.Likes(20, 1) })
	f.Stop(n)
}

// A slot is not cleared for a number that another leader has given in between.
func TestSlotIsNotClearedForALaterOne(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Edit = func(c *config.Config) { c.Rebuild.Keep = 0 }
	n := f.rebuilt("a")
	f.Until("the first is dropped", func() bool { return n.rebuilds.set().Kept == 0 })
	if _, err := n.clearSlot(t.Context(), 0, 1); err == nil || !strings.Contains(err.Error(), "generation 2 has begun meanwhile") {
		t.Errorf("generation 2 has begun: %v", err)
	}
	if free, err := n.clearSlot(t.Context(), 0, 2); err != nil || free != 3 {
		t.Errorf("generation %d may begin: %v", free, err)
	}
}

// What was reserved for a rebuild that another leader was faster with goes; what is
// another's stays.
func TestReservedIsGivenBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.Start("a")
	o := n.Serving().StreamOptions()
	o.Slot, o.Generation = 1, jetlog.Owner{Number: 3}
	if err := jetlog.Reserve(t.Context(), f.NC, o); err != nil {
		t.Fatal(err)
	}
	of := func() generations.Number {
		is, err := jetlog.SlotOf(t.Context(), f.JetStream(), 1)
		if err != nil {
			t.Fatal(err)
		}
		return is.Number
	}
	give := func(number generations.Number) {
		n.rebuilds.leader.mine.Lock()
		defer n.rebuilds.leader.mine.Unlock()
		n.unreserve(1, number)
		n.rebuilds.leader.tidied.Store(n.rebuilds.set().Epoch) // tidySlot is not what this is about
	}
	if give(2); of() != 3 {
		t.Errorf("it is of generation %d", of())
	}
	if give(3); of() != 0 {
		t.Errorf("it is of generation %d", of())
	}
	f.Publish(20)
	f.begin(fans(n.config), false)
	f.serves(2, n)
	if give(2); of() != 2 {
		t.Errorf("it is of generation %d", of())
	}
}

// A leader that is killed after it has reserved the room, and before the rebuild has
// begun, leaves it to the next one to give it back: after its start, and when it comes to
// lead again. What has windows, or another number, is not what was reserved.
func TestReservedByOneThatWasKilled(t *testing.T) {
	f := newFleet(t)
	n := f.Start("a")
	f.Publish(20)
	f.Until("all likes", func() bool { return f.Likes(20, 1) })
	o := n.Serving().StreamOptions()
	o.Slot = 1
	reserve := func(number generations.Number) {
		t.Helper()
		o.Generation = jetlog.Owner{Number: number}
		if err := jetlog.Reserve(t.Context(), f.NC, o); err != nil {
			t.Fatal(err)
		}
	}
	there := func() bool {
		is, err := jetlog.SlotOf(t.Context(), f.JetStream(), 1)
		if err != nil {
			t.Fatal(err)
		}
		return is != (jetlog.Owner{})
	}
	f.Until("it has looked", func() bool { return n.rebuilds.leader.tidied.Load() == 1 })
	reserve(2)
	lead := &n.Serving().Inside().Router.Stats.Active
	lead.Store(false) // as if another node had led for a while
	time.Sleep(4 * leadEvery)
	if !there() {
		t.Error("a node that does not lead has removed it")
	}
	// Where the server does not answer as it should it is not asked each time that the
	// leader looks.
	l, tried := &n.rebuilds.leader, 0
	broken, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10 {
		l.leaves("")
		n.tidySlot(broken, n.rebuilds.set())
		if l.left != "" {
			tried++
		}
	}
	if tried != 1 {
		t.Errorf("the server is asked %d times of 10", tried)
	}
	lead.Store(true)
	f.Until("the next leader gives it back", func() bool { return !there() })

	f.Stop(n)
	reserve(2)
	n = f.Start("a")
	f.Until("it is given back after the start", func() bool { return !there() })
	f.Stop(n)

	reserve(2)
	if _, err := f.JetStream().Publish(t.Context(), f.subjectOf("DELTAS2"), []byte("a window")); err != nil {
		t.Fatal(err)
	}
	n = f.Start("a")
	f.Until("it has looked", func() bool { return n.rebuilds.leader.tidied.Load() == 1 })
	if !there() {
		t.Error("what was counted by a generation that the record has lost is removed")
	}
}

func (f *fleet) subjectOf(stream string) string {
	f.T.Helper()
	s, err := f.JetStream().Stream(f.T.Context(), stream)
	if err != nil {
		f.T.Fatal(err)
	}
	return s.CachedInfo().Config.Subjects[0]
}

// A process that only answers, of a version that knows of no generations, finds no node
// that says what the first one counts once that no longer serves.
func TestKeptIsNotAnsweredByEarlierVersions(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.rebuilt("a")
	ask := func(of generations.Number) error {
		ctx, cancel := context.WithTimeout(t.Context(), e2e.Patience)
		defer cancel()
		_, err := spread.AskCounted(ctx, f.NC, "a", of)
		return err
	}
	if err := ask(1); err == nil || !strings.Contains(err.Error(), "generation 1 does not serve any more") {
		t.Errorf("it is told: %v", err)
	}
	if err := ask(2); err != nil {
		t.Error(err)
	}
	f.Until("there is one to go back to", func() bool { return f.rebuild(RebuildBackVerb, struct{}{}, nil) == nil })
	f.Until("generation 1 is told again", func() bool { return ask(1) == nil && ask(2) != nil })
}

// What a rebuild waits for is said, by node: also the leader that would drop what is kept.
func TestKeptSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Edit = func(c *config.Config) { c.Cluster.Replicas, c.Rebuild.Keep = 2, 0 }
	a, b := f.Start("a"), f.Start("b")
	f.Publish(20)
	f.Until("all on both", func() bool { return holdsAll(a) && holdsAll(b) })
	f.begin(fans(a.config), true)
	f.serves(2, a, b)
	f.Until("nothing is waited for", func() bool { s := f.status(); return s.Kept == 1 && s.Why == "" })
	f.Stop(b)
	f.Until("it says so", func() bool {
		return strings.Contains(f.status().Why, "generation 1 is kept until all have the one that serves: node b, which is to hold 8 shards, is away")
	})
	time.Sleep(keepMin)
	if s := f.status(); s.Kept != 1 {
		t.Errorf("it is dropped: %+v", s)
	}
	withFans := func(c *config.Config) { *c = *fans(c); c.Cluster.Replicas, c.Rebuild.Keep = 2, 0 }
	f.Edit = withFans
	b = f.Start("b")
	f.Until("it is dropped", func() bool { s := f.status(); return s.Kept == 0 && s.Why == "" })
}

// It is reported which node keeps what is left on the server from being removed.
func TestLeftOverSaysWhoUsesIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.Start("a")
	f.Publish(20)
	f.Until("all likes", func() bool { return f.Likes(20, 1) })
	f.begin(fans(n.config), false)
	member := n.Serving().Inside().Same
	member.Node, member.Session = "c", "cut off"
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	keys := f.Bucket()
	work.Go(func() {
		for i := uint64(0); ctx.Err() == nil; i++ {
			member.LagMS = int64(i)
			if value, err := member.Encode(); err == nil {
				_, _ = keys.Put(ctx, "2.member.c", value)
			}
			time.Sleep(bucket.MemberBeat)
		}
	})
	if err := f.rebuild(RebuildAbortVerb, struct{}{}, nil); err != nil {
		t.Fatal(err)
	}
	f.Until("it says so", func() bool {
		s := f.status()
		return s.State == generations.Aborted && strings.Contains(s.Why, "it was told to; what a generation has left on the server is not removed yet: nodes have the generation before still open: c")
	})
	stop()
	f.Until("it is removed", func() bool { return f.status().Why == "it was told to" })
}
