package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/internal/node/checks"
	"github.com/tidemark-io/tidemark/internal/node/counting"
	"github.com/tidemark-io/tidemark/internal/nodetest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
	"github.com/tidemark-io/tidemark/sinks/check"
)

// counting starts a process that counts one generation, answers nobody, and takes
// jobs of comparing. edit may change it before it runs.
func (f *fleet) counting(name string, number generations.Number, change func(*config.Config), edit func(*counting.Generation)) *Node {
	f.T.Helper()
	if f.Dirs[name] == "" {
		f.Dirs[name] = f.T.TempDir()
	}
	n := newNode(f.Config(name, change), Options{Version: "test", Processors: 2, Logger: slog.New(slog.NewTextHandler(&f.Log, nil)).With("on", name)})
	g := n.Serving()
	g.Number, g.Slot = number, jetlog.Slot(number-1)
	for _, step := range []func() error{n.openHTTP, n.openData, n.openServer, n.awaitCluster, g.OpenAll} {
		if err := step(); err != nil {
			f.T.Fatal(err)
		}
	}
	if edit != nil {
		edit(g)
	}
	var err error
	n.jobs, err = job.Serve(n.queries, n.name, map[string]job.Handler{checks.CompareVerb: counting.Jobs(n.Serving, func(asked generations.Number) *counting.Generation {
		if asked != number {
			return nil
		}
		return g
	})[checks.CompareVerb]}, n.log)
	if err != nil {
		f.T.Fatal(err)
	}
	g.Begin()
	f.T.Cleanup(func() { n.Close() })
	return n
}

// compares compares, as the first node of each generation sees the others.
func (f *fleet) compares(ctx context.Context, serving, building *Node, edit func(*checks.Comparison)) (differs uint64, examples []check.Difference, why string, err error) {
	c := &checks.Comparison{
		NC: f.NC, Patience: time.Minute, Progress: func(done, of uint64) {}, Waits: func(string) {},
		Of: func(number generations.Number) (view func() *cluster.View, shards int) {
			if g := []*Node{serving, building}[number-1].Serving(); g.IsOpen() {
				return g.View, g.Config.Shards
			}
			return nil, 0
		},
	}
	if edit != nil {
		edit(c)
	}
	err = c.Run(ctx, 1, 2)
	differs, examples, why = c.Result()
	return differs, examples, why, err
}

// whole waits until each node has what is assigned to it, and all of EVENTS.
func (f *fleet) whole(nodes ...*Node) {
	f.T.Helper()
	f.Until("all is counted", func() bool {
		for _, n := range nodes {
			g := n.Serving()
			v := g.Inside().Members.View()
			m, there := v.Member(n.name)
			if !there || m.Behind || m.Ready != v.Assignment.HeldSet(n.name) || m.Ready.Len() == 0 ||
				g.Inside().Observe(f.T.Context()) != nil ||
				g.Sinks().Applied().Sequence() < g.SeenEvents().Last {
				return false
			}
		}
		for _, n := range nodes { // each knows of the others
			for s := range pipeline.Shard(n.Serving().Config.Shards) {
				v := n.Serving().Inside().Members.View()
				if len(v.Answering(s)) < len(v.Assignment.Holders(s)) ||
					len(v.Assignment.Holders(s)) < n.Serving().Config.Cluster.Replicas {
					return false
				}
			}
		}
		return true
	})
}

// twice are two copies of each shard; changed counts otherwise too, in fewer shards.
func twice(c *config.Config) { c.Cluster.Replicas = 2 }

func changed(c *config.Config) {
	twice(c)
	c.Shards = nodetest.Shards / 2
	for i := range c.EventRules {
		if c.EventRules[i].Type == "like" {
			c.EventRules[i].Rules = append(slices.Clone(c.EventRules[i].Rules), config.Rule{Add: "user.original", Key: "actor"})
		}
	}
}

// lying derives one like more of each post that user 8 likes than there is.
type lying struct{ pipeline.Deriver }

func (l lying) Derive(from, to pipeline.Position, messages []pipeline.Message) ([]pipeline.Derived, error) {
	windows, err := l.Deriver.Derive(from, to, messages)
	for i := range windows {
		w, err := pipeline.DecodeWindow(windows[i].Window)
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			var like struct{ Actor, Post uint64 }
			if err := json.Unmarshal(m.Data, &like); err != nil || like.Actor != 8 || pipeline.EndOf(m.Sequence) <= w.From ||
				pipeline.EndOf(m.Sequence) > w.To {
				continue
			}
			s := pipeline.ShardOf(like.Post, len(w.Sections)-1)
			w.Sections[s] = pipeline.AppendChange(slices.Clone(w.Sections[s]), slices.Index(w.Columns, "post.like"), like.Post, pipeline.Add(1))
		}
		windows[i].Window = pipeline.AppendWindow(nil, w)
	}
	return windows, err
}

