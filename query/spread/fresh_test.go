package spread_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
	"github.com/tidemark-io/tidemark/query/spread"
)

// openWith makes the cluster's reader with options of a kind.
func (c *cluster) openWith(o spread.Options) {
	c.t.Helper()
	o.Schema, o.Directory, o.Registerer = c.world.Schema, c, c.metrics
	r, err := spread.New(querytest.Connect(c.t, c.server), o)
	if err != nil {
		c.t.Fatal(err)
	}
	c.reader = r
	c.t.Cleanup(func() { _ = r.Close() })
}

// Polls of one user over several copies, of which one lags, never go back, also when the
// copy that is asked is gone and when it is there again.
func TestPollsDoNotGoBack(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 2)), 300)
	c := newCluster(t, w, &server.Options{})
	holders := []*querytest.Holder{c.node("a", all), c.node("b", all), c.node("d", all)}
	c.open()
	user, last := uint64(7), pipeline.Position(0)
	names := [...]string{"a", "b", "d"}
	for i := range 300 {
		at := now + pipeline.Position(i)<<10
		for j, h := range holders { // which do not go back
			h.Lag(max(h.Applied(), at-pipeline.Position(j*20)<<10))
		}
		if i%50 == 25 { // a copy is not asked for a while, another one is
			away := names[i/50%3]
			c.view.Store(&spread.View{Epoch: uint64(1000 + i), Holders: make([][]string, w.Shards)})
			for _, name := range names {
				if name != away {
					c.list(name, all)
				}
			}
		}
		if i%50 == 0 && i > 0 {
			c.view.Store(&spread.View{Epoch: uint64(1000 + i), Holders: make([][]string, w.Shards)})
			for _, name := range names {
				c.list(name, all)
			}
		}
		// A copy that lags by 20 positions comes as far while it is waited for.
		caught := time.AfterFunc(20*time.Millisecond, func() {
			for _, h := range holders {
				h.Lag(at)
			}
		})
		var out query.Unreads
		if err := c.far(0, time.Second).Unread(within(t, 5*time.Second), []uint64{user}, nil, &out, true); err != nil || len(out.Missing) > 0 {
			t.Fatalf("poll %d: %v, missing %v", i, err, out.Missing)
		}
		caught.Stop()
		if out.AsOf < last && !out.Cost.Old {
			t.Fatalf("poll %d is as of %v, and one before was as of %v", i, out.AsOf, last)
		}
		last = max(last, out.AsOf)
	}
	if last < now+200<<10 {
		t.Errorf("the last poll is as of %v: no copy is asked that goes on", last)
	}
}

// leastFresh says how far an answer must reach.
type leastFresh pipeline.Position

func (l leastFresh) Age(p pipeline.Position) (time.Duration, bool) {
	return 0, p >= pipeline.Position(l)
}
func (l leastFresh) Least() (pipeline.Position, bool) { return pipeline.Position(l), true }
func (l leastFresh) Reaches(p pipeline.Position) bool { return p >= pipeline.Position(l) }

// docs/contract.md: "Other processes prefer holders that can": what a copy answers that
// is too old is asked of another one, also where this process holds the shard itself.
func TestStaleCopyIsAskedAgainElsewhere(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 3)), 300)
	c := newCluster(t, w, &server.Options{})
	a, b := c.node("a", all), c.node("b", all)
	c.openWith(spread.Options{Fresh: leastFresh(now)})
	ask := func(wait time.Duration) query.Rows {
		t.Helper()
		rows, err := like(t, c.far(0, wait), within(t, 5*wait), 1, 2, 3, 4, 5, 6, 7, 8)
		if err != nil || len(rows.Missing) > 0 {
			t.Fatalf("%v, missing %v", err, rows.Missing)
		}
		return rows
	}
	for _, stale := range []*querytest.Holder{a, b} {
		stale.Lag(now - 1<<10)
		// What a copy has said within a second is believed.
		e2e.Until(t, "what the stale one of two copies says is not taken", func() bool { return ask(time.Second).AsOf == now })
		for range 20 {
			if rows := ask(time.Second); rows.AsOf != now {
				t.Errorf("one of two copies is stale: as of %v, the other is as of %v", rows.AsOf, now)
			}
		}
		stale.Lag(now)
	}
	a.Lag(now - 1<<10)
	b.Lag(now - 1<<10)
	if rows := ask(time.Hour); rows.AsOf != now-1<<10 {
		t.Errorf("all copies are stale: as of %v", rows.AsOf)
	}
	own := querytest.NewHolder(w, "own", all)
	own.Lag(now - 1<<10)
	b.Lag(now)
	c.own = own
	v := *c.View()
	v.Whole = true
	c.view.Store(&v)
	var rows query.Rows
	if err := c.reader.Rows(t.Context(), 0, likeColumns, []uint64{1}, &rows, false); err != query.ErrFar {
		t.Errorf("this process is stale, another one is not: %v", err)
	}
}

