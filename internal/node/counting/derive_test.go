package counting

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/internal/nodetest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
)

// "A shard that no node has is derived from EVENTS; the others go on":
// the shards of a node that is gone for good. The others go on meanwhile, and DELTAS is
// purged as before: what is derived needs nothing of it, also when it is purged past
// where that was to go on.
func TestDerivedBeside(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Edit = func(c *config.Config) { c.Checkpoint.Interval = 50 * time.Millisecond }
	a := f.Start("a")
	f.Publish(100)
	f.Crowd(120)
	f.Until("everything applied", func() bool { return a.Ready() == nil })
	const nodesMax = 10 // that go, until something was applied while their shards were derived
	seen, alone := 0, 0
	for nodes := 0; alone == 0; nodes++ {
		if nodes == nodesMax {
			t.Fatalf("of %d events published while shards of %d nodes were derived none was applied before they had come", seen, nodes)
		}
		name := fmt.Sprint("b", nodes)
		b := f.Start(name)
		f.Until("a part each", func() bool { return settled(a, b) })
		f.Until("everything applied", func() bool { return a.Ready() == nil && b.Ready() == nil })
		f.dropSpares(a)
		f.Stop(b)
		f.purge(a)
		_, first, err := a.Serving().deltas.First(t.Context())
		if err != nil || first < 2 {
			t.Fatalf("DELTAS begins with window %d, %v: nothing would show what it is kept for", first, err)
		}
		own := a.Serving().heldNow()
		f.Forget(name)
		for end := time.Now().Add(e2e.Patience); !settled(a); {
			if time.Now().After(end) {
				t.Fatalf("it does not hold all\n%s", f.Log.String())
			}
			if !deriving(a) && a.Serving().heldNow() == own {
				time.Sleep(time.Millisecond) // it has not heard yet
				continue
			}
			// What is derived goes on with a window that was there when it began. A shard that has
			// come without a window of DELTAS has all of them kept until its next checkpoint.
			if needs := a.Serving().needs(); needs+1 < first && a.Serving().heldNow() == own {
				t.Fatalf("while shards are derived DELTAS is kept from window %d on, and began with %d before", needs, first)
			}
			before, sequence := a.Serving().sinks.Applied(), f.likeOf(own)
			seen++
			applied := func() bool { at := a.Serving().sinks.Applied(); return at > before && at.Sequence() >= sequence }
			for !applied() && !settled(a) && time.Now().Before(end) {
				time.Sleep(time.Millisecond)
			}
			if applied() && !settled(a) {
				alone++
			}
			f.purge(a)
		}
	}
	t.Logf("%d of %d events were applied while shards were derived", alone, seen)
	f.Until("all likes of all", func() bool {
		m, err := f.NC.Request("tidemark.get", []byte(`{"counter":"user","columns":["liked"],"ids":[9]}`), 10*time.Second)
		return err == nil && strings.Contains(string(m.Data), fmt.Sprintf(`"liked":%d}`, 120_100+seen))
	})
	f.Until("ready", func() bool { return a.Ready() == nil })
	if f.Log.Has("could not be derived") {
		t.Errorf("a derivation failed\n%s", f.Log.String())
	}
}

// likeOf stores a like of a post in one of some shards, and returns its sequence.
func (f *fleet) likeOf(shards cluster.ShardSet) (sequence uint64) {
	f.T.Helper()
	for post := uint64(1); ; post++ {
		if !shards.Has(pipeline.ShardOf(post, nodetest.Shards)) {
			continue
		}
		m, err := f.NC.Request("events.like", fmt.Appendf(nil, `{"actor":7,"post":%d,"author":9}`, post), e2e.Patience)
		var stored struct{ Seq uint64 }
		if err == nil {
			err = json.Unmarshal(m.Data, &stored)
		}
		if err != nil || stored.Seq == 0 {
			f.T.Fatalf("%s, %v", m.Data, err)
		}
		return stored.Seq
	}
}

// purge takes from DELTAS what a node no longer needs, as the node that routes does in time.
func (f *fleet) purge(n Node) {
	f.T.Helper()
	if err := n.Serving().deltas.Purge(f.T.Context(), n.Serving().needs()); err != nil {
		f.T.Fatal(err)
	}
}

// deriving says whether shards are being derived.
func deriving(n Node) bool {
	h := &n.Serving().holdings
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.derived.Len() > 0
}

// A derivation that was cut short goes on where it was checkpointed, and a start
// does not wait for it.
func TestDerivedInTwoProcesses(t *testing.T) {
	natstest.Long(t)
	t.Parallel()
	f := newFleet(t)
	a, b := f.Start("a"), f.Start("b")
	f.Publish(100)
	f.Crowd(200)
	f.Until("a part each", func() bool { return settled(a, b) })
	f.Until("everything applied", func() bool { return a.Ready() == nil && b.Ready() == nil })
	f.dropSpares(a)
	f.Stop(b)
	f.Forget("b")
	f.Until("it derives", func() bool { return deriving(a) })
	f.Stop(a)
	a = f.Start("a")
	f.Until("all held", func() bool { return settled(a) })
	f.Until("all likes", func() bool { return f.Likes(100, 1) })
}

