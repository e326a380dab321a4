package counting

import (
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
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
	if m, _ := a.Serving().members.View().Member("b"); a.Serving().members.View() != nil && m.Member != nil &&
		m.Ready.Len() != 0 && m.Ready != of {
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
	f.Until("c has of its part what a had", func() bool {
		held, assigned := c.Serving().heldNow(), c.Serving().members.View().Assignment.HeldSet("c")
		for s := range assigned.All() {
			if !held.Has(s) && !of.Has(s) {
				return false
			}
		}
		return assigned.Len() > 0
	})
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
