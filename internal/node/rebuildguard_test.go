package node

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node/counting"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/node/upkeep"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/sinks/backup"
)

// forge writes a record by which a generation serves that there never was.
func (f *fleet) forge() {
	f.T.Helper()
	forged := generations.Set{
		Epoch: 50, State: generations.Aborted, Serving: 9, Newest: 9,
		All: map[generations.Number]generations.Generation{9: {Counting: json.RawMessage(`{}`)}},
	}
	text, err := forged.Encode()
	if err == nil {
		_, err = f.Bucket().Put(f.T.Context(), recordKey, text)
	}
	if err != nil {
		f.T.Fatal(err)
	}
}

// "A node deletes what it has of a generation only while the record as
// it stands is its copy": not while another one stands there that it does not follow.
func TestNothingIsDeletedByAnotherRecord(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.rebuilt("a")
	f.forge()
	f.Until("it says so", func() bool { return strings.Contains(n.remarks(), "generation 9 serves") })
	f.Until("it has looked for what is left over", func() bool { return len(f.stored("a")) == 2 })
	old := filepath.Join(f.Dirs["a"], datadir.GenerationsDir, "7")
	if err := os.Mkdir(old, 0o755); err != nil {
		t.Fatal(err)
	}
	time.Sleep(sweepEvery + 3*rebuildsEvery)
	if _, err := os.Stat(old); err != nil {
		t.Errorf("it is deleted: %v", err)
	}
	if err := f.Bucket().Delete(t.Context(), recordKey); err != nil {
		t.Fatal(err)
	}
	// Nor what no node has seen given up; it is named.
	f.Until("it is named", func() bool {
		return strings.Contains(n.remarks(), "has counts of generation 7, which the record does not name")
	})
	time.Sleep(sweepEvery + 3*rebuildsEvery)
	if _, err := os.Stat(old); err != nil {
		t.Errorf("it is deleted: %v", err)
	}
}

// A node without counts, or one that only answers, does not vouch for a forged record.
func TestNewNodesVouchForNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a := f.Start("a")
	f.Publish(20)
	f.Until("all likes", func() bool { return f.Likes(20, 1) })
	f.forge()
	b := f.Start("b")
	f.Edit = func(c *config.Config) { c.Roles = []string{config.RoleAnswer} }
	f.Start("t")
	f.Until("a part each", func() bool { return settled(a, b) })
	time.Sleep(askAgain + 2*rebuildsEvery)
	for _, n := range []*Node{a, b} {
		if set := n.rebuilds.set(); set.Serving != 1 || n.Serving().Number != 1 || !strings.Contains(n.remarks(), "generation 9 serves") {
			t.Errorf("node %s acts on %+v; %s", n.name, set, n.remarks())
		}
	}
	if err := f.Bucket().Delete(t.Context(), recordKey); err != nil {
		t.Fatal(err)
	}
	f.Until("nothing is wrong", func() bool { return a.rebuilds.remarks() == "" && b.rebuilds.remarks() == "" })
	f.Until("all likes", func() bool { return f.Likes(20, 1) })
}

// "A leader does not write the record while a node that it reaches
// knows a newer one."
func TestLeaderIsOutrun(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a, b := f.Start("a"), f.Start("b")
	f.Publish(20)
	f.Until("a part each", func() bool { return settled(a, b) })
	f.begin(fans(a.config), false)
	f.serves(2, a, b)
	f.Until("nothing is owed", func() bool { s := a.rebuilds.set(); return s.All[2].Letters == 0 && b.rebuilds.set().Equal(s) })
	known := a.rebuilds.set()
	older := known
	older.Epoch--
	f.Until("it hears of b, and does not go on from an older one", func() bool { // which must answer within askWithin
		err := a.outrun(t.Context(), older)
		return err != nil && strings.Contains(err.Error(), "node b knows")
	})
	if err := a.outrun(t.Context(), known); err != nil {
		t.Error(err)
	}
}

// "A number that no node has acted on can be given out again, with
// another configuration": what is stored under it by the one before is not counted on
// with.
func TestNumberComesAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.rebuilt("a")
	f.Stop(n)
	path := filepath.Join(f.Dirs["a"], datadir.MarkerFile)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	is := n.rebuilds.set().All[2].CountsBy()
	if strings.Count(string(raw), is) != 1 {
		t.Fatalf("it is not noted what generation 2 counts by: %s", raw)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(raw), is, "another", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	f.Edit = withFans
	n = f.Start("a")
	if !f.Log.Has("it is moved aside") || n.dir.Counted(2).Counting != is {
		t.Errorf("it counts on with what another one has counted: %+v", n.dir.Counted(2))
	}
	f.Until("all fans", f.Has("post", "fans", 7, 1))
	f.Until("all likes", func() bool { return f.Likes(40, 1) })
}

