package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/query/client"
)

const (
	// collectEvery is how often a collection is forced.
	collectEvery = 250 * time.Millisecond
	// collectCalls are single gets a second during it.
	collectCalls = 2000
)

// collector is how long a caller waits for a single get while the program
// collects garbage again and again, with many rows in memory. Beside it: the
// same without. A profile of the heap is fetched as often in both; one that is
// to be of the newest heap has garbage collected before, which is all that
// differs.
func (g *growing) collector(ctx context.Context) error {
	if err := g.growToHot(ctx); err != nil {
		return err
	}
	if _, err := g.p.rest(ctx); err != nil {
		return err
	}
	rows := number(float64(g.size.hot)) + " rows"
	const beside = "without"
	usual := line{what: "single gets while garbage is collected, p99.9, " + rows, unit: "ms", beside: beside}
	longest := line{what: "the same, the longest", unit: "ms", beside: beside}
	more := line{what: "the same, how much longer the longest is", unit: "ms", target: atMost(1), signed: true}
	forced, unforced := 0, 0
	var waited, waitedBeside sample // for a processor, seconds a second
	for round := range g.size.rounds {
		for turn := range 2 {
			collecting := turn != round%2 // who begins changes
			begun, before := time.Now(), g.p.waited()
			took, collections, err := g.collect(ctx, collecting)
			if err != nil {
				return err
			}
			share := (g.p.waited() - before).Seconds() / time.Since(begun).Seconds()
			if collecting {
				usual.ours, longest.ours = append(usual.ours, took.quantile(0.999)), append(longest.ours, slices.Max(took))
				forced += collections
				waited = append(waited, share)
			} else {
				usual.theirs, longest.theirs = append(usual.theirs, took.quantile(0.999)), append(longest.theirs, slices.Max(took))
				unforced += collections
				waitedBeside = append(waitedBeside, share)
			}
		}
		more.ours = append(more.ours, longest.ours[round]-longest.theirs[round])
		g.say("collector: p99.9 %s ms, without %s; longest %s ms, without %s", last(usual.ours), last(usual.theirs), last(longest.ours), last(longest.theirs))
	}
	g.table.add(usual)
	g.table.add(longest)
	g.table.add(more)
	g.table.note("single gets while garbage is collected: %s a second, %d collections in all; and %d where none was forced. The program's threads waited %s s a second for a processor, all together; and %s.",
		number(collectCalls), forced, unforced, number(waited.median()), number(waitedBeside.median()))
	return nil
}

// collect asks for a while, and says how many collections there were.
func (g *growing) collect(ctx context.Context, forced bool) (took sample, collections int, err error) {
	logged, err := os.Stat(g.p.log)
	if err != nil {
		return nil, 0, err
	}
	path := "/debug/pprof/heap"
	if forced {
		path += "?gc=1"
	}
	c, err := g.p.connect()
	if err != nil {
		return nil, 0, err
	}
	defer c.Close()
	// What is collected here must not be taken for the program's.
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	timed, end := context.WithCancel(ctx)
	defer end()
	var work errgroup.Group
	work.Go(func() error { return g.fetch(timed, path, collectEvery) })
	took, err = pace(ctx, collectCalls, g.size.collecting, func(ctx context.Context, _ int, seed uint64) error {
		post := postID(seed % uint64(g.size.hot))
		reply, err := c.Get(ctx, client.GetRequest{Counter: "post", IDs: []uint64{post}, Columns: columns[likesAt:]})
		if err != nil {
			return err
		}
		want := countsOf(seed % uint64(g.size.hot))[likesAt]
		if got, _ := reply.Value(0, columns[likesAt]); got != want {
			return fmt.Errorf("post %d has %d likes and the answer says %d", post, want, got)
		}
		return nil
	})
	end()
	if failed := work.Wait(); err == nil {
		err = failed
	}
	if err != nil {
		return nil, 0, err
	}
	pauses, err := pausesIn(g.p.log, logged.Size())
	return took, len(pauses) / 2, err
}

// fetch reads a page of the program's again and again until ctx ends.
func (g *growing) fetch(ctx context.Context, path string, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		page, err := g.p.page(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, page)
		page.Close()
		if err != nil {
			return err
		}
	}
}
