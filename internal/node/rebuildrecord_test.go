package node

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node/counting"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/node/lookup"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query"
)

// encoded is a record as the bucket has it.
func (f *fleet) encoded(s generations.Set) []byte {
	f.T.Helper()
	text, err := s.Encode()
	if err != nil {
		f.T.Fatal(err)
	}
	return text
}

// "A record of generations that is deleted, malformed or older than what a node knows is
// not obeyed, is reported and is replaced by the node's copy; no node deletes counts because
// of it". What is stored of a generation that the record does not name is named at /readyz.
func TestRecordIsLost(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.rebuilt("a")
	known := n.rebuilds.set()
	older := known
	older.Epoch, older.State, older.Kept, older.Serving = 1, generations.Aborted, 0, 1
	older.All = map[generations.Number]generations.Generation{1: known.All[1]}
	for _, lost := range []struct {
		name string
		lose func(jetstream.KeyValue) error
	}{
		{"deleted", func(b jetstream.KeyValue) error { return b.Delete(t.Context(), recordKey) }},
		{"purged", func(b jetstream.KeyValue) error { return b.Purge(t.Context(), recordKey) }},
		{"malformed", func(b jetstream.KeyValue) error {
			_, err := b.PutString(t.Context(), recordKey, `{"epoch":"x"}`)
			return err
		}},
		{"older", func(b jetstream.KeyValue) error {
			_, err := b.Put(t.Context(), recordKey, f.encoded(older))
			return err
		}},
		{"the bucket", func(jetstream.KeyValue) error { return f.JetStream().DeleteKeyValue(t.Context(), jetlog.Bucket) }},
	} {
		if err := lost.lose(f.Bucket()); err != nil {
			t.Fatalf("%s: %v", lost.name, err)
		}
		f.Until(lost.name+": it is as it was", func() bool {
			_, err := f.JetStream().KeyValue(t.Context(), jetlog.Bucket)
			return err == nil && f.record().Equal(known)
		})
		if got := n.rebuilds.set(); !got.Equal(known) || n.Serving().Number != 2 || len(f.stored("a")) != 2 {
			t.Fatalf("%s: it acts on %+v, has %v\n%s", lost.name, got, f.stored("a"), f.Log.String())
		}
	}

	old := filepath.Join(f.Dirs["a"], datadir.GenerationsDir, "7")
	if err := os.Mkdir(old, 0o755); err != nil {
		t.Fatal(err)
	}
	f.Until("it is named", func() bool {
		return strings.Contains(n.remarks(), "has counts of generation 7, which the record does not name")
	})
	if _, err := os.Stat(old); err != nil || n.Serving().Number != 2 || len(f.stored("a")) != 2 {
		t.Errorf("generation %d serves, stored are %v, %v", n.Serving().Number, f.stored("a"), err)
	}
	f.Until("all likes", func() bool { return f.Likes(40, 1) })
}

// waiting starts a node that is to wait, until it says why at /readyz.
func (f *fleet) waiting(c *config.Config, words string) {
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
	f.Until("it says why it waits", func() bool {
		reply, err := http.Get("http://" + c.HTTP.Listen + "/readyz")
		if err != nil {
			return false
		}
		defer reply.Body.Close()
		body, _ := io.ReadAll(reply.Body)
		said := strings.Contains(string(body), words) && strings.Contains(string(body), "tidemark repair --record")
		return reply.StatusCode == http.StatusServiceUnavailable && said
	})
	cancel()
	if err := <-over; err == nil {
		f.T.Error("it has started")
	}
}