// The node that routes the generation that serves stores its dead letters, also as long as
// it answers by the one before.
func TestLettersGoByTheRecord(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.rebuilt("a")
	kept := n.rebuilds.beside.Load()
	kept.Inside().Open.Store(false) // so it cannot come to serve here
	_, err := n.changeRecord(t.Context(), func(s generations.Set) (generations.Set, error) {
		return s.Back(n.Serving().Inside().Router.Stats.Position.Load())
	})
	if err != nil {
		t.Fatal(err)
	}
	f.Until("it is settled by who routes it", func() bool { s := n.rebuilds.set(); return s.Serving == 1 && s.All[1].Letters == 0 })
	if n.Serving().Number != 2 {
		t.Fatalf("generation %d answers", n.Serving().Number)
	}
	f.refused(3)
	f.Publish(40)
	f.Until("all likes", func() bool { return f.Likes(40, 2) })
	f.Until("they are routed", func() bool {
		return kept.Inside().Router.Stats.Position.Load() >= n.Serving().Inside().Router.Stats.Position.Load()
	})
	f.letters(3)
	kept.Inside().Open.Store(true)
	f.serves(1, n)
	f.letters(3)
}

// What a rebuild waits for is said: with two replicas, a node that is gone.
func TestRebuildSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Edit = func(c *config.Config) { c.Cluster.Replicas = 2 }
	a, b := f.Start("a"), f.Start("b")
	f.Publish(20)
	f.Until("all on both", func() bool { return holdsAll(a) && holdsAll(b) })
	g := a.Serving()
	f.Until("nothing is waited for", func() bool { return waitsFor(g, true) == "" && caughtUp(g) })
	f.Stop(b)
	f.Until("it waits", func() bool { return !caughtUp(g) })
	if why := waitsFor(g, false); !strings.Contains(why, "node b, which is to hold 8 shards, is away") {
		t.Errorf("it waits for b: %q", why)
	}
}

// "begin should refuse" what cannot be derived here: the windows are too small for what
// is to be counted.
func TestRebuildNeedsWindowsThatHoldIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Edit = func(c *config.Config) { c.Windows.Bytes = 32 * config.KiB }
	n := f.Start("a")
	by := fans(n.config)
	by.Shards = 4096
	counting, err := by.Counting()
	if err != nil {
		t.Fatal(err)
	}
	err = f.rebuild(RebuildVerb, f.confirmed(RebuildAsk{Counting: counting}), nil)
	if err == nil || !strings.Contains(err.Error(), "windows.bytes is 32768, too little") || n.rebuilds.set().Newest != 1 {
		t.Errorf("it begins: %v", err)
	}
}

// EVENTS is not trimmed below what a node has not applied of the generation to go back
// to: the newest backup is not of that one.
func TestTrimLeavesWhatIsKeptItsEvents(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.rebuilt("a")
	set := n.rebuilds.set()
	lowest := func() (next uint64, why string) {
		trim := backup.Trim{Below: math.MaxUint64}
		if err := upkeep.BoundByKept(t.Context(), f.NC, set, f.Logger(), &trim); err != nil {
			t.Fatal(err)
		}
		return trim.Below, trim.Why
	}
	f.Until("it may be trimmed up to what is kept has applied", func() bool {
		next, why := lowest()
		return next == 41 && strings.Contains(why, "generation 1, which is kept: node a")
	})
	kept := n.rebuilds.beside.Load()
	kept.Inside().Cancel() // it goes on no more
	f.Publish(40)
	f.Until("all likes", func() bool { return f.Likes(40, 2) })
	if next, why := lowest(); next > 41 || !strings.Contains(why, "generation 1, which is kept") {
		t.Errorf("of 80 events those from %d on are left: %s", next, why)
	}
}

