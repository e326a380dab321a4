package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/internal/node/checks"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/node/upkeep"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/archive"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

func (s *site) job(node, verb string, request any) (c checks.Checked, err error) {
	raw, err := job.Ask(s.T.Context(), s.NC, node, verb, request, nil)
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	return c, err
}

// archive backs up and archives what is there, and returns how far that reaches.
func (s *site) archive(n *Node, to, dir string) (last uint64) {
	s.T.Helper()
	s.checkpointed(n)
	s.backup(to, 0)
	d, err := upkeep.Archive(s.T.Context(), s.NC, upkeep.ArchiveOptions{Directory: dir, Logger: silent, Progress: func(*archive.Segment) {}})
	if err != nil {
		s.T.Fatal(err)
	}
	_, last, _ = d.Extent()
	return last
}

// trim has EVENTS begin with a message.
func (s *site) trim(begins uint64) {
	s.T.Helper()
	if _, err := s.streams().Trim(s.T.Context(), begins, "elsewhere", nil); err != nil {
		s.T.Fatal(err)
	}
	if state, err := s.streams().State(s.T.Context(), jetlog.EventsStream); err != nil || state.First != begins {
		s.T.Fatalf("EVENTS begins with %d, %v", state.First, err)
	}
}

// sums explains numbers whole, and returns their values, each the sum of what its
// events did.
func (s *site) sums(at string, ids int) string {
	s.T.Helper()
	var out strings.Builder
	for id := 1; id <= ids; id++ {
		for _, number := range []string{"user.follower", "user.commented", "user.following"} {
			var e explained
			sum, events := int64(0), 0
			for before := ""; ; { // a page may end early
				e = s.explain(fmt.Sprintf(`{"number":%q,"id":%d,"limit":1000,"min_position":%q,"timeout_ms":10000%s}`, number, id, at, before))
				for _, event := range e.Events {
					n, err := strconv.ParseInt(event.Change, 10, 64)
					if err != nil {
						s.T.Fatalf("%s of %d: %+v", number, id, event)
					}
					sum, events = sum+n, events+1
				}
				if before = `,"before":"` + e.Next + `"`; e.Next == "" {
					break
				}
			}
			if sum != e.Value || e.Base.Position != "0" || e.Base.Value != 0 {
				s.T.Errorf("%s of %d is %d, its events come to %d, after %+v", number, id, e.Value, sum, e.Base)
			}
			fmt.Fprintln(&out, number, id, e.Value, events)
		}
	}
	return out.String()
}

