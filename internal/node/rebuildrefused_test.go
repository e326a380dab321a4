package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/internal/nodetest"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// notBegun asks for a rebuild, which must be refused.
func (f *fleet) notBegun(what string, ask RebuildAsk, words ...string) {
	f.T.Helper()
	err := f.rebuild(RebuildVerb, ask, nil)
	if err == nil {
		f.T.Fatalf("%s: it begins", what)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			f.T.Errorf("%s: it does not say %q: %v", what, word, err)
		}
	}
}

// What cannot be is refused before anything has started, with the numbers. docs/contract.md:
// "What drops counters, columns or rules begins only as it was shown", also when somebody
// accepts empty rules, twice: only with a word about just that, and what is kept is given up
// only by its number.
func TestRebuildRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Edit = func(c *config.Config) { c.Windows.Bytes = 32 * config.KiB }
	n := f.Start("a")
	f.Publish(20)
	f.Until("all likes", func() bool { return f.Likes(20, 1) })
	more := RebuildAsk{Counting: f.by(fans(n.config))}
	none, many := *n.config, *n.config
	none.EventRules, many.Shards = nil, 4096
	blind := RebuildAsk{Counting: f.by(&none), Accept: true}
	confirmed, other := f.confirmed(blind), blind
	other.Confirm = f.confirmed(more).Confirm

	b := f.Start("b")
	f.Until("a part each", func() bool { return settled(n, b) })
	f.Stop(b)
	f.Until("it is away", func() bool {
		m, there := n.Serving().View().Member("b")
		return there && m.Stopped
	})
	f.notBegun("a node is away", more, "node b, which holds")
	f.Start("b")
	f.Until("it is back", func() bool { return f.rebuild(RebuildPlanVerb, more, nil) == nil })

	f.notBegun("a request alone", blind, "it drops the rule of", "nobody has confirmed")
	f.notBegun("what was confirmed is another rebuild", other, "something else than what was shown")
	f.notBegun("windows that are too small", RebuildAsk{Counting: f.by(&many)}, "windows.bytes is 32768, too little")
	others := jetstream.StreamConfig{Name: "OTHERS", Subjects: []string{"others"}, MaxBytes: 1<<40 - 24<<30} // and DELTAS2 has 4 GiB
	if _, err := f.JetStream().CreateStream(t.Context(), others); err != nil {
		t.Fatal(err)
	}
	f.notBegun("no room on the server", more, "no rebuild was begun", "DELTAS2 of 4096 MiB", "no room", "5 streams have reserved", "max_bytes")
	if err := f.JetStream().DeleteStream(t.Context(), others.Name); err != nil {
		t.Fatal(err)
	}
	if _, err := f.JetStream().Stream(t.Context(), "DELTAS2"); err == nil || f.record().Newest != 1 ||
		n.rebuilds.set().Newest != 1 {
		t.Errorf("something was begun: %+v", f.record())
	}

	if err := f.rebuild(RebuildVerb, confirmed, nil); err != nil {
		t.Fatal(err)
	}
	f.serves(2, n)
	f.notBegun("what was confirmed is done", confirmed, "no rebuild was begun", "generation 1")
	// Generation 1 alone still has what was dropped.
	again := RebuildAsk{Counting: blind.Counting, Accept: true}
	var plan RebuildPlan
	if err := f.rebuild(RebuildPlanVerb, again, &plan); err != nil || plan.Deletes != 1 || len(plan.Loses) == 0 {
		t.Errorf("the plan is %+v, %v", plan, err)
	}
	again.Confirm = plan.Confirm
	f.notBegun("again", again, "generation 1, which is kept and alone counts", "--back", "--drop-kept 1")
	again.DropKept = 7
	f.notBegun("another number", again, "generation 7 is not the one that is kept (1)")
	f.goesBack(n, 1)
	f.Until("all likes are there again", func() bool { return f.Likes(20, 1) })
	// What is kept now counts nothing that is lost with it.
	if err := f.rebuild(RebuildVerb, more, nil); err != nil {
		t.Error(err)
	}
	f.serves(3, n)
	// The operator may give up what is kept.
	plain := *n.config
	f.begin(&plain, false)
	f.serves(4, n)
	if ask := f.confirmed(more); ask.DropKept != 3 || f.rebuild(RebuildVerb, ask, nil) != nil {
		t.Errorf("it does not begin with %+v", ask)
	}
	f.serves(5, n)
}

// The same where it is the account that may not store so much, or have one stream more.
func TestRebuildNeedsRoomInTheAccount(t *testing.T) {
	t.Parallel()
	for limit, words := range map[string][]string{
		"max_file: 22GB":                {"reserved 21520 MiB of the 22528 MiB"},
		"max_file: 1TB, max_streams: 4": {"4 streams have reserved", "may have 4 streams"},
	} {
		server := natstest.NewOutside(t, fmt.Sprintf(
			"accounts {T {jetstream {max_mem: 1MB, %s}, users [{user: t, password: t}]}}\nno_auth_user: t\n", limit))
		nc, err := nats.Connect(server.URL(), nats.Timeout(e2e.Patience))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		f := &fleet{nodetest.FleetOn(t, nc, server.URL(), startInFleet)}
		n := f.Start("a")
		f.Publish(5)
		f.Until("all likes", func() bool { return f.Likes(5, 1) })
		f.notBegun(limit, RebuildAsk{Counting: f.by(fans(n.config))}, append(words, "no rebuild was begun", "DELTAS2 of 4096 MiB")...)
		f.Stop(n)
	}
}

// What a leader that was killed has reserved goes: after its start, and when it comes to lead
// again.
// What has windows, or another number, stays, and the next one has a number that none ever had.
func TestReservedRoomIsGivenBack(t *testing.T) {
	t.Parallel()
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
	of := func() generations.Number {
		t.Helper()
		is, err := jetlog.SlotOf(t.Context(), f.JetStream(), 1)
		if err != nil {
			t.Fatal(err)
		}
		return is.Number
	}
	leader := &n.rebuilds.leader
	f.Until("it has looked", func() bool { return leader.tidied.Load() == 1 })
	lead := &n.Serving().Inside().Router.Stats.Active
	lead.Store(false) // as if another node had led for a while
	reserve(2)
	leader.tidied.Store(n.rebuilds.set().Epoch)
	f.Until("it has seen that it does not lead", func() bool { return leader.tidied.Load() == untidy })
	if of() != 2 {
		t.Error("a node that does not lead has removed it")
	}
	lead.Store(true)
	f.Until("the next leader gives it back", func() bool { return of() == 0 })
	f.Stop(n)
	reserve(2)
	n = f.Start("a")
	f.Until("it is given back after the start", func() bool { return of() == 0 })
	f.Stop(n)

	reserve(7)
	left, err := f.JetStream().Stream(t.Context(), o.Slot.Deltas())
	if err == nil {
		_, err = f.JetStream().Publish(t.Context(), left.CachedInfo().Config.Subjects[0], []byte("a window"))
	}
	if err != nil {
		t.Fatal(err)
	}
	n = f.Start("a")
	f.Until("it has looked", func() bool { return n.rebuilds.leader.tidied.Load() == 1 })
	if of() != 7 {
		t.Error("what was counted by a generation that the record has lost is removed")
	}
	if got := f.begin(fans(n.config), false); got != 8 {
		t.Errorf("generation %d is building", got)
	}
	f.serves(8, n)
	if of() != 8 || !f.Log.Has("no node and no record knows of it") {
		t.Errorf("DELTAS2 is of %d", of())
	}
	f.Until("all fans", f.Has("post", "fans", 7, 1))
}
