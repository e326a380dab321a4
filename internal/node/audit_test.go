package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node/checks"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/nodetest"
	"github.com/tidemark-io/tidemark/internal/twin"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/check"
)

// audited has all that there is be compared all the time.
func audited(c *config.Config) { c.Audit.Rate, c.Audit.Sample = 1_000_000, "1/1" }

// recount compares some ids, as operators do.
func (f *fleet) recount(repair bool, ids ...uint64) (*checks.Checked, error) {
	f.T.Helper()
	return f.Ask("a", "recount", checks.Ask{Counter: "post", IDs: ids, Repair: repair})
}

// docs/contract.md: "What differs is printed, with exit code 1"; "the same for these ids,
// now … With `--repair` a shard that differs is taken again." Of one node, from the log, and
// behind a base, where the audit finds what differs and leaves it, as the base may be what is
// wrong.
func TestVerifyAndRecount(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.Start("a")
	f.Publish(50)
	f.Until("all likes", func() bool { return f.Likes(50, 1) })
	f.Stop(n)
	f.Plant(42, "a")
	n = f.With("a", unaudited)
	f.Until("all is applied", func() bool { return n.Serving().Sinks().Whole() && f.Has("post", "like", 42, 3)() })
	all, err := f.Ask("a", "verify", checks.Ask{Share: "1/1"})
	if err != nil {
		t.Fatal(err)
	}
	if all.Differs != 1 || all.IDs != 50 || len(all.Shards) != nodetest.Shards || len(all.Examples) != 1 ||
		len(all.Renewed) != 0 {
		t.Fatalf("%+v", all)
	}
	if d := all.Examples[0]; d.Counter != "post" || d.ID != 42 || d.Column != "like" || d.Is != 3 || d.Should != 2 ||
		d.At != pipeline.EndOf(51) {
		t.Errorf("%+v", d)
	}
	if half, err := f.Ask("a", "verify", checks.Ask{Share: "1/2", Residue: 1}); err != nil || half.IDs < 10 ||
		half.IDs > 42 {
		t.Errorf("a half: %+v, %v", half, err)
	}
	if c, err := f.recount(false, 41, 43); err != nil || c.Differs != 0 || c.IDs != 2 {
		t.Errorf("%+v, %v", c, err)
	}
	for _, bad := range []struct{ verb, request, why string }{
		{"verify", `{"share":"1/3"}`, "power of two"},
		{"verify", `{"share":"1/2","residue":2}`, "no part 2"},
		{"verify", `[]`, "not of this form"},
		{"recount", `{"counter":"nope","ids":[1]}`, `no counter "nope"`},
		{"recount", `{"ids":[0]}`, "none of them 0"},
	} {
		if _, err := f.Ask("a", bad.verb, json.RawMessage(bad.request)); err == nil ||
			!strings.Contains(err.Error(), bad.why) {
			t.Errorf("%s %s: %v", bad.verb, bad.request, err)
		}
	}

	c, err := f.recount(true, 42)
	if err != nil || c.Differs != 1 || !slices.Equal(c.Renewed, []pipeline.Shard{pipeline.ShardOf(42, nodetest.Shards)}) {
		t.Fatalf("%+v, %v", c, err)
	}
	// docs/contract.md: "`recount --repair` waits for that, compares again … and exits by
	// what it finds then".
	if a := c.After; a == nil || a.Differs != 0 || a.IDs != 1 || !slices.Contains(a.Shards, c.Renewed[0]) ||
		a.After != nil {
		t.Fatalf("once it is repaired: %+v", a)
	}
	if !n.Serving().Sinks().Whole() || !f.Has("post", "like", 42, 2)() {
		t.Errorf("it is not there again: %s", f.Like(42))
	}
	f.Publish(50)
	f.Until("it goes on", func() bool { return f.Has("post", "like", 42, 3)() && f.Has("post", "like", 41, 2)() })

	to := filepath.Join(t.TempDir(), "backups")
	m := f.backup(to)
	streams := n.Serving().Inside().Streams
	if _, err := streams.Trim(t.Context(), m.Position.Next(), to, nil); err != nil {
		t.Fatal(err)
	}
	f.Stop(n)
	f.Plant(42, "a")
	n = f.With("a", audited)
	f.Until("it is found", func() bool { return f.Log.Has("nothing is repaired") })
	if n.Serving().Inside().Auditor.Stats.Refused.Load() {
		t.Error("the audit says that it cannot derive")
	}
	c, err = f.recount(false, 42, 43)
	if err != nil || c.Differs != 1 || c.IDs != 2 || len(c.Examples) != 1 ||
		c.Examples[0].Is != c.Examples[0].Should+1 || c.Examples[0].ID != 42 {
		t.Errorf("%+v, %v", c, err)
	}
}