// A record comes back from the data directory as it was, so that nodes agree on it.
func TestRecordIsKeptAsItWas(t *testing.T) {
	set, err := generations.Start(json.RawMessage(`{"a":"<&>"}`))
	if err == nil {
		set, err = set.Begin(json.RawMessage(`{"b":1}`), false)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	d, err := datadir.Open(dir, "a", false)
	if err == nil {
		err = errors.Join(d.NoteGenerations(set), d.Close())
	}
	if err == nil {
		d, err = datadir.Open(dir, "a", false)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if is := d.Generations(); !is.Equal(set) {
		t.Errorf("%s", is.All[1].Counting)
	}
}

// If all nodes that had the generation before open were killed, none of them says anything
// there, and a view does not take them to be away: a rebuild begins all the same.
func TestRebuildBeginsWhereAllWereKilled(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.Start("a")
	f.Publish(20)
	f.Until("all likes", func() bool { return f.Likes(20, 1) })
	member := n.Serving().Inside().Same
	member.Node, member.Session = "b", "killed"
	value, err := member.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Bucket().Put(t.Context(), "2.member.b", value); err != nil { // it was killed
		t.Fatal(err)
	}
	f.begin(fans(n.config), false)
	f.serves(2, n)
}

// A node that beats is there, and so is one that could not be heard.
func TestSilence(t *testing.T) {
	s, begun := silence{}, time.Now()
	dead, beats := &cluster.Member{Node: "dead"}, &cluster.Member{Node: "beats"}
	at := func(d time.Duration, asked bool) string {
		again := *beats
		beats = &again
		stopped := &cluster.Member{Node: "stopped", Stopped: true}
		return strings.Join(s.there([]cluster.State{{Member: beats}, {Member: dead}, {Member: stopped}}, begun.Add(d), asked), " ")
	}
	for _, step := range []struct {
		at    time.Duration
		asked bool
		want  string
	}{{0, true, "beats dead"}, {6 * time.Second, true, "beats dead"}, {6500 * time.Millisecond, false, "beats dead"}, {13 * time.Second, true, "beats dead"}, {14 * time.Second, true, "beats"}} {
		if got := at(step.at, step.asked); got != step.want {
			t.Errorf("after %v there are %q, want %q", step.at, got, step.want)
		}
	}
}

// arranging is a node that has switched, and whose goroutine that follows the record was
// ended: the test does what it would do. By the record generation 1 serves again.
func (f *fleet) arranging() (n *Node, kept *counting.Generation) {
	f.T.Helper()
	n = f.rebuilt("a")
	f.Until("the one before is up to date", func() bool {
		b := n.rebuilds.beside.Load()
		return b != nil && b.Number == 1 && n.maySwitch(n.Serving(), b)
	})
	kept = n.rebuilds.beside.Load()
	n.rebuilds.end()
	back, err := n.rebuilds.set().Back(0)
	if err != nil {
		f.T.Fatal(err)
	}
	n.rebuilds.known.Store(&back)
	return n, kept
}

// A switch that cannot be made at once, as the next generation cannot begin to answer at
// that moment, is tried again: both generations stay open until then.
func TestSwitchIsTriedAgain(t *testing.T) {
	f := newFleet(t)
	n, kept := f.arranging()
	n.queries.Close()
	f.Until("it tries", func() bool { // it may be behind, and not try at once
		n.arrangeGenerations(t.Context())
		return n.rebuilds.trouble.Err() != nil
	})
	if n.Serving().Number != 2 || n.rebuilds.beside.Load() != kept || kept.Inside().Ctx.Err() != nil || n.rebuilds.opening != nil {
		t.Errorf("generation %d serves, %v is open beside it, which has ended: %v\n%s", n.Serving().Number, n.rebuilds.beside.Load(), kept.Inside().Ctx.Err(), f.Log.String())
	}
	if err := n.rebuilds.trouble.Err(); err == nil || !strings.Contains(err.Error(), "generation 1 does not come to serve") {
		t.Errorf("it says %v", err)
	}
}

// A generation that cannot go on does not come to serve: nobody would notice.
func TestLostGenerationDoesNotServe(t *testing.T) {
	f := newFleet(t)
	n, kept := f.arranging()
	kept.Inside().Fail(errors.New("another one has its name"))
	n.arrangeGenerations(t.Context())
	if n.Serving().Number != 2 {
		t.Errorf("generation %d serves", n.Serving().Number)
	}
	select {
	case <-n.failed:
		t.Errorf("the process ends: %v", n.failure)
	default:
	}
}

// docs/replay.md: "Nothing counted is deleted because of what a restored or forged record
// says": a number that comes again is one that was not given up.
func TestANumberThatComesAgainHasNotEnded(t *testing.T) {
	d, err := datadir.Open(filepath.Join(t.TempDir(), "data"), "a", false)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	none, err := generations.Start(json.RawMessage(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	note := func(set generations.Set, err error) generations.Set {
		t.Helper()
		if err == nil {
			err = d.NoteGenerations(set)
		}
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	note(none, nil)
	second := note(none.Begin(json.RawMessage(`{"b":1}`), false))
	note(second.Abort(""))
	if !slices.Equal(d.Ended(), []generations.Number{2}) || !d.Aborted(2) {
		t.Errorf("ended are %v", d.Ended())
	}
	note(none.Begin(json.RawMessage(`{"c":1}`), false)) // the record of before was put back
	if len(d.Ended()) > 0 || d.Aborted(2) {
		t.Errorf("generation 2 is building, and %v have ended", d.Ended())
	}
}
