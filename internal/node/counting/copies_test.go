package counting

import (
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/nodetest"
	"github.com/tidemark-io/tidemark/pipeline"
)

// forgedMember is a member that no process is: it says that it has all shards.
func forgedMember(like Node, name string, epoch uint64) []byte {
	m := like.Serving().same
	m.Node, m.Session, m.Epoch, m.Applied, m.Routes = name, "forged", epoch, 1<<40, false
	for s := range pipeline.Shard(nodetest.Shards) {
		m.Ready.Add(s)
	}
	value, err := m.Encode()
	if err != nil {
		panic(err)
	}
	return value
}

// copies are the shards that nodes hold, with how many hold each.
func copies(nodes ...Node) (n [nodetest.Shards]int) {
	for _, node := range nodes {
		held := node.Serving().heldNow()
		for s := range held.All() {
			n[s]++
		}
	}
	return n
}

// What was given up is taken back from disk, at once: when nobody else answers for it, and
// when it is assigned here again.
func TestSpareIsTakenBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a := f.Start("a")
	f.Publish(100)
	f.Until("all likes", func() bool { return f.Likes(100, 1) })
	b := f.Start("b")
	f.Until("a part each", func() bool { return settled(a, b) })
	gone := b.Serving().heldNow()
	f.Until("it is still stored", func() bool {
		shards, bytes := a.Serving().spareFigures()
		return shards == gone.Len() && bytes > 0
	})
	f.Stop(b)
	f.Until("all is held again", func() bool {
		held := a.Serving().heldNow()
		return held.Len() == nodetest.Shards && f.Likes(100, 1)
	})
	f.Until("it is said", func() bool { return f.Log.Has("are taken back") })
	if f.Log.Has("derived from EVENTS") {
		t.Errorf("it does not come from the disk\n%s", f.Log.String())
	}
	b = f.Start("b")
	f.Until("a part each", func() bool { return settled(a, b) })
	f.Publish(100)
	f.Until("all likes", func() bool { return f.Likes(100, 2) })
}

// A copy that differs is not trusted: the holder keeps its own, and says so.
func TestCopyThatDiffers(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	with := func(replicas int) func(*config.Config) {
		return func(c *config.Config) { c.Cluster.Replicas, c.Checkpoint.Interval = replicas, 50*time.Millisecond }
	}
	a, b := f.With("a", with(2)), f.With("b", with(2))
	f.Publish(100)
	twice := func(nodes ...Node) func() bool {
		return func() bool {
			for _, n := range nodes {
				if !n.Serving().sinks.Whole() || n.Serving().sinks.Applied() < pipeline.EndOf(100) {
					return false
				}
			}
			return f.Likes(100, 1)
		}
	}
	f.Until("all held twice", twice(a, b))
	f.Stop(b)
	f.Stop(a)
	f.Plant(42, "b")
	a, b = f.With("a", with(1)), f.With("b", with(1))
	odd := pipeline.ShardOf(42, nodetest.Shards)
	f.Until("all others are held once", func() bool {
		held := copies(a, b)
		return held[odd] == 2 && held == copiesBut(odd)
	})
	f.Until("it says so", func() bool {
		said := a.Serving().Remarks("") + b.Serving().Remarks("")
		return strings.Contains(said, "shards: 1 that are assigned to other nodes are not given up, because copies differ") &&
			strings.Contains(said, "of id 42 at") && a.Serving().holdings.differing()+b.Serving().holdings.differing() == 1 &&
			f.Log.Has("shards are not given up: the copy of a node that they are assigned to differs")
	})
	if held := copies(a, b); held != copiesBut(odd) {
		t.Errorf("%v", held)
	}
}

// copiesBut is one copy of each shard, and two of one.
func copiesBut(odd pipeline.Shard) (n [nodetest.Shards]int) {
	for s := range n {
		n[s] = 1
	}
	n[odd] = 2
	return n
}
