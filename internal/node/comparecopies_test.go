package node

import (
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node/rebuild"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
)

// "all holders of a shard are asked, not one of them": also a copy that was away when the
// others were compared, and is back before the switch.
func TestCompareWhatComesBack(t *testing.T) {
	t.Parallel() // it waits most of the time
	f := newFleet(t)
	reached := make(chan struct{})
	a, b := f.counting("a", 1, twice, nil), f.counting("b", 1, twice, stuck(reached))
	a2 := f.counting("a2", 2, func(*config.Config) {}, nil)
	f.Publish(50)
	f.whole(a, b, a2)
	go func() {
		<-reached
		b.queries.Close()
		_ = b.Close()
	}()
	var c *rebuild.Comparison
	differs, _, why, err := f.compares(t.Context(), a, a2, func(is *rebuild.Comparison) { c = is })
	if err != nil || differs != 0 {
		t.Fatalf("%d, %s, %v", differs, why, err)
	}
	f.Until("it is away", func() bool { return c.Whole(1) })
	_ = b.Close()
	f.Plant(3, "b")
	b = f.counting("b", 1, twice, nil)
	f.whole(a, b, a2)
	if c.Whole(1) || !c.Whole(2) {
		t.Fatalf("it is compared: %v, %v", c.Whole(1), c.Whole(2))
	}
	if err := c.Run(t.Context(), 1, 2); err != nil {
		t.Fatal(err)
	}
	if differs, examples, _ := c.Result(); differs != 1 || len(examples) != 1 || examples[0].Node != "b" || examples[0].ID != 3 || !c.Whole(1) {
		t.Errorf("%d, %+v, %v", differs, examples, c.Whole(1))
	}
}

// docs/decisions/0028-generations.md: "It never switches to one that differs": a leader
// goes by what it has compared itself. What was compared before may have gone since, and
// what is there now not be it.
func TestLeaderComparesBeforeTheSwitch(t *testing.T) {
	f := newFleet(t)
	n := f.Start("a")
	f.Publish(30)
	f.Until("all likes", func() bool { return f.Likes(30, 1) })
	f.Stop(n)
	f.Plant(7, "a")
	f.Edit = unaudited
	n = f.Start("a")
	if err := f.rebuild(RebuildVerb, RebuildAsk{}, nil); err != nil {
		t.Fatal(err)
	}
	f.Until("it waits", func() bool { return f.status().Waits })
	f.Stop(n)
	said := f.record()
	said.Epoch, said.Differs, said.Why = said.Epoch+1, 0, ""
	text, err := said.Encode()
	if err == nil {
		_, err = f.Bucket().Put(t.Context(), recordKey, text)
	}
	if err != nil {
		t.Fatal(err)
	}
	n = f.Start("a")
	f.Until("it has compared, or switched", func() bool { s := f.record(); return s.Epoch > said.Epoch })
	time.Sleep(4 * leadEvery)
	if s := f.record(); s.State != generations.Comparing || s.Differs == 0 || n.Serving().Number != 1 || !f.Has("post", "like", 7, 3)() {
		t.Errorf("%+v", s)
	}
}