// "Older events may be archived as files that a replay reads like the
// stream": what is archived and trimmed is verified, recounted, explained and counted
// again as before. Without the archive what is missing is said; so is a gap, and what is
// damaged.
func TestArchiveIsReadLikeTheStream(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(21, 22))
	s := newSite(t)
	to, dir := filepath.Join(t.TempDir(), "backups"), filepath.Join(t.TempDir(), "archive")
	c := s.Config("a", "route hold answer")
	c.NATS.Streams.Events.Archive, c.Audit.Rate = dir, 0
	n := s.Start(c)
	s.Ready(n)
	bustle(s, r, 40)
	at := bustle(s, r, 1)
	everything(t, s.NC, at)
	if got := s.archive(n, to, dir); got != 41 {
		t.Fatalf("archived up to %d", got)
	}
	at = bustle(s, r, 13)
	answers, sums := everything(t, s.NC, at), s.sums(at, 12)
	verify := checks.VerifyAsk{Share: "1/1"}
	before, err := s.job("a", "verify", verify)
	if err != nil || before.Differs != 0 || before.IDs < backedPosts {
		t.Fatalf("%+v, %v", before, err)
	}

	whole := func(what string, n *Node, at, sums string) {
		t.Helper()
		if c, err := s.job("a", "verify", verify); err != nil || c.Differs+c.Notices != 0 || c.IDs < before.IDs || len(c.Skipped) != 0 {
			t.Errorf("%s: verify found %+v, %v", what, c, err)
		}
		if c, err := s.job("a", "recount", checks.RecountAsk{IDs: []uint64{1, 2, 3}}); err != nil || c.Differs != 0 || c.IDs != 3 {
			t.Errorf("%s: recount found %+v, %v", what, c, err)
		}
		if got := s.sums(at, 12); got != sums && sums != "" {
			t.Errorf("%s: explained is %s, want %s", what, got, sums)
		}
		if err := n.Serving().Inside().ComesFrom(nil); err != nil {
			t.Errorf("%s: a shard cannot be counted again: %v", what, err)
		}
	}
	s.trim(42) // where the archive ends
	whole("trimmed", n, at, sums)
	same(t, "trimmed", everything(t, s.NC, at), answers)
	// More is archived, and trimmed, while the node has the archive open.
	at = bustle(s, r, 7)
	everything(t, s.NC, at)
	if got := s.archive(n, to, dir); got != 61 {
		t.Fatalf("archived up to %d", got)
	}
	s.trim(50) // EVENTS has some of what is archived too
	at = bustle(s, r, 3)
	answers = everything(t, s.NC, at)
	whole("trimmed again", n, at, "")
	// What is gone behind the archive's end is not read from before it.
	gone := func(context.Context, pipeline.Position) (pipeline.Source, error) { return nil, pipeline.ErrGap }
	if source, err := n.Serving().History().Open(t.Context(), pipeline.EndOf(62), gone); !errors.Is(err, pipeline.ErrGap) {
		t.Errorf("it opens %v, %v", source, err)
	}

	// All that was counted is lost, and the windows: everything is counted again.
	s.Stop(n)
	lose := func() {
		t.Helper()
		for _, counts := range []string{datadir.BadgerDir, datadir.GenerationsDir} {
			if err := os.RemoveAll(filepath.Join(c.DataDir, counts)); err != nil {
				t.Fatal(err)
			}
		}
		js, err := jetstream.New(s.NC)
		if err == nil {
			err = js.DeleteStream(t.Context(), jetlog.DeltasStream)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	lose()
	n = s.Start(c)
	s.Ready(n)
	same(t, "counted again", everything(t, s.NC, at), answers)
	whole("counted again", n, at, "")
	s.Stop(n)
	if err := Repair(c, RepairOptions{Replay: true, Logger: silent}); err != nil {
		t.Fatal(err)
	}
	n = s.Start(c)
	s.Ready(n)
	same(t, "repaired", everything(t, s.NC, at), answers)
	s.Stop(n)

	says := func(what string, n *Node, words ...string) {
		t.Helper()
		_, err := s.job("a", "verify", verify)
		for _, word := range words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: verify says %v, want %s", what, err, word)
			}
		}
	}
	with := func(archive string) *Node {
		t.Helper()
		other := *c
		other.NATS.Streams.Events.Archive = archive
		n := s.Start(&other)
		s.Ready(n)
		return n
	}
	n = with("")
	says("no archive", n, "the log does not hold its beginning", "EVENTS begins with message 50", "elsewhere")
	if e := s.explain(`{"number":"user.follower","id":3,"limit":1000}`); e.Base.Position != fmt.Sprint(uint64(pipeline.EndOf(49))) {
		t.Errorf("an explanation begins after %s", e.Base.Position)
	}
	if err := n.Serving().Inside().ComesFrom(nil); err == nil || !strings.Contains(err.Error(), "begins with message 50") {
		t.Errorf("a shard can be counted again: %v", err)
	}
	s.Stop(n)
	n = with(t.TempDir())
	says("an empty one", n, "the log does not hold its beginning", "EVENTS begins with message 50", "nats.streams.events.archive", "there is nothing in ")
	s.Stop(n)

	n = with(dir)
	s.trim(64)
	says("a gap", n, "the log does not hold its beginning", dir+" ends with message 61: messages 62 to 63 are in neither")
	if e := s.explain(`{"number":"user.follower","id":3,"limit":1000}`); e.Base.Position != fmt.Sprint(uint64(pipeline.EndOf(63))) {
		t.Errorf("an explanation begins after %s", e.Base.Position)
	}
	s.Stop(n)
	lose()
	if why := startFails(t, s, c); !strings.Contains(why, "messages 62 to 63 are in neither") {
		t.Errorf("all is to be counted again: %s", why)
	}
}

