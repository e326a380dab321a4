package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

// has2 says whether a directory has counts of generation 2.
func has2(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, datadir.GenerationsDir, "2", datadir.BadgerDir))
	return err == nil
}

// swept waits until a node has looked for counts that are of no use.
func (f *fleet) swept(n *Node) {
	f.T.Helper()
	f.Until("it has looked for what is left over", func() bool { return n.rebuilds.left.Load() != nil })
}

// "Of two records the higher epoch wins, whoever starts first": a node that was restored from before the
// rebuild starts first, and the bucket is as it was. It waits for the node that holds
// generation 2, which is to be replaced only after cluster.replace_after, and answers
// nothing by generation 1. The intact node keeps what it has. Where all that the server had is
// lost but EVENTS, the restored node begins with what it has, and obeys the intact one once
// that is there.
func TestRestoredStartsFirst(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Edit = func(c *config.Config) { c.Cluster.Replicas, c.Audit.Rate = 2, 0 }
	a, b := f.Start("a"), f.Start("b")
	f.Publish(40)
	f.Until("all on both", func() bool { return holdsAll(a) && holdsAll(b) })
	f.Until("all likes", func() bool { return f.Likes(40, 1) })
	to := filepath.Join(t.TempDir(), "backups")
	f.backup(to)
	f.begin(fans(a.config), false)
	f.serves(2, a, b)
	f.Until("all on both", func() bool { return holdsAll(a) && holdsAll(b) })
	f.Publish(40)
	f.Until("all fans", f.Has("post", "fans", 7, 2))
	intact := f.Dirs["b"]
	restored := func() {
		t.Helper()
		f.Stop(a)
		f.Stop(b)
		f.restore("a", to, func(*config.Config) {})
	}
	keeps := func() {
		t.Helper()
		b = f.Start("b")
		f.serves(2, a, b)
		f.Until("all fans", f.Has("post", "fans", 7, 3))
		f.swept(b)
		if s := f.record(); s.Serving != 2 || s.Newest != 2 || !has2(intact) {
			t.Errorf("%+v, b has %v", s, f.stored("b"))
		}
	}

	restored()
	f.Publish(40)
	a = f.Start("a")
	f.serves(2, a)
	f.Until("it says what it lacks", func() bool {
		err := a.Ready()
		return err != nil && strings.Contains(err.Error(), "shards")
	})
	if reply := f.Get("post", "like", 7); !strings.Contains(reply, "missing") {
		t.Errorf("it answers %s", reply)
	}
	keeps()

	restored()
	for _, stream := range []string{"KV_" + jetlog.Bucket, "DELTAS", "DELTAS2"} {
		if err := f.JetStream().DeleteStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
	}
	a = f.Start("a")
	f.Until("all likes", func() bool { return f.Likes(40, 3) })
	if a.Serving().Number != 1 {
		t.Fatalf("generation %d serves", a.Serving().Number)
	}
	keeps()
}

// A node returns alone with the counts of a superseded generation. It answers by the one
// that serves, which it counts from EVENTS, and refuses no event that this one counts.
func TestSupersededReturnsAlone(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Edit = func(c *config.Config) { c.Rebuild.Keep = 0 }
	n := f.Start("a")
	f.Publish(40)
	f.Until("all likes", func() bool { return f.Likes(40, 1) })
	f.Stop(n)
	intact, superseded := f.Dirs["a"], t.TempDir()
	if err := os.CopyFS(superseded, os.DirFS(intact)); err != nil {
		t.Fatal(err)
	}
	n = f.Start("a")
	f.begin(fans(n.config), false)
	f.serves(2, n)
	f.Until("the first is dropped", func() bool {
		_, err := f.JetStream().Stream(t.Context(), "DELTAS")
		s := n.rebuilds.set()
		return s.Kept == 0 && s.All[2].Letters == 0 && err != nil
	})
	f.Stop(n)
	f.Publish(40)
	before := f.record()

	f.Dirs["a"] = superseded
	n = f.Start("a")
	f.Until("it answers by what serves", f.Has("post", "fans", 7, 2))
	if n.Serving().Number != 2 || !f.record().Equal(before) {
		t.Errorf("generation %d serves, by %+v", n.Serving().Number, f.record())
	}
	f.Stop(n)

	// The bucket is lost, and a node without counts is first. Once the one that knows more is
	// there, its record holds.
	f.Dirs["a"] = t.TempDir()
	if err := f.Bucket().Purge(t.Context(), recordKey); err != nil {
		t.Fatal(err)
	}
	n = f.Start("a")
	f.serves(1, n)
	f.Until("all likes", func() bool { return f.Likes(40, 2) })
	f.Stop(n)
	f.Dirs["a"] = intact
	n = f.Start("a")
	f.serves(2, n)
	f.Until("it answers by what serves", f.Has("post", "fans", 7, 2))
}

// "`repair --replay` ends all generations: the record and both slots", and other nodes
// follow: one that was away while another generation came takes what others say, gets the
// counts from them, and only then deletes its own.
func TestReplayEndsGenerations(t *testing.T) {
	natstest.Long(t)
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
	f.Stop(a)
	f.Publish(40)
	f.Until("all likes", func() bool { return f.Likes(40, 2) })
}

// A data directory that was copied to a second machine is a second process of one name: it
// is refused while the first one runs, and nothing is counted twice when it goes on instead.
func TestCopiedDirectory(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a := f.Start("a")
	f.Publish(40)
	f.Until("all likes", func() bool { return f.Likes(40, 1) })
	f.Stop(a)
	original, copied := f.Dirs["a"], t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(original)); err != nil {
		t.Fatal(err)
	}
	a = f.Start("a")
	f.Publish(40)
	f.Until("all likes", func() bool { return f.Likes(40, 2) })
	f.Dirs["a"] = copied
	n, err := Start(t.Context(), f.Plain("a"), Options{Version: "test", Processors: 2, Logger: f.Logger()})
	if err == nil {
		n.Close()
	}
	if !errors.Is(err, bucket.ErrNameTaken) {
		t.Errorf("the copy starts beside the original: %v", err)
	}
	f.Stop(a)
	n = f.Start("a") // the copy, which is older
	f.Until("all likes", func() bool { return f.Likes(40, 2) })
	f.Stop(n)
	f.Publish(40)
	f.Dirs["a"] = original
	f.Start("a")
	f.Until("all likes", func() bool { return f.Likes(40, 3) })
}

// A data directory of an earlier build is refused with a line that says what to do, and that
// does it.
func TestEarlierBuild(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.Start("a")
	f.Publish(40)
	f.Until("all likes", func() bool { return f.Likes(40, 1) })
	f.Stop(n)
	dir := f.Dirs["a"]
	marker := filepath.Join(dir, datadir.MarkerFile)
	if err := os.Rename(filepath.Join(dir, datadir.GenerationsDir, "1", datadir.BadgerDir), filepath.Join(dir, datadir.BadgerDir)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(marker, []byte(`{"format":2,"node":"a","counting":"9f0c"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), f.Plain("a"), Options{Version: "test", Processors: 2, Logger: f.Logger()})
	if err == nil || !strings.Contains(err.Error(), "has format 2 and this version reads format 1: 'tidemark repair --replay' counts its EVENTS again") {
		t.Fatalf("it starts: %v", err)
	}
	if err := Repair(f.Plain("a"), RepairOptions{Replay: true, Logger: f.Logger()}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, datadir.BadgerDir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what the earlier build stored is there still: %v", err)
	}
	f.Start("a")
	f.Until("all likes", func() bool { return f.Likes(40, 1) })
}