// A stopped shard is taken again from a node that has it; without one it stays
// stopped and says so.
func TestStoppedShardIsTakenAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Edit = func(c *config.Config) { c.Cluster.Replicas = 2 }
	both := func(nodes ...Node) func() bool {
		return func() bool {
			for _, n := range nodes {
				for s := range pipeline.Shard(nodetest.Shards) {
					if !n.Serving().sinks.Holds(s) {
						return false
					}
				}
			}
			return true
		}
	}
	a, b := f.Start("a"), f.Start("b")
	f.Publish(100)
	f.Until("all on both", both(a, b))
	f.Until("all likes", func() bool { return f.Likes(100, 1) })
	f.Until("both are as far", func() bool { return a.Serving().sinks.Applied() == b.Serving().sinks.Applied() }) // else b has nothing to store
	f.Until("a says how far it is", func() bool { m, there := b.Serving().members.View().Member("a"); return there && m.Applied > 0 })
	// damage stops a node and spoils the last files of runs that it has stored.
	damage := func(n Node, most int, spoil func(file string) error) {
		t.Helper()
		f.Stop(n)
		files, err := filepath.Glob(filepath.Join(f.Dirs[n.Serving().Name], "generations", "1", "badger", "runs", "*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("runs %v, %v", files, err)
		}
		for _, file := range files[max(0, len(files)-most):] {
			if err := spoil(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	short := func(file string) error { return os.Truncate(file, 30) }
	flip := func(file string) error { // a byte of the first block
		f, err := os.OpenFile(file, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		b := []byte{0}
		if _, err = f.ReadAt(b, 20); err == nil {
			b[0] ^= 0x40
			_, err = f.WriteAt(b, 20)
		}
		return errors.Join(err, f.Close())
	}
	for i, spoil := range []func(string) error{short, flip} {
		damage(b, 1000, spoil)
		b = f.Start("b")
		f.Until("some taken again", func() bool { _, taken := b.Serving().holdings.figures(); return taken > 0 })
		f.Until("all on both again", both(a, b))
		say := []string{"whose runs are damaged are taken again", "that have stopped are taken again"}[i]
		f.Until("the log says: "+say, func() bool { return f.Log.Has(say) })
		f.Until("all likes", func() bool { return f.Likes(100, 1) })
		if b.Serving().sinks.Failed() != 0 {
			t.Errorf("%v\n%s", b.Serving().sinks.Err(), f.Log.String())
		}
		f.Until("all is checkpointed", func() bool {
			at := b.Serving().sinks.Applied()
			return !slices.ContainsFunc(b.Serving().sinks.Kept(), func(p pipeline.Position) bool { return p < at })
		})
	}

	f.Stop(a)
	damage(b, 1, flip)
	b = f.Start("b")
	f.Until("it has stopped, and the others hear of it", func() bool {
		m, err := f.NC.Request("tidemark.shards", nil, 10*time.Second)
		stopped := b.Serving().sinks.Failed() == 1
		return err == nil && stopped && strings.Contains(string(m.Data), `"node":"b","state":"failed"`)
	})
	if err := b.Ready(); b.Serving().sinks.Failed() != 1 || err == nil || !strings.Contains(err.Error(), "shard ") {
		t.Errorf("a stopped shard that nobody else has: %d failed, %v", b.Serving().sinks.Failed(), err)
	}
}

// A node that was away until DELTAS no longer had anything for it starts at once, and
// takes what it lacks from a replica rather than derive it.
func TestOldShardsAreFetched(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Edit = func(c *config.Config) { c.Cluster.Replicas = 2 }
	a, b := f.Start("a"), f.Start("b")
	f.Publish(100)
	f.Until("all on both", func() bool { return a.Serving().sinks.Whole() && b.Serving().sinks.Whole() })
	f.Until("all likes", func() bool { return f.Likes(100, 1) })
	f.Stop(b)
	for likes := range 3 { // in several windows
		f.Publish(100)
		f.Until("all likes", func() bool { return f.Likes(100, 2+likes) })
	}
	f.Until("a says how far it is", func() bool {
		m, there := a.Serving().members.View().Member("a")
		return there && m.Applied == a.Serving().sinks.Applied()
	})
	_, last, err := a.Serving().deltas.Tail(t.Context())
	f.Until("a needs no more", func() bool { return a.Serving().needs() >= last })
	if err == nil {
		err = a.Serving().deltas.Purge(t.Context(), last)
	}
	if err != nil {
		t.Fatal(err)
	}
	b = f.Start("b")
	if deriving(b) || len(b.Serving().sinks.Standings()) > 0 {
		t.Errorf("it holds %v from the start", b.Serving().heldNow())
	}
	if err := b.Ready(); err != nil && strings.Contains(err.Error(), "no node answers") {
		t.Error(err)
	}
	f.Until("all on both", func() bool {
		return a.Serving().sinks.Whole() && b.Serving().sinks.Whole() && len(b.Serving().sinks.Standings()) == nodetest.Shards
	})
	f.Until("all likes", func() bool { return f.Likes(100, 4) })
	if f.Log.Has("deriving windows again") {
		t.Error("something was derived")
	}
	f.Until("ready", func() bool { return b.Ready() == nil })
}
