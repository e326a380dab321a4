package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/node/history"
	"github.com/tidemark-io/tidemark/internal/node/upkeep"
	"github.com/tidemark-io/tidemark/internal/nodetest"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks/backup"
)

func (f *fleet) backup(to string) *backup.Manifest {
	f.T.Helper()
	m, err := upkeep.Backup(f.T.Context(), f.NC, upkeep.BackupOptions{To: to, Logger: f.Logger()})
	if err != nil {
		f.T.Fatal(err)
	}
	return m
}

// trim says why nothing may be trimmed.
func (f *fleet) trim(from string) string {
	_, err := upkeep.Trim(f.T.Context(), f.NC, upkeep.TrimOptions{Keep: 2 * time.Minute, From: from, Logger: f.Logger()})
	if err != nil {
		return err.Error()
	}
	return ""
}

// restore restores into a new directory of the node.
func (f *fleet) restore(name, from string, edit func(*config.Config)) {
	f.T.Helper()
	c := nodetest.EachLikeCounts()
	f.Dirs[name] = filepath.Join(f.T.TempDir(), "restored")
	c.Node, c.DataDir, c.NATS.URL, c.HTTP.Listen, c.Shards = name, f.Dirs[name], f.URL, "", nodetest.Shards
	edit(c)
	if _, err := Restore(f.T.Context(), c, RestoreOptions{From: from, Logger: f.Logger()}); err != nil {
		f.T.Fatal(err)
	}
}

func withFans(c *config.Config) { *c = *fans(c) }

