package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/query/client"
)

const (
	pauseEvents = 100_000 // a second, in packs
	pauseAskers = 2       // goroutines that ask multi-gets without a break
	pauseEvery  = time.Second
)

// pauses are how long the garbage collector stops the program, while it holds
// many rows, takes events and answers. A collection is asked for every second:
// with a heap as large as this they would be too rare to tell.
func (g *growing) pauses(ctx context.Context) error {
	if err := g.growToHot(ctx); err != nil {
		return err
	}
	figures, err := g.p.figures()
	if err != nil {
		return err
	}
	_, held := rowBytes(figures)
	logged, err := os.Stat(g.p.log)
	if err != nil {
		return err
	}
	begun, waited := time.Now(), g.p.waited()
	if err := g.strain(ctx); err != nil {
		return err
	}
	share := (g.p.waited() - waited).Seconds() / time.Since(begun).Seconds()
	all, err := pausesIn(g.p.log, logged.Size())
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("no collection was seen")
	}
	out := line{what: fmt.Sprintf("longest GC pause, %s hot rows", number(held)), unit: "ms", ours: sample{slices.Max(all)}, target: atMost(1)}
	g.say("pause: %s ms of %d", last(out.ours), len(all))
	g.table.add(out)
	g.table.note("GC pauses: two in each of %d collections; the median is %s ms, nine of ten are within %s ms. The program's threads waited %s s a second for a processor, all together.",
		len(all)/2, number(all.median()), number(all.quantile(0.9)), number(share))
	return nil
}

// growToHot loads rows with one column, once.
func (g *growing) growToHot(ctx context.Context) error {
	if g.hot {
		return nil
	}
	g.say("pause, collector: to %s post rows", number(float64(g.size.hot)))
	g.hot = true
	return loadLikes(ctx, g.c, g.rows, g.size.hot)
}

// strain publishes, asks and has garbage collected, for a while.
func (g *growing) strain(ctx context.Context) error {
	timed, end := context.WithTimeout(ctx, g.size.pauses)
	defer end()
	var work errgroup.Group
	for n := range pauseAskers {
		work.Go(func() error { return g.askUntil(timed, ctx, uint64(n)) })
	}
	work.Go(func() error { return g.packUntil(timed, ctx) })
	work.Go(func() error { return g.fetch(timed, "/debug/pprof/heap?gc=1", pauseEvery) })
	return work.Wait()
}

func (g *growing) askUntil(timed, ctx context.Context, seed uint64) error {
	c, err := g.p.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	r := rand.New(rand.NewPCG(seed, 1))
	ask, at := overNATS(ctx, c, columns), make([]uint64, getIDs)
	for timed.Err() == nil {
		for i := range at {
			at[i] = r.Uint64N(uint64(g.size.hot))
		}
		if _, err := ask(at); err != nil {
			return err
		}
	}
	return nil
}

func (g *growing) packUntil(timed, ctx context.Context) error {
	c, err := g.p.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	p, err := c.NewPacker(client.PackOptions{})
	if err != nil {
		return err
	}
	community := newCommunity(5)
	var body []byte
	begun, sent := time.Now(), 0
	for ; timed.Err() == nil && err == nil; time.Sleep(time.Millisecond) {
		for due := int(time.Since(begun).Seconds() * pauseEvents); sent < due && err == nil; sent++ {
			_, body = community.event(body[:0])
			err = p.AddLine(body)
		}
	}
	return errors.Join(err, p.Close(ctx))
}

// A collection stops the program twice, before and after the marking:
//
//	gc 5 @1.2s 3%: 0.018+1.1+0.003 ms clock, …
var collected = regexp.MustCompile(`gc \d+ @\S+ \d+%: ([\d.]+)\+[\d.]+\+([\d.]+) ms clock`)

// pausesIn are the pauses in a log, in milliseconds, from an offset on.
func pausesIn(log string, from int64) (all sample, err error) {
	f, err := os.Open(log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		m := collected.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		for _, text := range m[1:] {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
	}
	return all, lines.Err()
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
