package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

// beforeTheRebuild are two nodes that both hold everything, are backed up, rebuilt to
// generation 2, and stopped. Then a is restored from before the rebuild.
func (f *fleet) beforeTheRebuild() (intact string) {
	f.T.Helper()
	f.Edit = func(c *config.Config) { c.Cluster.Replicas, c.Audit.Rate = 2, 0 }
	a, b := f.Start("a"), f.Start("b")
	f.Publish(40)
	f.Until("all on both", func() bool { return holdsAll(a) && holdsAll(b) })
	f.Until("all likes", func() bool { return f.Likes(40, 1) })
	to := filepath.Join(f.T.TempDir(), "backups")
	f.backup(to)
	f.begin(fans(a.config), false)
	f.serves(2, a, b)
	f.Until("all on both", func() bool { return holdsAll(a) && holdsAll(b) })
	f.Publish(40)
	f.Until("all fans", f.Has("post", "fans", 7, 2))
	intact = f.Dirs["b"]
	f.Stop(a)
	f.Stop(b)
	f.restore("a", to, func(*config.Config) {})
	return intact
}

// has3 says whether a node has counts of generation 3.
func (f *fleet) has3(name string) bool {
	_, err := os.Stat(filepath.Join(f.Dirs[name], datadir.GenerationsDir, "3", datadir.BadgerDir))
	return err == nil
}

// has2 says whether a directory has counts of generation 2.
func has2(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, datadir.GenerationsDir, "2", datadir.BadgerDir))
	return err == nil
}

// "A record that is older never wins over one that a node holds; a
// superseded generation never serves by itself": a node that was restored from before the
// rebuild starts first, and the bucket is as it was. It waits for the node that holds
// generation 2, which is to be replaced only after cluster.replace_after, and answers
// nothing by generation 1. The intact node keeps what it has.
func TestRestoredStartsFirst(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	intact := f.beforeTheRebuild()
	f.Publish(40)
	a := f.Start("a")
	f.serves(2, a)
	f.Until("it says what it lacks", func() bool {
		err := a.Ready()
		return err != nil && strings.Contains(err.Error(), "shards")
	})
	if reply := f.Get("post", "like", 7); !strings.Contains(reply, "missing") {
		t.Errorf("it answers %s", reply)
	}
	t.Log(a.Ready())
	b := f.Start("b")
	f.serves(2, a, b)
	time.Sleep(sweepEvery + 4*rebuildsEvery)
	if s := f.record(); s.Serving != 2 || !has2(intact) || b.Serving().Number != 2 {
		t.Errorf("%+v, b has %v", s, f.stored("b"))
	}
	f.Until("all fans", f.Has("post", "fans", 7, 3))
}

// The same where all that the server had is lost but EVENTS: the restored node begins with
// what it has, and obeys the intact one once that is there.
func TestRestoredStartsFirstWithoutABucket(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	intact := f.beforeTheRebuild()
	js := f.JetStream()
	for _, stream := range []string{"KV_TIDEMARK", "DELTAS", "DELTAS2"} {
		if err := js.DeleteStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
	}
	a := f.Start("a")
	f.Until("all likes", func() bool { return f.Likes(40, 2) })
	if a.Serving().Number != 1 {
		t.Fatalf("generation %d serves", a.Serving().Number)
	}
	time.Sleep(4 * rebuildsEvery)
	b := f.Start("b")
	if b.Serving().Number != 2 || !has2(intact) {
		t.Fatalf("the intact node serves generation %d, and has %v", b.Serving().Number, f.stored("b"))
	}
	f.serves(2, a, b)
	f.Until("all fans", f.Has("post", "fans", 7, 2))
	time.Sleep(sweepEvery + 4*rebuildsEvery)
	if s := f.record(); s.Serving != 2 || s.Newest != 2 || !has2(intact) {
		t.Errorf("%+v, b has %v", s, f.stored("b"))
	}
}

