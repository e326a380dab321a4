package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/internal/node/checks"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks/backup"
)

func (s *site) job(node, verb string, request any) (c checks.Checked, err error) {
	raw, err := job.Ask(s.T.Context(), s.NC, node, verb, request, nil)
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	return c, err
}

// verify compares everything.
func (s *site) verify() (checks.Checked, error) {
	return s.job("a", "verify", checks.Ask{Share: "1/1"})
}

// unverified says that verify fails, with some words.
func (s *site) unverified(what string, words ...string) {
	s.T.Helper()
	c, err := s.verify()
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			s.T.Errorf("%s: verify says %+v, %v, want %s", what, c, err, word)
		}
	}
}

// archived backs up and archives what is there, and returns how far that reaches.
func (s *site) archived(n *Node, to, dir string) (last uint64) {
	s.T.Helper()
	s.checkpointed(n)
	s.backup(to, 0)
	_, last, _ = s.archives(dir).Extent()
	return last
}

// "Older events may be archived as files that a replay reads like the stream": what is
// archived and trimmed is verified, recounted, explained, counted again and rebuilt as before.
// Without the archive what is missing is said; so is a gap, and what is damaged.
func TestArchiveIsReadLikeTheStream(t *testing.T) {
	t.Parallel()
	const explain = `{"number":"user.follower","id":3,"limit":1000}`
	r := rand.New(rand.NewPCG(21, 22))
	s := newSite(t)
	to, dir := filepath.Join(t.TempDir(), "backups"), filepath.Join(t.TempDir(), "archive")
	c := s.Config("a", "route hold answer")
	c.NATS.Streams.Events.Archive, c.Audit.Rate = dir, 0
	n := s.Start(c)
	s.Ready(n)
	everything(t, s.NC, bustle(s, r, 41))
	if got := s.archived(n, to, dir); got != 41 {
		t.Fatalf("archived up to %d", got)
	}
	at := bustle(s, r, 13)
	answers := everything(t, s.NC, at)
	before, err := s.verify()
	if err != nil || before.Differs != 0 || before.IDs < backedPosts {
		t.Fatalf("%+v, %v", before, err)
	}
	whole := func(what string) {
		t.Helper()
		if c, err := s.verify(); err != nil || c.Differs+c.Notices != 0 || c.IDs < before.IDs || len(c.Skipped) != 0 {
			t.Errorf("%s: verify found %+v, %v", what, c, err)
		}
		if c, err := s.job("a", "recount", checks.Ask{IDs: []uint64{1, 2, 3}}); err != nil || c.Differs != 0 ||
			c.IDs != 3 {
			t.Errorf("%s: recount found %+v, %v", what, c, err)
		}
		if err := n.Serving().Inside().ComesFrom(nil); err != nil {
			t.Errorf("%s: a shard cannot be counted again: %v", what, err)
		}
	}
	s.trimTo(42, "elsewhere") // where the archive ends
	whole("trimmed")
	s.Asks("explain", explain, `"base":{"position":"0"`)
	same(t, "trimmed", everything(t, s.NC, at), answers)
	// More is archived, and trimmed, while the node has the archive open.
	everything(t, s.NC, bustle(s, r, 7))
	if got := s.archived(n, to, dir); got != 61 {
		t.Fatalf("archived up to %d", got)
	}
	s.trimTo(50, "elsewhere") // EVENTS has some of what is archived too
	at = bustle(s, r, 3)
	answers = everything(t, s.NC, at)
	whole("trimmed again")

	// All that was counted is lost, and the windows: everything is counted again.
	s.Stop(n)
	lose := func() {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(c.DataDir, datadir.GenerationsDir)); err != nil {
			t.Fatal(err)
		}
		if err := s.streams().Delete(t.Context(), jetlog.DeltasStream); err != nil {
			t.Fatal(err)
		}
	}
	lose()
	n = s.Start(c)
	s.Ready(n)
	same(t, "counted again", everything(t, s.NC, at), answers)
	whole("counted again")
	s.Stop(n)

	with := func(archive string) {
		t.Helper()
		other := *c
		other.NATS.Streams.Events.Archive = archive
		n = s.Start(&other)
		s.Ready(n)
	}
	rebuilds := func() (err error) {
		counting, err := fans(c).Counting()
		if err != nil {
			t.Fatal(err)
		}
		s.Until("it routes", func() error {
			_, err = job.Ask(t.Context(), s.NC, "a", RebuildVerb, RebuildAsk{Counting: counting}, nil)
			if e, ok := errors.AsType[*job.Error](err); ok && e.Code == job.CodeGone {
				return err
			}
			return nil
		})
		return err
	}
	with("")
	s.unverified("no archive", "the log does not hold its beginning", "EVENTS begins with message 50", "elsewhere")
	s.Asks("explain", explain, fmt.Sprintf(`"base":{"position":"%d"`, pipeline.EndOf(49)))
	if err := n.Serving().Inside().ComesFrom(nil); err == nil || !strings.Contains(err.Error(), "begins with message 50") {
		t.Errorf("a shard can be counted again: %v", err)
	}
	err = rebuilds()
	for _, word := range []string{"EVENTS, which begins with message 50, so that 49 messages are missing", "nats.streams.events.archive"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("a rebuild without them: %v, want %s", err, word)
		}
	}
	s.Stop(n)
	with(t.TempDir())
	s.unverified("an empty one", "EVENTS begins with message 50", "nats.streams.events.archive", "there is nothing in ")
	s.Stop(n)

	with(dir)
	if err := rebuilds(); err != nil {
		t.Fatal(err)
	}
	s.Until("it serves", func() error {
		if n.Serving().Number != 2 {
			return errors.New("generation 1 serves")
		}
		return nil
	})
	whole("rebuilt")
	s.Stop(n)

	// Damage of a file is named, and so is a gap.
	bodies := filepath.Join(dir, "events-00000000000000000001.ndjson.zst")
	data, err := os.ReadFile(bodies)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	overwrite(t, bodies, data)
	with(dir)
	s.unverified("a turned byte", "archive: messages 1 to 41: ", "damaged")
	if reply := s.Ask("explain", explain); !strings.Contains(reply, "archive: messages 1 to 41: ") {
		t.Errorf("an explanation is %s", reply)
	}
	data[len(data)/2] ^= 1
	overwrite(t, bodies, data)
	s.trimTo(64, "elsewhere")
	s.unverified("a gap", "the log does not hold its beginning", dir+" ends with message 61: messages 62 to 63 are in neither")
	s.Stop(n)
	if err := os.RemoveAll(filepath.Join(c.DataDir, datadir.GenerationsDir)); err != nil {
		t.Fatal(err)
	}
	if err := s.streams().Delete(t.Context(), "DELTAS2"); err != nil {
		t.Fatal(err)
	}
	if why := startFails(t, s, c); !strings.Contains(why, "messages 62 to 63 are in neither") {
		t.Errorf("all is to be counted again: %s", why)
	}
}

