package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/node/lookup"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query"
)

const recordKey = "generations"

// record is what the bucket says; the zero where it says nothing.
func (f *fleet) record() (s generations.Set) {
	f.T.Helper()
	e, err := f.Bucket().Get(f.T.Context(), recordKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return s
	}
	if err == nil {
		s, err = generations.Decode(e.Value())
	}
	if err != nil {
		return generations.Set{}
	}
	return s
}

// rebuilt is a node whose counts are of generation 2, generation 1 is kept.
func (f *fleet) rebuilt(name string) *Node {
	f.T.Helper()
	n := f.Start(name)
	f.Publish(40)
	f.Until("all likes", func() bool { return f.Likes(40, 1) })
	f.begin(fans(n.config), false)
	f.serves(2, n)
	f.Until("nothing is owed", func() bool { s := n.rebuilds.set(); return s.All[2].Letters == 0 })
	return n
}

// stored says which generations a directory has counts of.
func (f *fleet) stored(name string) (found []string) {
	for _, dir := range []string{datadir.BadgerDir, filepath.Join(datadir.GenerationsDir, "2", datadir.BadgerDir), filepath.Join(datadir.GenerationsDir, "3", datadir.BadgerDir)} {
		if _, err := os.Stat(filepath.Join(f.Dirs[name], dir)); err == nil {
			found = append(found, dir)
		}
	}
	return found
}

// "A record of generations that is deleted, malformed or older than
// what a node knows is not obeyed, is reported and is replaced by the node's copy; no
// node deletes counts because of it".
func TestRecordIsForged(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.rebuilt("a")
	known := n.rebuilds.set()
	older := known
	older.Epoch = 1
	older.State, older.Kept, older.Serving = generations.Aborted, 0, 1
	older.All = map[generations.Number]generations.Generation{1: known.All[1]}
	unknown := known
	unknown.Epoch, unknown.Newest, unknown.Serving, unknown.Kept = known.Epoch+7, 9, 9, 0
	unknown.All = map[generations.Number]generations.Generation{9: {Slot: 0, Counting: known.All[1].Counting}}
	encode := func(s generations.Set) []byte {
		text, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	forge := map[string]func(jetstream.KeyValue) error{
		"deleted": func(b jetstream.KeyValue) error { return b.Delete(t.Context(), recordKey) },
		"purged":  func(b jetstream.KeyValue) error { return b.Purge(t.Context(), recordKey) },
		"malformed": func(b jetstream.KeyValue) error {
			_, err := b.PutString(t.Context(), recordKey, `{"epoch":"x"}`)
			return err
		},
		"older": func(b jetstream.KeyValue) error { _, err := b.Put(t.Context(), recordKey, encode(older)); return err },
		"the bucket is deleted": func(jetstream.KeyValue) error {
			js, err := jetstream.New(f.NC)
			if err == nil {
				err = js.DeleteKeyValue(t.Context(), jetlog.Bucket)
			}
			return err
		},
	}
	for name, forge := range forge {
		if err := forge(f.Bucket()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		f.Until(name+": it is as it was", func() bool {
			js, err := jetstream.New(f.NC)
			if err != nil {
				return false
			}
			if _, err := js.KeyValue(t.Context(), jetlog.Bucket); err != nil {
				return false
			}
			return f.record().Equal(known)
		})
		if got := n.rebuilds.set(); !got.Equal(known) || n.Serving().Number != 2 || len(f.stored("a")) != 2 {
			t.Fatalf("%s: it acts on %+v, has %v\n%s", name, got, f.stored("a"), f.Log.String())
		}
	}
	for name, stopped := range map[string]bool{"while it runs": false, "while it is stopped": true} {
		if stopped {
			f.Stop(n)
		}
		if _, err := f.Bucket().Put(t.Context(), recordKey, encode(unknown)); err != nil {
			t.Fatal(err)
		}
		if stopped {
			f.Edit = func(c *config.Config) { *c = *fans(c) }
			n = f.Start("a")
		}
		f.Until(name+": it says so", func() bool { return strings.Contains(n.remarks(), "generation 9 serves") })
		if err := n.Ready(); stopped && err != nil && !strings.Contains(err.Error(), "catching up") {
			t.Errorf("it is not ready: %v", err)
		}
		time.Sleep(2 * rebuildsEvery)
		if n.Serving().Number != 2 || len(f.stored("a")) != 2 {
			t.Fatalf("%s: generation %d serves, stored are %v\n%s", name, n.Serving().Number, f.stored("a"), f.Log.String())
		}
	}
	if err := f.Bucket().Delete(t.Context(), recordKey); err != nil {
		t.Fatal(err)
	}
	f.Until("it is as it was", func() bool { return f.record().Equal(known) })
	f.Until("nothing is wrong", func() bool { return n.rebuilds.remarks() == "" })
	f.Until("all likes", func() bool { return f.Likes(40, 1) })
}

// docs/contract.md: "A node whose file differs from what serves starts with what serves
// and says so (log, `/readyz`, `tidemark nodes`), for good". "A node never fails to start
// because a rebuild has changed what counts."
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
		if remarks := n.remarks(); said != want || strings.Contains(remarks, "config: ") != want || !strings.Contains(remarks, words) {
			t.Errorf("%s: in tidemark.nodes %v, at /readyz %q", when, said, remarks)
		}
	}
	differs("after the rebuild", true, "drops column post.fans")
	for _, keep := range []time.Duration{time.Hour, 0} { // within rebuild.keep, and after it
		f.Stop(n)
		f.Edit = func(c *config.Config) {
			c.Rebuild.Keep, c.Shards, c.Feed.PostsPerAuthor, c.Variables = keep, 16, 120, []string{"TIDEMARK_SHARDS"}
		}
		n = f.Start("a")
		differs("with the file of before", true, "shards 8 → 16")
		differs("and a variable", true, "the environment sets TIDEMARK_SHARDS, which wins over the file: unset it, too")
		f.Until("the new column", f.Has("post", "fans", 7, 1))
		if !f.Log.Has("counts differently from what serves") {
			t.Error("the log says nothing")
		}
	}
	f.Until("nothing is kept", func() bool { return n.rebuilds.set().Kept == 0 })
	f.Stop(n)
	n = f.Start("a")
	differs("when nothing is kept", true, "shards 8 → 16")
	f.Until("the new column", f.Has("post", "fans", 7, 1))
	f.Stop(n)
	f.Edit = func(c *config.Config) { *c = *fans(c) }
	n = f.Start("a")
	differs("with the file that serves", false, "")
	f.Until("the new column", f.Has("post", "fans", 7, 1))
}