// A segment that is not as it was written is named.
func TestDamagedArchiveIsNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	to, dir := filepath.Join(t.TempDir(), "backups"), filepath.Join(t.TempDir(), "archive")
	c := s.Config("a", "route hold answer")
	c.NATS.Streams.Events.Archive, c.Audit.Rate = dir, 0
	n := s.Start(c)
	s.Ready(n)
	everything(t, s.NC, bustle(s, rand.New(rand.NewPCG(1, 2)), 20))
	s.archive(n, to, dir)
	everything(t, s.NC, bustle(s, rand.New(rand.NewPCG(3, 4)), 5))
	s.trim(21)
	if c, err := s.job("a", "verify", checks.VerifyAsk{Share: "1/1"}); err != nil || c.Differs != 0 {
		t.Fatalf("%+v, %v", c, err)
	}
	bodies := filepath.Join(dir, "events-00000000000000000001.ndjson.zst")
	data, err := os.ReadFile(bodies)
	if err != nil {
		t.Fatal(err)
	}
	// Explanations go back in short runs: a segment is not read for each of them.
	explain := `{"number":"user.follower","id":3}`
	s.Asks("explain", explain, `"base":{"position":"0"`)
	if err := os.Rename(bodies, bodies+".away"); err != nil {
		t.Fatal(err)
	}
	s.Asks("explain", explain, `"base":{"position":"0"`)
	n.Serving().Inside().Explained.Forget() // as after a while

	damaged := append([]byte{}, data...)
	damaged[len(damaged)/2] ^= 1
	if err := os.WriteFile(bodies, damaged, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.job("a", "verify", checks.VerifyAsk{Share: "1/1"}); err == nil || !strings.Contains(err.Error(), "archive: messages 1 to 20: ") || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("verify says %v", err)
	}
	if reply := s.Ask("explain", explain); !strings.Contains(reply, "archive: messages 1 to 20: ") {
		t.Errorf("an explanation is %s", reply)
	}
	s.Stop(n)
	if err := os.WriteFile(bodies, data[:len(data)-1], 0o644); err != nil {
		t.Fatal(err)
	}
	n = s.Start(c)
	s.Ready(n)
	if _, err := s.job("a", "verify", checks.VerifyAsk{Share: "1/1"}); err == nil || !strings.Contains(err.Error(), filepath.Base(bodies)) {
		t.Errorf("verify says %v", err)
	}
	s.Stop(n)

	// One of another log is no beginning of this one.
	foreign := newSite(t)
	fc := foreign.Config("a", "route hold answer")
	fn := foreign.Start(fc)
	foreign.Ready(fn)
	everything(t, foreign.NC, bustle(foreign, rand.New(rand.NewPCG(1, 2)), 20))
	other := filepath.Join(t.TempDir(), "archive")
	foreign.archive(fn, filepath.Join(t.TempDir(), "backups"), other)
	n = s.Start(func() *config.Config { o := *c; o.NATS.Streams.Events.Archive = other; return &o }())
	s.Ready(n)
	if _, err := s.job("a", "verify", checks.VerifyAsk{Share: "1/1"}); err == nil || !strings.Contains(err.Error(), other+" is of the EVENTS created at ") {
		t.Errorf("verify says %v", err)
	}
}

// "Older events may be archived as files that a replay reads like the
// stream": a generation is derived of what was archived and trimmed, and compared with
// all of it. Without the archive, or with a gap, it is refused with what is missing.
func TestRebuildBelowTrimmed(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	s := siteOn(t, f.NC)
	to, dir := filepath.Join(t.TempDir(), "backups"), filepath.Join(t.TempDir(), "archive")
	f.Edit = func(c *config.Config) { c.Audit.Rate = 0 }
	n := f.Start("a")
	f.Publish(30)
	f.Until("all likes", func() bool { return f.Likes(30, 1) })
	if got := s.archive(n, to, dir); got != 30 {
		t.Fatalf("archived up to %d", got)
	}
	f.Publish(20)
	f.Until("all likes", func() bool { return f.Likes(20, 2) })
	s.trim(31)
	refused := func(what string, words ...string) {
		t.Helper()
		counting, err := fans(n.config).Counting()
		if err == nil {
			err = f.rebuild(RebuildVerb, f.confirmed(RebuildAsk{Counting: counting}), nil)
		}
		for _, word := range words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: it says %v, want %s", what, err, word)
			}
		}
	}
	refused("no archive", "EVENTS, which begins with message 31, so that 30 messages are missing", "nats.streams.events.archive", "backup elsewhere has")
	f.Stop(n)

	f.Edit = func(c *config.Config) { c.Audit.Rate, c.NATS.Streams.Events.Archive = 0, dir }
	n = f.Start("a")
	f.Until("all likes", func() bool { return f.Likes(20, 2) })
	if got := f.begin(fans(n.config), false); got != 2 {
		t.Fatalf("generation %d is building", got)
	}
	f.serves(2, n)
	f.Until("the new column", f.Has("post", "fans", 7, 2))
	f.Until("the new column", f.Has("post", "fans", 27, 1))
	if status := f.status(); status.Differs != 0 || status.Serving != 2 || !f.Likes(20, 2) {
		t.Errorf("%+v", status)
	}
	if c, err := s.job("a", "verify", checks.VerifyAsk{Share: "1/1"}); err != nil || c.Differs != 0 || c.IDs != 30 {
		t.Errorf("%+v, %v", c, err)
	}

	g := newFleet(t)
	s = siteOn(t, g.NC)
	g.Edit = f.Edit
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	n = g.Start("a")
	g.Publish(30)
	g.Until("all likes", func() bool { return g.Likes(30, 1) })
	s.archive(n, filepath.Join(t.TempDir(), "backups"), dir)
	g.Publish(10)
	s.trim(36)
	f = g
	refused("a gap", "a rebuild needs all of EVENTS", dir+" ends with message 30: messages 31 to 35 are in neither")
}