func lies(g *counting.Generation) {
	lane := g.Inside().Router.Lane
	g.Inside().Router.Lane = func() pipeline.Deriver { return lying{lane()} }
}

// docs/contract.md: "When it has caught up, both are held to the log": what differs is
// counted once, whichever generation and copy it is in, on disk and in memory, and is
// named with its position; what the two do not define alike may differ.
func TestCompareGenerations(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a, b := f.counting("a", 1, twice, nil), f.counting("b", 1, twice, nil)
	inMemory := func(c *config.Config) { changed(c); c.Checkpoint.Interval = time.Hour }
	a2, b2 := f.counting("a2", 2, inMemory, lies), f.counting("b2", 2, inMemory, lies)
	f.whole(a, b, a2, b2)
	f.Publish(50)
	f.whole(a, b, a2, b2)
	var last atomic.Uint64
	differs, examples, why, err := f.compares(t.Context(), a, a2, func(c *checks.Comparison) {
		c.Progress = func(done, of uint64) {
			if done < last.Swap(done) || done > of {
				t.Errorf("%d of %d are done", done, of)
			}
		}
	})
	if differs != 0 || len(examples) != 0 || why != "" || err != nil || last.Load() != 2000 {
		t.Fatalf("%d, %+v, %q, %v; %d are done", differs, examples, why, err, last.Load())
	}
	for node, number := range map[string]generations.Number{"a": 1, "b": 1, "a2": 2, "b2": 2} {
		raw, err := job.Ask(t.Context(), f.NC, node, checks.CompareVerb, checks.Ask{Generation: number, Share: "1/1"}, nil)
		var c checks.Checked
		if err == nil {
			err = json.Unmarshal(raw, &c)
		}
		if err != nil || c.IDs != 50 || c.Generation != number ||
			len(c.Shards) != map[generations.Number]int{1: nodetest.Shards, 2: nodetest.Shards / 2}[number] {
			t.Errorf("%s: %+v, %v", node, c, err)
		}
	}

	f.Stop(a)
	f.Stop(b)
	f.Plant(42, "a", "b") // event 51
	a, b = f.counting("a", 1, twice, nil), f.counting("b", 1, twice, nil)
	f.whole(a, b, a2, b2)
	differs, examples, why, err = f.compares(t.Context(), a, a2, nil)
	if differs != 1 || len(examples) != 2 || err != nil ||
		!strings.Contains(why, "generation 1 differs from the log in 1 ids") ||
		!strings.Contains(why, fmt.Sprintf("post 42 like is 3, should be 2 at %d on ", pipeline.EndOf(51))) {
		t.Fatalf("%d, %+v, %q, %v", differs, examples, why, err)
	}
	for i, d := range examples {
		if d.Counter != "post" || d.ID != 42 || d.Column != "like" || d.Is != 3 || d.Should != 2 ||
			d.At != pipeline.EndOf(51) || d.Generation != 1 ||
			d.Node != "a" && d.Node != "b" || i == 1 && d.Node == examples[0].Node {
			t.Errorf("%+v", d)
		}
	}
	if differs, _, why, err := f.compares(t.Context(), a, a2, func(c *checks.Comparison) { c.Except = []string{"user.liked", "post.like"} }); differs != 0 || why != "" || err != nil {
		t.Errorf("but for what is not defined alike: %d, %q, %v", differs, why, err)
	}

	for _, post := range []int{42, 43} {
		if _, err := f.NC.Request("events.like", fmt.Appendf(nil, `{"actor":8,"post":%d,"author":9}`, post), e2e.Patience); err != nil {
			t.Fatal(err)
		}
	}
	f.whole(a, b, a2, b2)
	differs, examples, why, err = f.compares(t.Context(), a, a2, func(c *checks.Comparison) { c.Except = []string{"user.liked"} })
	if differs != 2 || len(examples) != 6 || err != nil ||
		!strings.Contains(why, "generation 1 differs from the log in 1 ids") ||
		!strings.Contains(why, "generation 2 differs from the log in 2 ids") {
		t.Errorf("%d, %+v, %q, %v", differs, examples, why, err)
	}
	// What may differ of the one that serves must not of the new one.
	if differs, _, why, err := f.compares(t.Context(), a, a2, func(c *checks.Comparison) { c.Except = []string{"post.like"} }); differs != 2 || strings.Contains(why, "generation 1") || err != nil {
		t.Errorf("%d, %q, %v", differs, why, err)
	}

	for request, text := range map[string]string{
		`{"generation":2,"share":"1/1"}`: "generation 2 is not open", `{"generation":1,"share":"1/3"}`: "power of two",
		`{"generation":1,"share":"1/2","residue":2}`: "no part 2", `[]`: "not of this form",
	} {
		if _, err := job.Ask(t.Context(), f.NC, "a", checks.CompareVerb, json.RawMessage(request), nil); err == nil ||
			!strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", request, err)
		}
	}
}

