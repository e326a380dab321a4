package node

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/cmd/tidemark/config"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

const recordKey = "generations"

func (f *fleet) bucket() jetstream.KeyValue {
	f.t.Helper()
	js, err := jetstream.New(f.nc)
	if err != nil {
		f.t.Fatal(err)
	}
	bucket, err := js.KeyValue(f.t.Context(), jetlog.Bucket)
	if err != nil {
		f.t.Fatal(err)
	}
	return bucket
}

// record is what the bucket says; the zero where it says nothing.
func (f *fleet) record() (s generations.Set) {
	f.t.Helper()
	e, err := f.bucket().Get(f.t.Context(), recordKey)
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

// startFails starts a node that is to be refused, and says why it is.
func (f *fleet) startFails(name string, change func(*config.Config)) string {
	f.t.Helper()
	if f.dirs[name] == "" {
		f.dirs[name] = f.t.TempDir()
	}
	c := f.plain(name)
	change(c)
	n, err := Start(f.t.Context(), c, Options{Version: "test", Processors: 2, Logger: slog.New(slog.NewTextHandler(&f.log, nil)).With("on", name)})
	if err == nil {
		n.Close()
		f.t.Fatal("it starts")
	}
	return err.Error()
}

// rebuilt is a node whose counts are of generation 2, generation 1 is kept.
func (f *fleet) rebuilt(name string) *Node {
	f.t.Helper()
	n := f.start(name)
	f.publish(40)
	f.until("all likes", func() bool { return f.likes(40, 1) })
	f.begin(fans(n.config), false)
	f.serves(2, n)
	f.until("nothing is owed", func() bool { s := n.rebuilds.set(); return s.All[2].Letters == 0 })
	return n
}

// stored says which generations a directory has counts of.
func (f *fleet) stored(name string) (found []string) {
	for _, dir := range []string{badgerDir, filepath.Join(generationsDir, "2", badgerDir), filepath.Join(generationsDir, "3", badgerDir)} {
		if _, err := os.Stat(filepath.Join(f.dirs[name], dir)); err == nil {
			found = append(found, dir)
		}
	}
	return found
}

// "A bucket without it (deleted) gets the node's copy back; one that is malformed, or
// older than what the node knows, is not obeyed, is said and replaced by the node's
// copy. A forged or deleted key never has a node delete counts".
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
			js, err := jetstream.New(f.nc)
			if err == nil {
				err = js.DeleteKeyValue(t.Context(), jetlog.Bucket)
			}
			return err
		},
	}
	for name, forge := range forge {
		if err := forge(f.bucket()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		f.until(name+": it is as it was", func() bool {
			js, err := jetstream.New(f.nc)
			if err != nil {
				return false
			}
			if _, err := js.KeyValue(t.Context(), jetlog.Bucket); err != nil {
				return false
			}
			return f.record().Equal(known)
		})
		if got := n.rebuilds.set(); !got.Equal(known) || n.gen().number != 2 || len(f.stored("a")) != 2 {
			t.Fatalf("%s: it acts on %+v, has %v\n%s", name, got, f.stored("a"), f.log.String())
		}
	}
	for name, stopped := range map[string]bool{"while it runs": false, "while it is stopped": true} {
		if stopped {
			f.stop(n)
		}
		if _, err := f.bucket().Put(t.Context(), recordKey, encode(unknown)); err != nil {
			t.Fatal(err)
		}
		if stopped {
			f.edit = func(c *config.Config) { *c = *fans(c) }
			n = f.start("a")
		}
		f.until(name+": it says so", func() bool { return strings.Contains(n.remarks(), "generation 9 serves") })
		if err := n.Ready(); stopped && err != nil && !strings.Contains(err.Error(), "catching up") {
			t.Errorf("it is not ready: %v", err)
		}
		time.Sleep(2 * rebuildsEvery)
		if n.gen().number != 2 || len(f.stored("a")) != 2 {
			t.Fatalf("%s: generation %d serves, stored are %v\n%s", name, n.gen().number, f.stored("a"), f.log.String())
		}
	}
	if err := f.bucket().Delete(t.Context(), recordKey); err != nil {
		t.Fatal(err)
	}
	f.until("it is as it was", func() bool { return f.record().Equal(known) })
	f.until("nothing is wrong", func() bool { return n.rebuilds.remarks() == "" })
	f.until("all likes", func() bool { return f.likes(40, 1) })
}