// A node that was forgotten returns alone with the counts of a superseded generation. It
// answers by the one that serves, which it counts from EVENTS, and refuses no event that
// this one counts; where that cannot be known it waits.
func TestSupersededReturnsAlone(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Edit = func(c *config.Config) {
		c.Rebuild.Keep, c.Cluster.Replicas, c.Cluster.ReplaceAfter = 0, 2, 2*bucket.MemberExpiry
	}
	a, b := f.Start("a"), f.Start("b")
	f.Publish(40)
	f.Until("all on both", func() bool { return holdsAll(a) && holdsAll(b) })
	f.Stop(a)
	f.Until("it is away", func() bool {
		m, there := b.Serving().Inside().Members.View().Member("a")
		return there && m.Stopped
	})
	f.Forget("a")
	f.Until("b has all", func() bool { return holdsAll(b) && len(b.Serving().View().Members) == 1 })
	f.begin(fans(b.config), false)
	f.serves(2, b)
	f.Until("the first is dropped", func() bool { s := b.rebuilds.set(); return s.Kept == 0 && s.All[2].Letters == 0 })
	f.Until("its windows are gone", func() bool { _, err := f.JetStream().Stream(t.Context(), "DELTAS"); return err != nil })
	f.Stop(b)
	f.Publish(40)
	before := f.record()

	a = f.Start("a")
	f.Until("it answers by what serves", f.Has("post", "fans", 7, 2))
	if a.Serving().Number != 2 || !f.record().Equal(before) {
		t.Errorf("generation %d serves, by %+v", a.Serving().Number, f.record())
	}
	f.Stop(a)

	// Nobody knows what generation 2 counts by: the bucket is lost, and a's copy.
	if err := os.RemoveAll(f.Dirs["a"]); err != nil {
		t.Fatal(err)
	}
	if err := f.Bucket().Purge(t.Context(), recordKey); err != nil {
		t.Fatal(err)
	}
	f.waiting(f.Plain("a"), "the windows in slot 1 are of generation 2")()
	b = f.Start("b")
	f.serves(2, b)
	f.Until("it answers by what serves", f.Has("post", "fans", 7, 2))
}

// "Malformed and forged records of generations do not keep all nodes
// from starting": also when all start at the same moment and each has nothing but its
// copy.
func TestAllStartByAForgedRecord(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a, b := f.Start("a"), f.Start("b")
	f.Publish(40)
	f.Until("all likes", func() bool { return f.Likes(40, 1) })
	known := a.rebuilds.set()
	forge := func(change func(s *generations.Set, g *generations.Generation)) []byte {
		s, g := known, known.All[1]
		change(&s, &g)
		s.All = map[generations.Number]generations.Generation{s.Serving: g}
		text, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	other, err := fans(a.config).Counting()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"garbage":                      []byte(`{"epoch":"x"`),
		"huge":                         []byte(strings.Repeat("x", 600<<10)),
		"nonsense":                     []byte(`{"epoch":"3","serving":1,"newest":1,"generations":{"1":{"slot":9}}}`),
		"a far epoch":                  forge(func(s *generations.Set, _ *generations.Generation) { s.Epoch = 1 << 47 }),
		"an unknown generation":        forge(func(s *generations.Set, _ *generations.Generation) { s.Epoch, s.Serving, s.Newest = 9, 9, 9 }),
		"the number, another counting": forge(func(s *generations.Set, g *generations.Generation) { s.Epoch, g.Counting = 9, other }),
		"the same epoch, and another":  forge(func(_ *generations.Set, g *generations.Generation) { g.Counting = other }),
		"a counting that is none":      forge(func(s *generations.Set, g *generations.Generation) { s.Epoch, g.Counting = 9, []byte(`{}`) }),
	} {
		f.Stop(a)
		f.Stop(b)
		if _, err := f.Bucket().Put(t.Context(), recordKey, text); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		started := make(chan *Node, 2)
		for _, node := range []string{"a", "b"} {
			go func() {
				n, err := Start(t.Context(), f.Plain(node), Options{Version: "test", Processors: 2, Logger: f.Logger()})
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				started <- n
			}()
		}
		if a, b = <-started, <-started; a == nil || b == nil {
			t.FailNow()
		}
		t.Cleanup(func() { a.Close(); b.Close() })
		f.Until(name+": all likes", func() bool { return f.Likes(40, 1) })
		for _, n := range []*Node{a, b} {
			if n.Serving().Number != 1 || !n.rebuilds.set().Equal(known) {
				t.Errorf("%s: node %s acts on %+v", name, n.name, n.rebuilds.set())
			}
		}
	}
	// The one command, on one node; then a rebuild can begin.
	f.Stop(a)
	if err := Repair(f.Plain(a.name), RepairOptions{Record: true, Logger: f.Logger()}); err != nil {
		t.Fatal(err)
	}
	a = f.Start(a.name)
	f.Until("nothing is wrong", func() bool { return a.rebuilds.remarks() == "" && b.rebuilds.remarks() == "" })
	f.Until("the record is theirs", func() bool { return f.record().Equal(known) })
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
	f.Until("all likes", func() bool { return f.Likes(40, 2) })
	f.Stop(a)
	n = f.Start("a") // the copy, which is older
	f.Until("all likes", func() bool { return f.Likes(40, 2) })
	f.Stop(n)
	f.Publish(40)
	f.Dirs["a"] = original
	f.Start("a")
	f.Until("all likes", func() bool { return f.Likes(40, 3) })
}