// docs/contract.md: "with `wait`, also visible to every later query."
func TestWaitVisible(t *testing.T) {
	t.Parallel()
	w := community(t, rand.New(rand.NewPCG(1, 1)), 30)
	c := newCluster(t, w, &server.Options{})
	user := idIn(0, 0)
	a, b, others := c.node("a", even), c.node("b", all), c.node("c", odd)
	own := querytest.NewHolder(w, "own", even)
	c.own = own
	c.list("gone", even) // listed, and dead
	c.open()
	others.Lag(0) // has no say
	for name, h := range map[string]*querytest.Holder{"a": a, "b": b, "own": own} {
		h.Lag(now - 1)
		err := c.reader.WaitVisible(within(t, 100*time.Millisecond), user, now)
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, query.ErrBehind) {
			t.Errorf("%s lags: %v", name, err)
		}
		time.AfterFunc(10*time.Millisecond, func() { h.Lag(now) })
		if err := c.reader.WaitVisible(within(t, time.Minute), user, now); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// docs/decisions/0033-freshness.md: "a read with wait": a holder that stops in order, or
// is killed, while it is waited for has no say: no later query is asked of it.
func TestWaitVisibleWhileAHolderGoes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, community(t, rand.New(rand.NewPCG(1, 1)), 30), &server.Options{})
	a := c.node("a", all)
	a.Lag(now - 1)
	kill := c.pretend("b", 1)
	c.list("b", all)
	c.node("c", all)
	c.open()
	visible := make(chan error, 1)
	go func() { visible <- c.reader.WaitVisible(within(t, time.Minute), 1, now) }()
	e2e.Until(t, "all are asked", func() bool { return a.Waiting() == 1 && c.figure("tidemark_nodes_requests_total") >= 3 })
	c.stop("a")
	kill()
	if err := <-visible; err != nil {
		t.Error(err)
	}
}

// A read that waits waits out a node that is away, is gone or says nothing.
func TestWaitVisibleWaitsOut(t *testing.T) {
	const wait = 400 * time.Millisecond
	w := community(t, rand.New(rand.NewPCG(1, 4)), 30)
	user := idIn(0, 0)
	for name, prepare := range map[string]func(c *cluster, v *spread.View){
		"is gone": func(_ *cluster, v *spread.View) { v.Holders[0] = append(v.Holders[0], "gone") },
		"is away": func(_ *cluster, v *spread.View) { v.Unheard = make([]bool, w.Shards); v.Unheard[0] = true },
		"comes": func(_ *cluster, v *spread.View) {
			v.Coming = make([][]string, w.Shards)
			v.Coming[0] = []string{"gone"}
		},
		"says nothing": func(c *cluster, v *spread.View) { c.pretend("mute", 0); v.Holders[0] = append(v.Holders[0], "mute") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, w, &server.Options{})
			c.node("a", all)
			v := *c.View()
			prepare(c, &v)
			c.view.Store(&v)
			c.openWith(spread.Options{Wait: func() time.Duration { return wait }})
			begun := time.Now()
			if err := c.reader.WaitVisible(within(t, time.Minute), user, now); err != nil || time.Since(begun) < wait {
				t.Error(err, time.Since(begun))
			}
		})
	}
	t.Run("all are well", func(t *testing.T) {
		c := newCluster(t, w, &server.Options{})
		c.node("a", all)
		c.openWith(spread.Options{Wait: func() time.Duration { return time.Hour }})
		if err := c.reader.WaitVisible(within(t, time.Minute), user, now); err != nil {
			t.Error(err)
		}
	})
}

// The answer of a copy that is stale is asked of another one, which has just been killed:
// then the stale one is given, and nothing is missing, also where it is this process's own.
func TestStaleCopyIsTakenWhereTheOtherIsGone(t *testing.T) {
	for _, own := range []bool{false, true} {
		w := community(t, rand.New(rand.NewPCG(1, 5)), 30)
		c := newCluster(t, w, &server.Options{})
		if own {
			h := querytest.NewHolder(w, "own", all)
			h.Lag(now - 1<<10)
			c.own = h
		} else {
			c.node("a", all).Lag(now - 1<<10)
		}
		c.list("killed", all)
		c.openWith(spread.Options{Fresh: leastFresh(now)})
		for range 3 {
			rows, err := like(t, c.far(0, time.Second), within(t, time.Minute), 1, 2, 3, 4, 5, 6, 7, 8)
			if err != nil || len(rows.Missing) > 0 || rows.AsOf != now-1<<10 {
				t.Errorf("this process's own: %t: as of %v, missing %v, %v", own, rows.AsOf, rows.Missing, err)
			}
		}
	}
}