// docs/contract.md: "The audit does all the time what `verify` does"; "a shard that
// differs is taken again: from a node that agrees with the log, or from the log; the
// others serve meanwhile." Here from a node.
func TestAuditRepairs(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	still := func(c *config.Config) { c.Cluster.Replicas = 2 }
	whole := func(n *Node) bool { return n.Serving().Sinks().Whole() && n.Serving().Sinks().Failed() == 0 }
	a, b := f.With("a", still), f.With("b", still)
	f.Publish(50)
	f.Until("copies", func() bool {
		return whole(a) && whole(b) && f.Likes(50, 1) && b.Serving().Sinks().Applied() == a.Serving().Sinks().Applied()
	})
	f.Stop(a)
	f.Stop(b)
	f.Plant(42, "a")
	b = f.With("b", still)
	f.Until("b says what it has", func() bool { // or the shard is derived from the log
		m, there := b.Serving().Inside().Members.View().Member("b")
		return there && m.Ready.Len() == nodetest.Shards
	})
	a = f.With("a", func(c *config.Config) { still(c); audited(c) })
	f.Until("it is found", func() bool { return a.Serving().Inside().Auditor.Stats.Differ.Load() > 0 })
	f.Until("it is repaired", func() bool {
		c, err := f.recount(false, 42)
		return err == nil && c.Differs == 0 && c.IDs == 1 && whole(a)
	})
	came := fmt.Sprintf(`shards=%d number=1 from=b`, pipeline.ShardOf(42, nodetest.Shards))
	f.Until("the log says so", func() bool { return f.Log.Has("a shard differs from the log") && f.Log.Has(came) })
	if !f.Likes(41, 1) {
		t.Error("others have changed")
	}
	f.Until("a round", func() bool { return a.Serving().Inside().Auditor.Stats.FullAt.Load() > 0 })
	figures := a.stats()
	if figures["tidemark_audit_drifted_total"].(float64) < 1 || figures["tidemark_audit_ids_total"].(float64) < 50 {
		t.Errorf("%v, %v", figures["tidemark_audit_drifted_total"], figures["tidemark_audit_ids_total"])
	}
}

// docs/contract.md: "With `--repair` a shard that differs is taken again": whatever it is that
// differs. In one process it is taken from the log, in three from the other holder. Notices are
// in no shard: they are corrected.
func TestEachKindIsRepaired(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{{"a"}, {"a", "b", "c"}} {
		t.Run(fmt.Sprint(len(names)), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.Edit = func(c *config.Config) {
				unaudited(c)
				c.EventRules, c.Cluster.Replicas = config.Default().EventRules, min(len(names), 2)
				twin.KeepItems(c)
			}
			nodes := make([]*Node, len(names))
			for i, name := range names {
				nodes[i] = f.Start(name)
			}
			f.Publish(50)
			f.Until("all likes", func() bool {
				return f.Likes(50, 1) && !slices.ContainsFunc(nodes, func(n *Node) bool { return n.Ready() != nil })
			})
			id := uint64(1)
			for !nodes[0].Serving().Sinks().Holds(pipeline.ShardOf(id, nodetest.Shards)) {
				id++
			}
			for _, n := range nodes {
				f.Stop(n)
			}
			f.PlantAll(id, twin.Plants, "a")
			for i := len(names) - 1; i >= 0; i-- { // a last: it can take the shard from another
				nodes[i] = f.Start(names[i])
				f.Until("it says what it has", func() bool {
					m, there := nodes[i].Serving().Inside().Members.View().Member(names[i])
					return there && m.Ready.Len() > 0 && nodes[i].Serving().Sinks().Failed() == 0
				})
			}

			all, err := f.Ask("a", "verify", checks.Ask{Share: "1/1"})
			if err != nil || all.Differs != 1 || all.Notices != 1 {
				t.Fatalf("%+v, %v", all, err)
			}
			for _, p := range twin.Plants {
				if !slices.ContainsFunc(all.Examples, func(d check.Difference) bool {
					return d.Counter == p.Counter && (d.Column == p.Column || p.Items) && (d.ID == id || p.Counter == "notice")
				}) {
					t.Errorf("%s %s is not found: %+v", p.Counter, p.Column, all.Examples)
				}
			}
			c, err := f.recount(true, id)
			if err != nil || c.Differs != 1 || c.After == nil || c.After.Differs != 0 || c.After.IDs != 1 {
				t.Fatalf("%+v, %v", c, err)
			}
			if from := fmt.Sprintf("shards=%d number=1 from=", c.Renewed[0]); len(names) > 1 {
				f.Until("the log says where it came from", func() bool { return f.Log.Has(from) })
			}
			for _, left := range []int{1, 0} {
				all, err = f.Ask("a", "verify", checks.Ask{Share: "1/1", Repair: true})
				if err != nil || all.Differs != 0 || all.Notices != left || all.Refused != "" {
					t.Errorf("%d notices should differ: %+v, %v", left, all, err)
				}
			}
		})
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
	f.Stop(n)
	f.Plant(5, "a")
	d, err := datadir.Open(f.Dirs["a"], "", false)
	if err == nil {
		err = errors.Join(d.Note(1, datadir.Noted{Counting: d.Counted(1).Counting, Mixed: true}), d.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	n = f.With("a", audited)
	f.Until("it says so", func() bool { return f.Log.Has("there is no audit") && n.Serving().Sinks().Whole() })
	c, err := f.recount(true, 5)
	if err != nil || c.Differs != 1 || len(c.Renewed) != 0 || !c.Mixed ||
		!strings.Contains(c.Refused, "not all counted by today's rules") {
		t.Errorf("%+v, %v", c, err)
	}
	if !f.Has("post", "like", 5, 3)() || n.Serving().Inside().Auditor.Stats.Passes.Load() != 0 {
		t.Error("something was repaired")
	}
}