// "A node's file must then count like one of the generations named, or the node
// refuses to start with words that name tidemark rebuild --config".
func TestRebuildWantsAFileOfThose(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.rebuilt("a")
	f.stop(n)
	why := f.startFails("a", func(c *config.Config) { c.Shards = 16 })
	if !strings.Contains(why, "tidemark rebuild --config") || !strings.Contains(why, "generation 2") {
		t.Error(why)
	}
	for _, edit := range []func(*config.Config){nil, func(c *config.Config) { *c = *fans(c) }} {
		f.edit = edit
		n = f.start("a")
		f.until("the new column", f.has("post", "fans", 7, 1))
		f.stop(n)
	}
	f.edit = func(c *config.Config) { c.Rebuild.Keep = 0 }
	n = f.start("a")
	f.until("only one is stored", func() bool { return len(f.stored("a")) == 1 })
	if s := n.rebuilds.set(); s.Kept != 0 || s.Serving != 2 {
		t.Errorf("%+v", s)
	}
	f.stop(n)
	if why := f.startFails("a", func(*config.Config) {}); !strings.Contains(why, "tidemark rebuild --config") {
		t.Error(why)
	}
	f.edit = func(c *config.Config) { *c = *fans(c) }
	f.start("a")
	f.until("the new column", f.has("post", "fans", 7, 1))
}

// An earlier version goes on with a directory where there never was a rebuild, and
// refuses any other.
func TestRebuildChangesTheFormat(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.start("a")
	format := func() int {
		n.dir.mu.Lock()
		defer n.dir.mu.Unlock()
		return n.dir.marker.Format
	}
	if is := format(); is != dataFormat {
		t.Errorf("format %d before", is)
	}
	f.begin(fans(n.config), false)
	f.serves(2, n)
	if is := format(); is != generationsFormat {
		t.Errorf("format %d after", is)
	}
}

// A node that was away while generations came and went takes what others say, gets
// the counts from them, and only then deletes its own.
func TestAwayDuringRebuilds(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.edit = func(c *config.Config) { c.Rebuild.Keep, c.Cluster.Replicas = 0, 2 }
	a, b := f.start("a"), f.start("b")
	f.publish(40)
	f.until("all on both", func() bool { return a.gen().hasAssigned() && holdsAll(a) })
	f.until("all likes", func() bool { return f.likes(40, 1) })
	by := fans(b.config)
	f.stop(a)
	f.until("it is away", func() bool {
		m, there := b.gen().members.View().Member("a")
		return there && m.Stopped
	})
	if why := f.rebuild(RebuildVerb, RebuildAsk{}, nil); why == nil || !strings.Contains(why.Error(), "node a, which holds") {
		t.Fatalf("it begins without a node that holds shards: %v", why)
	}
	f.forget("a")
	f.until("its shards are b's", func() bool {
		_, there := b.gen().members.View().Member("a")
		return !there && holdsAll(b)
	})
	delete(f.dirs, "a")
	dir := a.dir.path
	for _, number := range []generations.Number{2, 3} {
		f.begin(by, false)
		f.serves(number, b)
	}
	f.until("one is left", func() bool { return b.rebuilds.set().Kept == 0 })
	f.dirs["a"] = dir
	f.edit = func(c *config.Config) { *c = *fans(c); c.Rebuild.Keep, c.Cluster.Replicas = 0, 2 }
	a = f.start("a")
	f.serves(3, a)
	f.until("it has all", func() bool { return holdsAll(a) })
	f.until("its old counts are gone", func() bool { s := f.stored("a"); return len(s) == 1 && strings.Contains(s[0], "3") })
	f.stop(b)
	f.until("the new column", f.has("post", "fans", 7, 1))
}

func holdsAll(n *Node) bool {
	held := n.gen().heldNow()
	return n.gen().hasAssigned() && held.Len() == n.gen().config.Shards
}

// A process that only answers is not led astray for good by a forged record.
func TestThinSeesAForgedRecord(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.rebuilt("a")
	f.edit = func(c *config.Config) { c.Roles = []string{config.RoleAnswer} }
	thin := f.start("t")
	f.serves(2, thin)
	known := n.rebuilds.set()
	forged := known
	forged.Epoch, forged.Newest, forged.Serving, forged.Kept, forged.State = known.Epoch+100, 9, 9, 0, generations.Aborted
	forged.All = map[generations.Number]generations.Generation{9: {Counting: known.All[1].Counting}}
	text, err := forged.Encode()
	if err == nil {
		_, err = f.bucket().Put(t.Context(), recordKey, text)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.until("it has seen it", func() bool { return thin.rebuilds.set().Serving == 9 })
	f.until("all likes", func() bool { return f.likes(40, 1) })
	if err := f.bucket().Delete(t.Context(), recordKey); err != nil {
		t.Fatal(err)
	}
	f.until("it knows better", func() bool { return thin.rebuilds.set().Equal(known) })
	if err := f.rebuild(RebuildBackVerb, struct{}{}, nil); err != nil {
		t.Fatal(err)
	}
	f.serves(1, n, thin)
	f.until("all likes", func() bool { return f.likes(40, 1) })
}