// docs/contract.md: "only below the newest verified backup": then verify and recount go on
// from the oldest one that EVENTS goes on from, and say which that is. What cannot stand for
// it is said, and why; one that is damaged is named, and not used.
func TestBackupStandsForWhatIsTrimmed(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(31, 32))
	s := newSite(t)
	c := s.Config("a", "route hold answer")
	c.Audit.Rate, c.Checkpoint.Interval = 0, time.Hour // when it is stopped
	n := s.Start(c)
	s.Ready(n)
	again := func() {
		t.Helper()
		s.Stop(n)
		n = s.Start(c)
		s.Ready(n)
	}
	to := filepath.Join(t.TempDir(), "backups")
	everything(t, s.NC, bustle(s, r, 40))
	again()
	everything(t, s.NC, bustle(s, r, 6)) // behind where the shards are checkpointed
	one := s.backup(to, 0)
	if one.From == one.Position || one.From == 0 {
		t.Fatalf("the backup is of %d to %d", one.From, one.Position)
	}
	everything(t, s.NC, bustle(s, r, 20))
	before, err := s.verify()
	if err != nil || before.Base != "" || before.IDs < backedPosts {
		t.Fatalf("%+v, %v", before, err)
	}
	good := func(what string, m *backup.Manifest) (c checks.Checked) {
		t.Helper()
		c, err := s.verify()
		if err != nil || c.Differs+c.Notices != 0 || c.IDs < before.IDs*9/10 || len(c.Skipped) != 0 ||
			!strings.Contains(c.Base, m.ID) || !strings.Contains(c.Base, to) {
			t.Errorf("%s: verify found %+v of %d ids, %v", what, c, before.IDs, err)
		}
		for _, ask := range []checks.Ask{{IDs: []uint64{1, 2, 3, 1 << 50}}, {Counter: "post", IDs: []uint64{1, 2, 3, 4}}} {
			if c, err := s.job("a", "recount", ask); err != nil || c.Differs != 0 || c.IDs != 4 ||
				!strings.Contains(c.Base, m.ID) {
				t.Errorf("%s: recount found %+v, %v", what, c, err)
			}
		}
		return c
	}
	s.trimTo(one.From.Next(), to)
	good("what is not in the backup is there", one)
	s.trimTo(one.Position.Next(), to)
	good("what the backup has itself is gone", one)

	again()
	two := s.backup(to, 0)
	everything(t, s.NC, bustle(s, r, 10))
	good("the older one reaches as well", one)
	c.Audit.Memory, c.Backup.To = 16<<10, to
	again()
	good("in little memory", one)
	if n := n.Serving().Inside().Auditor.Stats.Spills.Load(); n == 0 {
		t.Error("nothing was written to scratch files")
	}
	s.trimTo(two.Position.Sequence()-3, "elsewhere") // backup.to is what counts
	good("the older one ends too early", two)
	s.trimTo(two.Position.Next(), to)
	for _, path := range files(t, to) {
		name, err := filepath.Rel(to, path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(name, two.ID) && two.Objects()[filepath.ToSlash(name)] == 0 {
			continue // of the older one
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at := r.IntN(len(b))
		b[at] ^= 1
		overwrite(t, path, b)
		s.unverified(fmt.Sprintf("byte %d of %s is turned", at, path), two.ID, "the log does not hold its beginning")
		b[at] ^= 1
		overwrite(t, path, b)
	}
	good("nothing is damaged", two)

	ends := two.Position.Sequence()
	s.trimTo(ends+3, to)
	missing := fmt.Sprintf("messages %d to %d are missing", ends+1, ends+2)
	s.unverified("too early", "the log does not hold its beginning", two.ID, fmt.Sprintf("ends with message %d", ends), missing)
	good("another one", s.backup(to, 0))
	c.Backup.To = filepath.Join(t.TempDir(), "nothing")
	again()
	s.unverified("it is not there", "EVENTS begins with message ", "cannot be read", c.Backup.To)
}