// docs/contract.md: "What is counted is one for all nodes of a generation: counters,
// rules, channels, `channels_open`, `feed.*`, `limits.channels`, `limits.notices`,
// `inactive_after`." The first node of a system says what; others with other files count
// by it.
func TestNodesWithOtherFiles(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	files := map[string]func(*config.Config){
		"a": func(c *config.Config) { c.Feed.PostsPerAuthor = 120 },
		"b": func(c *config.Config) { c.Limits.Notices = 7 },
		"c": func(c *config.Config) { c.ChannelsOpen = !c.ChannelsOpen },
		"d": func(c *config.Config) {
			c.Channels = append(c.Channels, config.Channel{Name: "games", Kind: config.KindDot})
		},
		"e": withFans,
		"g": func(c *config.Config) { c.InactiveAfter *= 2 },
	}
	var nodes []*Node
	var mu sync.Mutex
	var work sync.WaitGroup
	for name, edit := range files { // at the same moment
		f.Dirs[name] = t.TempDir()
		c := f.Plain(name)
		edit(c)
		work.Go(func() {
			n, err := Start(t.Context(), c, Options{Version: "test", Processors: 2, Logger: f.Logger()})
			if err != nil {
				t.Errorf("node %s: %v", name, err)
				return
			}
			t.Cleanup(func() { n.Close() })
			mu.Lock()
			defer mu.Unlock()
			nodes = append(nodes, n)
		})
	}
	work.Wait()
	differ := 0
	for _, n := range nodes {
		if n.Serving().Inside().Owner() != nodes[0].Serving().Inside().Owner() || n.Serving().Inside().Same.Fingerprint != nodes[0].Serving().Inside().Same.Fingerprint {
			t.Errorf("node %s counts by %v, node %s by %v", n.name, n.Serving().Inside().Owner(), nodes[0].name, nodes[0].Serving().Inside().Owner())
		}
		if len(n.Serving().Differs) > 0 {
			differ++
		}
	}
	if differ != len(files)-1 {
		t.Errorf("%d of %d nodes say that their files differ; all but one do", differ, len(files))
	}
}

