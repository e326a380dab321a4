package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/pipeline"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// paced runs do over and over until it is ended; ending it says how often that was.
func (f *fleet) paced(do func()) (end func() int) {
	stop, times := make(chan struct{}), make(chan int, 1)
	go func() {
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for n := 0; ; n++ {
			select {
			case <-stop:
				times <- n
				return
			case <-ticker.C:
				do()
			}
		}
	}()
	ended := false
	end = func() int {
		ended = true
		close(stop)
		return <-times
	}
	f.T.Cleanup(func() {
		if !ended {
			end()
		}
	})
	return end
}

// asks asks for the likes of a post over and over; ending it fails for each answer that
// is none or goes back. Where several nodes answer they switch one after the other: until
// the last one has, an answer may be of the generation before, which is behind, and says so.
func (f *fleet) asks(id int, several bool) (end func()) {
	last, lastPosition := 0, 0
	var faults []string
	endAsking := f.paced(func() {
		var reply struct {
			Rows []struct {
				Like int `json:"like"`
			} `json:"rows"`
			AsOf    string   `json:"as_of"`
			Missing []string `json:"missing"`
		}
		text := f.Get("post", "like", id)
		err := json.Unmarshal([]byte(text), &reply)
		position, _ := strconv.Atoi(reply.AsOf)
		switch {
		case err != nil || len(reply.Rows) != 1 || len(reply.Missing) > 0:
			faults = append(faults, text)
		case reply.Rows[0].Like < last && (!several || position >= lastPosition):
			faults = append(faults, fmt.Sprintf("%d at %d after %d at %d", reply.Rows[0].Like, position, last, lastPosition))
		default:
			last, lastPosition = max(reply.Rows[0].Like, last), max(position, lastPosition)
		}
	})
	return func() {
		f.T.Helper()
		if asked := endAsking(); asked < 10 || len(faults) > 0 {
			f.T.Errorf("of %d answers %d are none or go back: %.1000q", asked, len(faults), faults)
		}
	}
}

