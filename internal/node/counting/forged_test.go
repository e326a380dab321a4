package counting

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/nodetest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
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

// forgedAssignment gives all shards to some nodes.
func forgedAssignment(epoch uint64, nodes ...string) []byte {
	value := fmt.Sprintf(`{"epoch":%d,"shards":%d,"replicas":%d,"nodes":[`, epoch, nodetest.Shards, len(nodes))
	for i, name := range nodes {
		value += fmt.Sprintf("%s%q", []string{"", ","}[min(i, 1)], name)
	}
	value += `],"holders":[`
	for s := range nodetest.Shards {
		value += []string{"", ","}[min(s, 1)] + "["
		for i := range nodes {
			value += fmt.Sprintf("%s%d", []string{"", ","}[min(i, 1)], i)
		}
		value += "]"
	}
	return []byte(value + "]}")
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

// "No copy is dropped because of a forged or stale assignment, or of a
// member that claims to be ready with a far epoch": no copy is dropped, answers stay
// whole, and assigning goes on.
func TestForgedAssignment(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		epoch func(now uint64) uint64 // of the forged assignment
		says  uint64                  // the epoch that the forged member acts on
	}{
		{"next", func(now uint64) uint64 { return now + 1 }, 1 << 39},
		{"same", func(now uint64) uint64 { return now }, 1 << 39},
		{"leap", func(now uint64) uint64 { return 1 << 38 }, 1 << 39},
		{"last", func(now uint64) uint64 { return 1<<40 - 1 }, 1 << 39},
		{"2^50", func(now uint64) uint64 { return 1 << 50 }, 1 << 39},
		{"2^60", func(now uint64) uint64 { return 1 << 60 }, 1 << 39},
		{"2^64-1", func(now uint64) uint64 { return 1<<64 - 1 }, 1 << 39},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.Edit = func(c *config.Config) { c.Cluster.Replicas = 1 }
			a, b := f.Start("a"), f.Start("b")
			f.Publish(100)
			f.Until("a part each", func() bool { return settled(a, b) })
			f.Until("all likes", func() bool { return f.Likes(100, 1) })
			epoch := a.Serving().members.View().Assignment.Epoch
			// The attack goes on for longer than a node takes to give up what it need not hold.
			for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
				f.Put("member.ghost", forgedMember(a, "ghost", test.says))
				f.Put("assignment", forgedAssignment(test.epoch(epoch), "ghost"))
				if held := copies(a, b); slices.Contains(held[:], 0) {
					t.Fatalf("copies were dropped: %v\n%s", held, f.Log.String())
				}
				if !f.Likes(100, 1) {
					t.Fatalf("answers are not whole\n%s", f.Log.String())
				}
			}
			f.Until("assigning goes on", func() bool {
				now := a.Serving().members.View().Assignment
				return now.Epoch < 1<<39 && !slices.Contains(now.Nodes(), "ghost") && settled(a, b)
			})
			f.Publish(100)
			f.Until("all likes", func() bool { return f.Likes(100, 2) })
		})
	}
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

// Forged names, in keys and in what they say, end no node, and keep none from being seen.
func TestForgedNames(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a, b := f.Start("a"), f.Start("b")
	f.Publish(10)
	f.Until("a part each", func() bool { return settled(a, b) })
	good := string(forgedMember(a, "x", 1))
	for _, name := range []string{
		"", "../x", strings.Repeat("n", 10_000), "a b", "*", ">", "a.*", "x\u0000", "\u001b[31m", "\u2028", "a", "b", "ä", "x.g2",
	} {
		value := strings.Replace(good, `"node":"x"`, fmt.Sprintf(`"node":"%s"`, name), 1)
		if !strings.Contains(value, `"node":"`+name) {
			t.Fatalf("%q is not forged: %s", name, value)
		}
		for _, key := range []string{"x", "a", "b", "..x", strings.Repeat("n", 1000), "ä", "\x01", "-"} {
			if err := f.NC.Publish("$KV."+jetlog.Bucket+".member."+key, []byte(value)); err != nil {
				t.Fatal(err)
			}
			for _, prefix := range []string{"drain.", "node.", "import."} {
				if key == "a" || key == "b" {
					break // these are what operators write
				}
				if err := f.NC.Publish("$KV."+jetlog.Bucket+"."+prefix+key, []byte(value)); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
	c := f.Start("c") // a start reads them all
	time.Sleep(2 * bucket.MemberBeat)
	for _, n := range []Node{a, b, c} {
		if err := n.Failure(); err != nil {
			t.Errorf("node %s has ended: %v", n.Serving().Name, err)
		}
	}
	f.Until("a part each", func() bool { return settled(a, b, c) })
	f.Until("all likes", func() bool { return f.Likes(10, 1) })
}