// A start waits, is not ready, and says what to do where the record is of a later version
// (nodes that run know that no member has written it, and replace it). It fails and says what to
// do where everything is lost but the streams of a later generation. One command has it start.
func TestRepairOfTheRecord(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a := f.Start("a")
	f.Publish(20)
	f.Until("all likes", func() bool { return f.Likes(20, 1) })
	known := a.rebuilds.set()
	later, err := known.EncodeIn(pipeline.FormatRecord.Newest + 1)
	if err != nil {
		t.Fatal(err)
	}
	f.Put(recordKey, later)
	f.Until("a member replaces it", func() bool { return f.record().Equal(known) })
	repaired := func() *Node {
		t.Helper()
		if err := Repair(f.Plain("a"), RepairOptions{Record: true, Logger: f.Logger()}); err != nil {
			t.Fatal(err)
		}
		n := f.Start("a")
		f.Until("all likes", func() bool { return f.Likes(20, 1) })
		return n
	}
	f.Stop(a)
	f.Put(recordKey, later)
	f.waiting(f.Plain("a"), "the record has version 2, and this program reads versions 1 to 1: upgrade this node")
	if e, err := f.Bucket().Get(t.Context(), recordKey); err != nil || string(e.Value()) != string(later) {
		t.Errorf("it is replaced: %v", err)
	}
	f.Stop(repaired())

	for _, stream := range []string{"KV_" + jetlog.Bucket, jetlog.DeltasStream} {
		if err := f.JetStream().DeleteStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
	}
	f.Dirs["a"] = t.TempDir()
	c := f.Plain("a")
	o := jetlog.StreamOptions{
		Deltas:     jetlog.Limits{BytesMax: int64(c.NATS.Streams.Deltas.MaxBytes)},
		Generation: jetlog.Owner{Number: 3},
	}
	if err := jetlog.Reserve(t.Context(), f.NC, o); err != nil {
		t.Fatal(err)
	}
	_, err = Start(t.Context(), c, Options{Version: "test", Processors: 2, Logger: f.Logger()})
	if err == nil || !strings.Contains(err.Error(), "is of generation 3") || !strings.Contains(err.Error(), "tidemark repair --record") {
		t.Errorf("it starts: %v", err)
	}
	repaired()
}

// owing is a record that differs only in what its generation owes.
func owing(now generations.Set, letters uint64) generations.Set {
	serving := now.All[now.Serving]
	serving.Letters = letters
	now.All = maps.Clone(now.All)
	now.All[now.Serving] = serving
	now.Epoch++
	return now
}

// amid is a context that does something at the first moments somebody bounds it.
type amid struct {
	context.Context
	moments int
	do      func()
}

func (a *amid) Deadline() (time.Time, bool) {
	if a.moments > 0 {
		a.moments--
		a.do()
	}
	return a.Context.Deadline()
}

// Much may happen at once: a rebuild begins although the record changes at the same time
// for other reasons, as it does just after a switch; and "--back" comes before all nodes have said how far
// what is kept is.
func TestRecordAmidChanges(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.rebuilt("a")
	changes := 0
	ctx := &amid{t.Context(), 3, func() {
		next, err := n.changeRecord(t.Context(), func(now generations.Set) (generations.Set, error) { return owing(now, 1), nil })
		if err != nil {
			t.Error(err)
		}
		f.Until("it is known", func() bool { return n.rebuilds.set().Epoch >= next.Epoch })
		changes++
	}}
	begun, err := n.beginRebuild(ctx, &RebuildAsk{Counting: f.by(fans(n.config))})
	if err != nil || begun.Building != 3 || changes != 3 {
		t.Fatalf("%+v, %v, after %d changes", begun, err, changes)
	}
	f.serves(3, n)
	f.settledLetters(n)

	f.Until("nothing is waited for", func() bool { s := f.status(); return s.Kept == 2 && s.Why == "" })
	n.Serving().Inside().Open.Store(false)
	f.Until("it says what it waits for", func() bool {
		return strings.Contains(f.status().Why, "generation 2 is kept until all have the one that serves: node a does not answer for")
	})
	n.Serving().Inside().Open.Store(true)

	kept := n.rebuilds.beside.Load()
	f.Until("what is kept is up to date", func() bool { return caughtUp(kept) })
	f.Until("it is gone back, at once", func() bool { // unless it takes this node longer than settleWithin to say so
		kept.Inside().Open.Store(false) // so this node says that it has nothing
		f.Until("it is not there", func() bool { return !caughtUp(kept) })
		kept.Inside().Open.Store(true)
		return f.rebuild(RebuildBackVerb, struct{}{}, nil) == nil
	})
	f.serves(2, n)
	f.settledLetters(n)
}