// docs/replay.md: "While one builds, EVENTS is not trimmed"; "EVENTS is
// never trimmed below a backup of another generation than the one that serves." A
// generation that does not open harms nobody: it is tried again.
func TestRebuildKeepsEventsWhole(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.Start("a")
	f.Publish(20)
	f.Until("all likes", func() bool { return f.Likes(20, 1) })
	to := filepath.Join(t.TempDir(), "backups")
	if m := f.backup(to); m.Generation() != 1 || m.Generations.Newest != 1 {
		t.Errorf("%+v", m)
	}
	if why := f.trim(to); why != "" {
		t.Error(why)
	}
	blocks := filepath.Join(f.Dirs["a"], datadir.GenerationsDir)
	if err := os.WriteFile(blocks, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.begin(fans(n.config), false)
	f.Until("it says that it does not open", func() bool {
		s := f.status()
		return s.State == generations.Building && strings.Contains(s.Why, blocks) && len(s.Nodes) == 1 && strings.Contains(s.Nodes[0].Trouble, blocks)
	})
	if why := f.trim(to); !strings.Contains(why, "generation 2 is being built") {
		t.Errorf("it is trimmed: %s", why)
	}
	if err := n.Ready(); err != nil || !strings.Contains(n.remarks(), blocks) {
		t.Errorf("%v; %s", err, n.remarks())
	}
	f.Publish(20)
	f.Until("what comes is counted", func() bool { return f.Likes(20, 2) })
	if err := os.Remove(blocks); err != nil {
		t.Fatal(err)
	}
	f.serves(2, n)
	if why := f.trim(to); !strings.Contains(why, "is of generation 1, and generation 2 serves") {
		t.Errorf("it is trimmed: %s", why)
	}
	if m := f.backup(to); m.Generation() != 2 || m.Generations.Kept != 0 || len(m.Generations.All) != 1 {
		t.Errorf("%+v", m.Generations)
	}
	if why := f.trim(to); why != "" {
		t.Error(why)
	}
}

// docs/replay.md: "While one builds, EVENTS is not trimmed": not either where both begin
// at once. A trim sets a mark, and looks at the record after that; a rebuild looks at the
// mark.
func TestTrimAndRebuildAtOnce(t *testing.T) {
	f := newFleet(t)
	n := f.Start("a")
	f.Publish(20)
	f.Until("all likes", func() bool { return f.Likes(20, 1) })
	to := filepath.Join(t.TempDir(), "backups")
	m := f.backup(to)
	streams := n.Serving().Inside().Streams
	state := func() jetlog.StreamState {
		state, err := streams.State(t.Context(), jetlog.EventsStream)
		if err != nil {
			t.Fatal(err)
		}
		return state
	}
	looked := make(chan error, 1)
	_, err := streams.Trim(t.Context(), 11, to, func(context.Context) error {
		if why := n.Serving().History().LacksOf(state()); why == nil || !strings.Contains(why.Error(), "is being trimmed below 11: ask again") {
			t.Errorf("who does not wait: %v", why)
		}
		go func() { looked <- n.Serving().History().Lacks(t.Context()) }()
		select {
		case err := <-looked:
			t.Errorf("a rebuild does not wait: %v", err)
			looked <- nil
		case <-time.After(2 * history.TrimEvery):
		}
		return errNotNow
	})
	if !errors.Is(err, errNotNow) {
		t.Fatal(err)
	}
	if err := <-looked; err != nil {
		t.Errorf("nothing was trimmed, and a rebuild is refused: %v", err)
	}
	look := func() error { return upkeep.StillTrimmable(t.Context(), f.NC, m, to, state().Created) }
	if err := look(); err != nil {
		t.Errorf("nothing is being built: %v", err)
	}
	counting, err := fans(n.config).Counting()
	if err != nil {
		t.Fatal(err)
	}
	lead := &n.Serving().Inside().Router.Stats.Active
	lead.Store(false) // or the leader may see the mark first, and the rebuild gives way
	_, err = streams.Trim(t.Context(), 11, to, func(context.Context) error {
		// It has looked before there was a mark.
		_, err := n.changeRecord(t.Context(), func(now generations.Set) (generations.Set, error) { return now.Begin(counting, false) })
		if err != nil {
			t.Error(err)
		}
		return look()
	})
	if s := state(); err == nil || !strings.Contains(err.Error(), "generation 2 is being built") || s.First != 1 || s.Trimmed.Below != 0 {
		t.Errorf("it is trimmed: %v; %+v", err, s)
	}
	// And the other way round: it begins after the trim has looked at the record.
	if _, err := streams.Trim(t.Context(), 11, to, nil); err != nil {
		t.Fatal(err)
	}
	lead.Store(true)
	f.Until("it is aborted, and why is said", func() bool {
		s := f.record()
		return s.State == generations.Aborted && strings.Contains(s.Why, "trimmed below 11")
	})
}

var errNotNow = errors.New("not now")

// "`restore` puts the counts of a backup into the place of their
// generation, and records which generations there are"; "A manifest that names no
// generation is of generation 1".
func TestRestoreOfAGeneration(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.Start("a")
	first, second := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second")
	f.Publish(40)
	f.Until("all likes", func() bool { return f.Likes(40, 1) })
	f.backup(first)
	f.begin(fans(n.config), false)
	f.serves(2, n)
	f.backup(second)
	f.Publish(40)
	f.Until("all likes", func() bool { return f.Likes(40, 2) })
	f.Stop(n)

	f.restore("a", second, withFans)
	if s := f.stored("a"); len(s) != 1 || !strings.Contains(s[0], filepath.Join(datadir.GenerationsDir, "2")) {
		t.Errorf("stored are %v", s)
	}
	// Nothing is wrong where the record is older than what was restored, or is gone.
	quiet := func() {
		t.Helper()
		f.Until("the record is as it was restored", func() bool { return f.record().Epoch != 0 && f.record().Equal(n.rebuilds.set()) })
		for line := range strings.Lines(f.Log.String()) {
			if strings.Contains(line, "level=ERROR") || strings.Contains(line, "record of the generations was gone") {
				t.Error(line)
			}
		}
	}
	if err := f.Bucket().Purge(t.Context(), recordKey); err != nil {
		t.Fatal(err)
	}
	f.Edit = withFans
	n = f.Start("a")
	f.serves(2, n)
	f.Until("all likes", func() bool { return f.Likes(40, 2) })
	f.Until("all fans", f.Has("post", "fans", 7, 2))
	quiet()
	f.Stop(n)

	// From before the rebuild: generation 2, by which the record and its windows are, is
	// derived from EVENTS. What was restored is not served.
	f.Edit = nil
	f.restore("a", first, func(*config.Config) {})
	n = f.Start("a")
	f.serves(2, n)
	f.Until("all likes", func() bool { return f.Likes(40, 2) })
	f.Until("all fans", f.Has("post", "fans", 7, 2))
	quiet()
	if got := f.begin(fans(n.config), false); got != 3 {
		t.Errorf("generation %d is built next", got)
	}
	f.serves(3, n)
	f.Until("all fans", f.Has("post", "fans", 7, 2))
}

// "`repair --replay` ends all generations: the record and both slots",
// and other nodes follow.
func TestReplayEndsGenerations(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Edit = func(c *config.Config) { c.Cluster.Replicas, c.Rebuild.Keep = 2, time.Minute }
	a, b := f.Start("a"), f.Start("b")
	f.Publish(40)
	f.Until("all on both", func() bool { return holdsAll(a) && holdsAll(b) })
	f.begin(fans(a.config), false)
	f.serves(2, a, b)
	c := *a.config
	c.Shards = 4
	repair := func() error { return Repair(&c, RepairOptions{Replay: true, Logger: f.Logger()}) }
	f.Stop(a)
	if err := repair(); err == nil || !strings.Contains(err.Error(), "must be stopped") {
		t.Errorf("another node runs: %v", err)
	}
	f.Stop(b)
	if err := repair(); err != nil {
		t.Fatal(err)
	}
	if s := f.stored("a"); len(s) != 0 {
		t.Errorf("stored are %v", s)
	}
	f.Edit = func(c *config.Config) { c.Shards, c.Cluster.Replicas, c.Rebuild.Keep = 4, 2, 0 }
	a = f.Start("a")
	f.serves(3, a)
	f.Until("all likes", func() bool { return f.Likes(40, 1) })
	b = f.Start("b")
	f.serves(3, b)
	f.Until("all on both", func() bool { return holdsAll(a) && holdsAll(b) })
	f.Until("b's old counts are gone", func() bool { s := f.stored("b"); return len(s) == 1 && strings.Contains(s[0], "3") })
	f.Publish(40)
	f.Until("all likes", func() bool { return f.Likes(40, 2) })
}
