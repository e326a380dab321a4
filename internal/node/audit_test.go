package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/internal/node/checks"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/nodetest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// docs/contract.md: "What differs is printed, with exit code 1"; "the same for these ids,
// now … With `--repair` a shard that differs is taken again." Of one node, from the log.
func TestVerifyAndRecount(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.Start("a")
	f.Publish(50)
	f.Until("all likes", func() bool { return f.Likes(50, 1) })
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	f.Plant(42, "a")
	n = f.With("a", func(*config.Config) {})
	f.Until("all is applied", func() bool { return n.Serving().Sinks().Whole() && strings.Contains(f.Like(42), `"like":3`) })
	all, err := f.Ask("a", "verify", checks.VerifyAsk{Share: "1/1"})
	if err != nil {
		t.Fatal(err)
	}
	if all.Differs != 1 || all.IDs != 50 || len(all.Shards) != nodetest.Shards || len(all.Examples) != 1 || len(all.Renewed) != 0 {
		t.Fatalf("%+v", all)
	}
	if d := all.Examples[0]; d.Counter != "post" || d.ID != 42 || d.Column != "like" || d.Is != 3 || d.Should != 2 || d.At != pipeline.EndOf(51) {
		t.Errorf("%+v", d)
	}
	if half, err := f.Ask("a", "verify", checks.VerifyAsk{Share: "1/2", Residue: 1}); err != nil || half.IDs < 10 || half.IDs > 42 {
		t.Errorf("a half: %+v, %v", half, err)
	}
	if c, err := f.Ask("a", "recount", checks.RecountAsk{Counter: "post", IDs: []uint64{41, 43}}); err != nil || c.Differs != 0 || c.IDs != 2 {
		t.Errorf("%+v, %v", c, err)
	}
	for request, why := range map[string]any{
		`{"share":"1/3"}`: "power of two", `{"share":"1/2","residue":2}`: "no part 2", `[]`: "not of this form",
	} {
		if _, err := f.Ask("a", "verify", json.RawMessage(request)); err == nil || !strings.Contains(err.Error(), why.(string)) {
			t.Errorf("%s: %v", request, err)
		}
	}
	for request, why := range map[string]any{
		`{"counter":"nope","ids":[1]}`: `no counter "nope"`, `{"ids":[0]}`: "none of them 0",
	} {
		if _, err := f.Ask("a", "recount", json.RawMessage(request)); err == nil || !strings.Contains(err.Error(), why.(string)) {
			t.Errorf("%s: %v", request, err)
		}
	}

	c, err := f.Ask("a", "recount", checks.RecountAsk{Counter: "post", IDs: []uint64{42}, Repair: true})
	if err != nil || c.Differs != 1 || !slices.Equal(c.Renewed, []pipeline.Shard{pipeline.ShardOf(42, nodetest.Shards)}) {
		t.Fatalf("%+v, %v", c, err)
	}
	// docs/contract.md: "`recount --repair` waits for that, compares again … and exits by
	// what it finds then".
	if a := c.After; a == nil || a.Differs != 0 || a.IDs != 1 || !slices.Contains(a.Shards, c.Renewed[0]) || a.After != nil {
		t.Fatalf("once it is repaired: %+v", a)
	}
	if !n.Serving().Sinks().Whole() || !strings.Contains(f.Like(42), `"like":2`) {
		t.Errorf("it is not there again: %s", f.Like(42))
	}
	if all, err = f.Ask("a", "verify", checks.VerifyAsk{Share: "1/1"}); err != nil || all.Differs != 0 || all.IDs != 50 {
		t.Errorf("%+v, %v", all, err)
	}
	f.Publish(50)
	f.Until("it goes on", func() bool {
		return strings.Contains(f.Like(42), `"like":3`) && strings.Contains(f.Like(41), `"like":2`)
	})
}

// copies are two nodes of which each has all shards, and 50 posts liked; they are
// started with still, and whole says that one answers for everything.
func (f *fleet) copies() (still func(*config.Config), whole func(*Node) bool, a, b *Node) {
	f.T.Helper()
	still = func(c *config.Config) { c.Cluster.Replicas = 2 }
	whole = func(n *Node) bool { return n.Serving().Sinks().Whole() && n.Serving().Sinks().Failed() == 0 }
	a, b = f.With("a", still), f.With("b", still)
	f.Publish(50)
	f.Until("copies", func() bool {
		return whole(a) && whole(b) && f.Likes(50, 1) && b.Serving().Sinks().Applied() == a.Serving().Sinks().Applied()
	})
	return still, whole, a, b
}