// A node that was away while generations came and went takes what others say, gets
// the counts from them, and only then deletes its own.
func TestAwayDuringRebuilds(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes long")
	}
	t.Parallel()
	f := newFleet(t)
	f.Edit = func(c *config.Config) { c.Rebuild.Keep, c.Cluster.Replicas = 0, 2 }
	a, b := f.Start("a"), f.Start("b")
	f.Publish(40)
	f.Until("all on both", func() bool { return a.Serving().HasAssigned() && holdsAll(a) })
	f.Until("all likes", func() bool { return f.Likes(40, 1) })
	by := fans(b.config)
	f.Stop(a)
	f.Until("it is away", func() bool {
		m, there := b.Serving().Inside().Members.View().Member("a")
		return there && m.Stopped
	})
	if why := f.rebuild(RebuildVerb, RebuildAsk{}, nil); why == nil || !strings.Contains(why.Error(), "node a, which holds") {
		t.Fatalf("it begins without a node that holds shards: %v", why)
	}
	f.Forget("a")
	f.Until("its shards are b's", func() bool {
		_, there := b.Serving().Inside().Members.View().Member("a")
		return !there && holdsAll(b)
	})
	delete(f.Dirs, "a")
	dir := a.dir.Path
	for _, number := range []generations.Number{2, 3} {
		f.begin(by, false)
		f.serves(number, b)
	}
	f.Until("one is left", func() bool { return b.rebuilds.set().Kept == 0 })
	f.Dirs["a"] = dir
	f.Edit = func(c *config.Config) { *c = *fans(c); c.Rebuild.Keep, c.Cluster.Replicas = 0, 2 }
	a = f.Start("a")
	f.serves(3, a)
	f.Until("it has all", func() bool { return holdsAll(a) })
	f.Until("its old counts are gone", func() bool { s := f.stored("a"); return len(s) == 1 && strings.Contains(s[0], "3") })
	f.Stop(b)
	f.Until("the new column", f.Has("post", "fans", 7, 1))
}

func holdsAll(n *Node) bool {
	held := n.Serving().Inside().Held()
	return n.Serving().HasAssigned() && held.Len() == n.Serving().Config.Shards
}

// A process that only answers is not led astray for good by a forged record.
func TestThinSeesAForgedRecord(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.rebuilt("a")
	f.Edit = func(c *config.Config) { c.Roles = []string{config.RoleAnswer} }
	thin := f.Start("t")
	f.serves(2, thin)
	known := n.rebuilds.set()
	forged := known
	forged.Epoch, forged.Newest, forged.Serving, forged.Kept, forged.State = known.Epoch+100, 9, 9, 0, generations.Aborted
	forged.All = map[generations.Number]generations.Generation{9: {Counting: known.All[1].Counting}}
	text, err := forged.Encode()
	if err == nil {
		_, err = f.Bucket().Put(t.Context(), recordKey, text)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Until("it has seen it", func() bool { return thin.rebuilds.set().Serving == 9 })
	f.Until("all likes", func() bool { return f.Likes(40, 1) })
	if err := f.Bucket().Delete(t.Context(), recordKey); err != nil {
		t.Fatal(err)
	}
	f.Until("it knows better", func() bool { return thin.rebuilds.set().Equal(known) })
	if err := f.rebuild(RebuildBackVerb, struct{}{}, nil); err != nil {
		t.Fatal(err)
	}
	f.serves(1, n, thin)
	f.Until("all likes", func() bool { return f.Likes(40, 1) })
}