// A rebuild from its plan to the end: "A rebuild gives a new column its history"; with no
// turn to be had (`rebuild.cores`) nothing of it is derived, and the one that serves goes on;
// "a generation that is building has `rebuild.memory`; the one that serves has the rest of
// `memory.budget`"; what is accepted amid the comparison is compared to its end; once it
// serves, the one before is told to nobody, and is dropped after rebuild.keep.
func TestRebuildFromPlanToDrop(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Edit = func(c *config.Config) { c.Audit.Rate, c.Rebuild.Keep = 0, 0 }
	n := f.Start("a")
	c, first, turns := n.config, n.Serving(), n.shared.Turns
	f.Publish(100)
	f.Publish(50)
	f.Until("all likes", func() bool { return f.Likes(50, 2) })
	var plan RebuildPlan
	if err := f.rebuild(RebuildPlanVerb, RebuildAsk{Counting: f.by(fans(c))}, &plan); err != nil {
		t.Fatal(err)
	}
	if plan.Serving != 1 || len(plan.Changes) == 0 || len(plan.Drops) > 0 || plan.Messages != 150 ||
		len(plan.Nodes) != 1 || plan.Nodes[0].Needs == 0 {
		t.Errorf("the plan is %+v", plan)
	}
	if s := f.status(); s.Building != 0 || first.Inside().Memory.Load() != int64(c.ShardBytes()) {
		t.Fatalf("a plan begins it: %+v", s)
	}
	auditor, goOn := first.Inside().Auditor, make(chan struct{})
	reached, open := make(chan struct{}, 2), auditor.Open
	auditor.Open = func(ctx context.Context, from pipeline.Position) (pipeline.Source, error) {
		reached <- struct{}{}
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		return open(ctx, from)
	}

	if cap(turns) != 1 {
		t.Fatalf("there are %d turns, of rebuild.cores %d and 2 processors", cap(turns), c.Rebuild.Cores)
	}
	func() {
		turns.Take()
		defer turns.Give() // or it does not close
		if got := f.begin(fans(c), false); got != 2 {
			t.Fatalf("generation %d is building", got)
		}
		f.Until("the second one routes", func() bool {
			b := n.rebuilds.beside.Load()
			return b != nil && b.Inside().Router.Stats.Messages.Load() > 0
		})
		f.Publish(10)
		f.Until("the first one counts", f.Has("post", "like", 7, 3))
		second := n.rebuilds.beside.Load()
		if windows, applied := second.Inside().Router.Stats.Windows.Load(), second.Sinks().Applied(); windows != 0 ||
			applied != 0 {
			t.Errorf("without a turn there are %d windows, applied up to %d", windows, applied)
		}
		of, beside := first.Inside().Memory.Load(), second.Inside().Memory.Load()
		if of+beside > int64(c.ShardBytes()) || beside != int64(c.ShardBytesSecond()) {
			t.Errorf("of %d bytes the one that serves has %d, the other %d", c.ShardBytes(), of, beside)
		}
	}()
	second := n.rebuilds.beside.Load()
	<-reached
	if err := f.rebuild(RebuildAcceptVerb, struct{}{}, nil); err != nil || n.Serving() != first {
		t.Fatalf("generation %d serves, %v", n.Serving().Number, err)
	}
	close(goOn)
	f.serves(2, n)
	s := f.record()
	if !s.Compared || !s.Accept || len(reached) > 0 ||
		strings.Count(f.Log.String(), "both are compared with the log") != 1 {
		t.Errorf("the comparison has begun again: compared %v, accepted %v, epoch %d", s.Compared, s.Accept, s.Epoch)
	}
	f.Until("the new column", f.Has("post", "fans", 7, 3))
	f.Until("the new column", f.Has("post", "fans", 77, 1))
	f.Publish(10)
	f.Until("what comes", f.Has("post", "fans", 7, 4))
	if s := f.status(); s.State != generations.Switched || s.Serving != 2 || s.Kept != 1 || s.Differs != 0 {
		t.Errorf("%+v", s)
	}
	f.Until("the shares are swapped", func() bool {
		return second.Inside().Memory.Load() == int64(c.ShardBytesBeside()) &&
			first.Inside().Memory.Load() == int64(c.ShardBytesSecond())
	})
	f.Until("the second one has all, alone", func() bool { return second.Inside().Memory.Load() == int64(c.ShardBytes()) })
	f.Until("the first one is dropped", func() bool {
		is, err := jetlog.SlotOf(t.Context(), f.JetStream(), 0)
		return err == nil && is == (jetlog.Owner{}) && len(f.stored("a")) == 1 && n.rebuilds.set().Kept == 0
	})
	// The slot is not cleared for a number that another leader has given in between.
	if _, err := n.clearSlot(t.Context(), 0, 1); err == nil ||
		!strings.Contains(err.Error(), "generation 2 has begun meanwhile") {
		t.Errorf("generation 2 has begun: %v", err)
	}
	if free, err := n.clearSlot(t.Context(), 0, 2); err != nil || free != 3 {
		t.Errorf("generation %d may begin: %v", free, err)
	}
}

// docs/contract.md: "When it has caught up, both are held to the log; if nothing differs,
// all nodes answer from the new generation, in one step": each role alone and several
// together, while everything goes on, by NATS and HTTP. README.md: "Another number of
// shards": of each generation its own.
func TestRebuildOnManyNodes(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	start := func(name, listen string, roles ...string) *Node {
		f.Edit = func(c *config.Config) { c.Roles, c.HTTP.Listen = roles, listen }
		return f.Start(name)
	}
	a, b := start("a", "", config.RoleHold, config.RoleAnswer), start("b", "", config.RoleHold)
	r := start("r", "", config.RoleRoute)
	thin := start("t", "127.0.0.1:0", config.RoleAnswer)
	f.Until("a part each", func() bool { return settled(a, b) })
	f.Publish(100)
	f.Until("all likes", func() bool { return f.Likes(100, 1) })
	f.Until("the thin one is ready", func() bool { return thin.Ready() == nil })

	endAsking := f.asks(5, true)
	endPublishing := f.paced(func() { f.Publish(20) })
	tag := ""
	endBrowsing := f.paced(func() {
		ask, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+thin.HTTPAddress()+"/v1/get/post/1", nil)
		if err != nil {
			t.Error(err)
			return
		}
		ask.Header.Set("If-None-Match", tag)
		reply, err := http.DefaultClient.Do(ask)
		if err != nil {
			t.Error(err)
			return
		}
		reply.Body.Close()
		if reply.StatusCode != http.StatusOK && reply.StatusCode != http.StatusNotModified {
			t.Errorf("over HTTP: %s", reply.Status)
		}
		tag = reply.Header.Get("ETag")
	})
	by := fans(a.config)
	by.Shards = 4
	f.begin(by, false)
	f.serves(2, a, b, r, thin)
	more := endPublishing()
	f.Until("the new column", f.Has("post", "fans", 7, 1+more))
	f.Until("the new column", f.Has("post", "fans", 77, 1))
	endAsking()
	if asked := endBrowsing(); asked < 10 || tag == "" {
		t.Errorf("%d requests were asked, the last one has tag %q", asked, tag)
	}
	for _, n := range []*Node{a, b, r, thin} {
		f.Until("ready", func() bool { return n.Ready() == nil })
	}
	if held := a.Serving().Inside().Held(); a.Serving().Config.Shards != 4 || held.Len() == 0 || held.Len() == 4 {
		t.Errorf("node a holds %v of %d shards", held, a.Serving().Config.Shards)
	}
}