// stuck has the first audit of a generation wait at its beginning until it is
// ended.
func stuck(reached chan<- struct{}) func(*counting.Generation) {
	return func(g *counting.Generation) {
		var once sync.Once
		open := g.Inside().Auditor.Open
		g.Inside().Auditor.Open = func(ctx context.Context, from pipeline.Position) (pipeline.Source, error) {
			first := false
			once.Do(func() { first = true })
			if first {
				close(reached)
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return open(ctx, from)
		}
	}
}

// silenced has a node fall silent once it compares; then it closes, which says that it is so.
func silenced(n *Node, amid <-chan struct{}) {
	<-amid
	n.queries.Close()
	_ = n.Close()
}

// What is not compared is not alike: a holder that goes amid it is asked again when it is
// back; else it says what is missing.
func TestCompareHolderDies(t *testing.T) {
	t.Parallel()
	for _, back := range []bool{false, true} {
		t.Run(fmt.Sprintf("and comes back %v", back), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			amid := make(chan struct{})
			one := func(*config.Config) {}
			a, b := f.counting("a", 1, one, nil), f.counting("b", 1, one, stuck(amid))
			a2 := f.counting("a2", 2, one, nil)
			f.Publish(50)
			f.whole(a, b, a2)
			f.dropSpares(a)
			held := b.Serving().Inside().Held()
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				silenced(b, amid)
				if back {
					f.counting("b", 1, one, nil)
				}
			}()
			var waited atomic.Bool
			differs, _, _, err := f.compares(t.Context(), a, a2, func(c *checks.Comparison) {
				c.Waits = func(why string) {
					if strings.HasPrefix(why, "it waits: ") && strings.Contains(why, "compared by no node") {
						waited.Store(true)
					}
				}
				if !back {
					c.Patience = bucket.MemberExpiry + bucket.MemberBeat
				}
			})
			<-gone
			if back {
				if err != nil || differs != 0 {
					t.Errorf("%d, %v", differs, err)
				}
				return
			}
			missing := "generation 1 could not be compared with the log: shards " + held.String() + " were compared by no node"
			if err == nil || !strings.Contains(err.Error(), missing) || !strings.Contains(err.Error(), "node b") {
				t.Errorf("it says %v", err)
			}
			if !waited.Load() {
				t.Error("it does not say meanwhile what it waits for")
			}
		})
	}
}

// "All holders of a shard are asked, not one of them": also a copy that was away when the
// others were compared, and is back before the switch. A node that fails again and again ends
// it, and says why.
func TestCompareWhatComesBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	amid := make(chan struct{})
	a, b := f.counting("a", 1, twice, nil), f.counting("b", 1, twice, stuck(amid))
	a2 := f.counting("a2", 2, func(*config.Config) {}, nil)
	f.Publish(50)
	f.whole(a, b, a2)
	go silenced(b, amid)
	var c *checks.Comparison
	differs, _, why, err := f.compares(t.Context(), a, a2, func(is *checks.Comparison) { c = is })
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
	if differs, examples, _ := c.Result(); differs != 1 || len(examples) != 1 || examples[0].Node != "b" ||
		examples[0].ID != 3 || !c.Whole(1) {
		t.Errorf("%d, %+v, %v", differs, examples, c.Whole(1))
	}

	broken := errors.New("it is gone")
	a2.Serving().Inside().Auditor.Open = func(context.Context, pipeline.Position) (pipeline.Source, error) {
		return nil, fmt.Errorf("%w: %w", pipeline.ErrGap, broken)
	}
	_, _, _, err = f.compares(t.Context(), a, a2, nil)
	begins := "generation 2 could not be compared with the log: node a2: check: the log does not hold its beginning"
	if err == nil || !strings.Contains(err.Error(), begins) || !strings.Contains(err.Error(), broken.Error()) {
		t.Errorf("it says %v", err)
	}
}