// A generation that cannot go on does not come to serve: nobody would notice. A switch that
// cannot be made at once, as the next generation cannot begin to answer at that moment, is
// tried again: both stay open until then.
func TestSwitchThatCannotBeMade(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	// arranging ends the goroutine that follows the record: the test does what it would
	// do. By the record generation 1 serves again.
	arranging := func(n *Node) (kept *counting.Generation) {
		t.Helper()
		f.Until("the one before is up to date", func() bool {
			kept = n.rebuilds.beside.Load()
			return kept != nil && kept.Number == 1 && n.maySwitch(n.Serving(), kept)
		})
		n.rebuilds.end()
		back, err := n.rebuilds.set().Back(0)
		if err != nil {
			t.Fatal(err)
		}
		n.rebuilds.known.Store(&back)
		return kept
	}
	n := f.rebuilt("a")
	arranging(n).Inside().Fail(errors.New("another one has its name"))
	n.arrangeGenerations(t.Context())
	if n.Serving().Number != 2 || n.Failure() != nil {
		t.Errorf("generation %d serves: %v", n.Serving().Number, n.Failure())
	}
	f.Stop(n)

	n = f.Start("a")
	kept := arranging(n)
	n.queries.Close()
	f.Until("it tries", func() bool { // it may be behind, and not try at once
		n.arrangeGenerations(t.Context())
		return n.rebuilds.trouble.Err() != nil
	})
	ended := kept.Inside().Ctx.Err()
	if n.Serving().Number != 2 || n.rebuilds.beside.Load() != kept || ended != nil || n.rebuilds.opening != nil {
		t.Errorf("generation %d serves, the one before has ended: %v\n%s", n.Serving().Number, ended, f.Log.String())
	}
	if err := n.rebuilds.trouble.Err(); err == nil ||
		!strings.Contains(err.Error(), "generation 1 does not come to serve") {
		t.Errorf("it says %v", err)
	}
}

// docs/contract.md: "A node whose file differs from what serves starts with what serves and
// says so (log, `/readyz`, `tidemark nodes`), for good".
func TestFileDiffers(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.rebuilt("a")
	differs := func(when string, want bool, words string) {
		t.Helper()
		f.Until(when+": it is ready", func() bool { return n.Ready() == nil && len(n.Serving().View().Members) > 0 })
		said := false
		for _, is := range lookup.NewOverview(n.name, n.Serving().View, n.Serving().Inside().Silent).Nodes().Nodes {
			said = said || is.Config == query.ConfigDiffers
		}
		if remarks := n.remarks(); said != want || strings.Contains(remarks, "config: ") != want ||
			!strings.Contains(remarks, words) {
			t.Errorf("%s: in tidemark.nodes %v, at /readyz %q", when, said, remarks)
		}
		f.Until("the new column", f.Has("post", "fans", 7, 1))
	}
	differs("after the rebuild", true, "drops column post.fans")
	f.Stop(n)
	f.Edit = func(c *config.Config) {
		c.Shards, c.Feed.PostsPerAuthor, c.Variables = 16, 120, []string{"TIDEMARK_SHARDS"}
	}
	n = f.Start("a")
	differs("with the file of before", true, "shards 8 → 16")
	differs("and a variable", true, "the environment sets TIDEMARK_SHARDS, which wins over the file: unset it, too")
	if !f.Log.Has("counts differently from what serves") {
		t.Error("the log says nothing")
	}
	f.Stop(n)
	f.Edit = withFans
	n = f.Start("a")
	differs("with the file that serves", false, "")
}

// A record comes back from the data directory as it was, so that nodes agree on it.
func TestRecordInTheDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	open := func() *datadir.Dir {
		t.Helper()
		d, err := datadir.Open(path, "a", false)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := open()
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
	none := note(generations.Start(json.RawMessage(`{"a":"<&>"}`)))
	second := note(none.Begin(json.RawMessage(`{"b":1}`), false))
	d.Close()
	d = open()
	defer d.Close()
	if is := d.Generations(); !is.Equal(second) {
		t.Errorf("%s", is.All[1].Counting)
	}
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
	}{
		{0, true, "beats dead"},
		{6 * time.Second, true, "beats dead"},
		{6500 * time.Millisecond, false, "beats dead"},
		{13 * time.Second, true, "beats dead"},
		{14 * time.Second, true, "beats"},
	} {
		if got := at(step.at, step.asked); got != step.want {
			t.Errorf("after %v there are %q, want %q", step.at, got, step.want)
		}
	}
}