// "--back" is one step, and so is going forward again; the one that is kept goes on
// counting. An aborted rebuild leaves nothing, and places are used again. Dead letters
// come exactly once over all of it.
func TestBackAndForward(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.Start("a")
	plain := n.config
	endAsking := f.asks(5, false)
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
	for i, serving := range []generations.Number{1, 2} {
		f.goesBack(n, serving)
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
	s := f.status()
	if s.State != generations.Aborted || s.Building != 0 || s.Serving != 2 ||
		!strings.HasPrefix(s.Why, "it was told to") || strings.Contains(s.Why, "it waits") {
		t.Errorf("%+v", s)
	}
	f.Until("nothing of it is left", func() bool {
		third := datadir.GenerationsDir + "/3/" + datadir.BadgerDir
		return n.rebuilds.beside.Load() == nil && !slices.Contains(f.stored("a"), third)
	})
	if err := f.rebuild(RebuildAbortVerb, struct{}{}, nil); err == nil ||
		!strings.Contains(err.Error(), generations.ErrNone.Error()) {
		t.Errorf("aborted twice: %v", err)
	}
	if err := f.rebuild(RebuildBackVerb, struct{}{}, nil); err == nil ||
		!strings.Contains(err.Error(), generations.ErrKept.Error()) {
		t.Errorf("back to nothing: %v", err)
	}
	if got := f.begin(fans(plain), false); got != 4 {
		t.Errorf("generation %d is building", got)
	}
	step(4, 5)
	endAsking()
	f.letters(letters)

	if _, err := n.changeRecord(t.Context(), func(now generations.Set) (generations.Set, error) {
		now.Epoch++
		now.Lost = true
		return now, nil
	}); err != nil {
		t.Fatal(err)
	}
	f.Until("it says that events are lost", func() bool { s := f.status(); return s.Lost && s.Kept == 2 })
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

// docs/contract.md: "One that differs serves only with `--accept`". A leader goes by what it
// has compared itself (docs/decisions/0028-generations.md): what was compared before may
// have gone since, and what is there now not be it.
func TestRebuildThatDiffersWaits(t *testing.T) {
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
	waits := func() {
		t.Helper()
		f.Until("it waits", func() bool { return f.status().Waits })
		s := f.status()
		if s.Differs == 0 || s.State != generations.Comparing ||
			!strings.Contains(s.Why, "generation 1 differs from the log") || len(s.Examples) == 0 {
			t.Errorf("%+v", s)
		}
		if n.Serving().Number != 1 || !f.Has("post", "like", 7, 3)() {
			t.Errorf("generation %d serves", n.Serving().Number)
		}
	}
	waits()
	f.Stop(n)
	said := f.record()
	said.Epoch, said.Differs, said.Why = said.Epoch+1, 0, ""
	text, err := said.Encode()
	if err != nil {
		t.Fatal(err)
	}
	f.Put(recordKey, text)
	n = f.Start("a")
	f.Until("it has compared, or switched", func() bool { return f.record().Epoch > said.Epoch })
	waits()
	if err := f.rebuild(RebuildAcceptVerb, struct{}{}, nil); err != nil {
		t.Fatal(err)
	}
	f.serves(2, n)
	f.Until("what the log says", f.Has("post", "like", 7, 2))
}