// docs/contract.md: "The audit does all the time what `verify` does"; "a shard that
// differs is taken again: from a node that agrees with the log, or from the log; the
// others serve meanwhile."
func TestAuditRepairs(t *testing.T) {
	t.Parallel()
	audited := func(c *config.Config) {
		c.Cluster.Replicas = 2
		c.Audit.Rate, c.Audit.Sample = 1_000_000, "1/1"
	}
	for _, test := range []struct {
		name  string
		wrong []string // whose copy differs
		came  string   // what the log then has
	}{
		{"replica", []string{"a"}, fmt.Sprintf(`shards=%d number=1 from=b`, pipeline.ShardOf(42, nodetest.Shards))},
		{"log", []string{"a", "b"}, "not_from=[b]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			still, whole, a, b := f.copies()
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			f.Plant(42, test.wrong...)
			b = f.With("b", still)
			f.Until("b says what it has", func() bool { // or the shard is derived from the log
				m, there := b.Serving().Inside().Members.View().Member("b")
				return there && m.Ready.Len() == nodetest.Shards
			})
			a = f.With("a", audited)
			f.Until("it is found", func() bool { return a.Serving().Inside().Auditor.Stats.Differ.Load() > 0 })
			f.Until("it is repaired", func() bool {
				c, err := f.Ask("a", "recount", checks.RecountAsk{IDs: []uint64{42}})
				return err == nil && c.Differs == 0 && c.IDs == 1 && whole(a)
			})
			f.Until("the log says so", func() bool { return f.Log.Has("a shard differs from the log") && f.Log.Has(test.came) })
			if !f.Likes(41, 1) {
				t.Error("others have changed")
			}
			f.Until("a round", func() bool { return a.Serving().Inside().Auditor.Stats.FullAt.Load() > 0 })
			if figures := a.stats(); figures["tidemark_audit_drifted_total"].(float64) < 1 || figures["tidemark_audit_ids_total"].(float64) < 50 {
				t.Errorf("%v, %v", figures["tidemark_audit_drifted_total"], figures["tidemark_audit_ids_total"])
			}
		})
	}
}

// docs/contract.md: "without either it is refused, with what is missing."
func TestVerifyTrimmed(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.With("a", func(c *config.Config) {})
	f.Publish(50)
	f.Until("all likes", func() bool { return f.Likes(50, 1) })
	js, err := jetstream.New(f.NC)
	if err != nil {
		t.Fatal(err)
	}
	shorter := natstest.Stream(t, f.NC, jetlog.EventsStream).CachedInfo().Config
	shorter.MaxMsgs, shorter.Discard = 40, jetstream.DiscardOld
	if _, err := js.UpdateStream(t.Context(), shorter); err != nil {
		t.Fatal(err)
	}
	_, err = f.Ask("a", "verify", checks.VerifyAsk{Share: "1/1"})
	if err == nil || !strings.Contains(err.Error(), "the log does not hold its beginning") || !strings.Contains(err.Error(), "begins with message 11") {
		t.Errorf("it says %v", err)
	}
}

// mix notes of a stopped node that EVENTS no longer has all that it has counted.
func (f *fleet) mix(name string) {
	f.T.Helper()
	d, err := datadir.Open(f.Dirs[name], "", false)
	if err == nil {
		err = errors.Join(d.Note(1, datadir.Noted{Counting: d.Counted(1).Counting, Mixed: true}), d.Close())
	}
	if err != nil {
		f.T.Fatal(err)
	}
}

// What was counted of an EVENTS that is gone is not what today's says: that is no drift,
// and nothing is repaired.
func TestMixedIsNotRepaired(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.Start("a")
	f.Publish(20)
	f.Until("all likes", func() bool { return f.Likes(20, 1) })
	if n.Serving().Inside().Mixed() {
		t.Error("a new directory is mixed")
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	f.Plant(5, "a")
	f.mix("a")
	n = f.With("a", func(c *config.Config) { c.Audit.Rate, c.Audit.Sample = 1_000_000, "1/1" })
	f.Until("it says so", func() bool { return f.Log.Has("there is no audit") && n.Serving().Sinks().Whole() })
	c, err := f.Ask("a", "recount", checks.RecountAsk{Counter: "post", IDs: []uint64{5}, Repair: true})
	if err != nil || c.Differs != 1 || len(c.Renewed) != 0 || !c.Mixed || !strings.Contains(c.Refused, "not all counted by today's rules") {
		t.Errorf("%+v, %v", c, err)
	}
	if !f.Has("post", "like", 5, 3)() || n.Serving().Inside().Auditor.Stats.Passes.Load() != 0 {
		t.Error("something was repaired")
	}
}
