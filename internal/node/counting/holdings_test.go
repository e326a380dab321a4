package counting

import (
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

// Nodes that come get their part, a node that stops keeps its own, and what only
// it has is not derived from all of the log by a newcomer that it is assigned to.
func TestShardsWaitForTheirNode(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a := f.Start("a")
	f.Publish(100)
	b := f.Start("b")
	f.Until("a part each", func() bool { return settled(a, b) })
	f.Until("all likes", func() bool { return f.Likes(100, 1) })
	of := b.Serving().heldNow()
	f.dropSpares(a)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if m, _ := a.Serving().members.View().Member("b"); a.Serving().members.View() != nil && m.Member != nil && m.Ready.Len() != 0 && m.Ready != of {
		t.Errorf("it left with %v, and held %v", m.Ready, of)
	}
	f.Publish(100)
	c := f.Start("c")
	taken := func() (shards []pipeline.Shard) { // from the one that is away
		assigned := a.Serving().members.View().Assignment.HeldSet("c")
		for s := range assigned.All() {
			if of.Has(s) {
				shards = append(shards, s)
			}
		}
		return shards
	}
	f.Until("a part for c", func() bool { return a.Serving().members.View().Assignment.HeldSet("c") != [64]uint64{} })
	time.Sleep(2 * time.Second)
	held := c.Serving().heldNow()
	for _, s := range taken() {
		if held.Has(s) {
			m, _ := c.Serving().members.View().Member("b")
			t.Errorf("shard %d, which b has, is derived from the log: %v %v %+v\n%s", s, m.Status, m.Ready, m.Member, f.Log.String())
		}
	}
	t.Logf("of b's shards %v, %v were given to c meanwhile", of, taken())
	b = f.Start("b")
	f.Until("a part each", func() bool { return settled(a, b, c) })
	f.Until("all likes", func() bool { return f.Likes(100, 2) })
	if f.Log.Has("deriving windows again") {
		t.Error("something was derived")
	}
}

// Nodes that start at once, with a log that is there, read it once.
func TestStartedAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	first := f.Start("a")
	f.Publish(50)
	f.Until("all likes", func() bool { return f.Likes(50, 1) })
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	members, err := bucket.AttachMembers(t.Context(), f.NC, 0, bucket.MembersOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := members.Forget(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	members.Close()
	var nodes [3]Node
	var started sync.WaitGroup
	names := []string{"x", "y", "z"}
	for _, name := range names {
		f.Dirs[name] = t.TempDir()
	}
	for i, name := range names {
		started.Go(func() { nodes[i] = f.Start(name) })
	}
	started.Wait()
	f.Until("a part each", func() bool { return settled(nodes[:]...) })
	f.Until("all likes", func() bool { return f.Likes(50, 1) })
}

// A node that takes all shards from another one says so in a line or two.
func TestStartHasFewLines(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a := f.Start("a")
	f.Publish(50)
	f.Until("all likes", func() bool { return f.Likes(50, 1) })
	b := f.Start("b")
	f.Until("a part each", func() bool { return settled(a, b) })
	f.Stop(a)
	f.Stop(b)
	log := f.Log.String()
	for _, text := range []string{"tidemark: shards have come", "tidemark: shards are given up, and stay stored"} {
		n := strings.Count(log, text)
		if n == 0 || n > 2 || !regexp.MustCompile(regexp.QuoteMeta(text)+`[^\n]* shards=\d[-,\d]* number=\d`).MatchString(log) {
			t.Errorf("%d lines %q:\n%s", n, text, log)
		}
	}
}
