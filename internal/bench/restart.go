package main

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/query/client"
)

// restart measures from the start of the process: until the first right answer
// over NATS, and until it is warm. Beside the first: a node without any data.
func (g *growing) restart(ctx context.Context) error {
	empty, c, err := g.launch(ctx, "log: {level: error}\n")
	if err != nil {
		return err
	}
	c.Close()
	defer empty.discard()
	rows := number(float64(g.rows)) + " post rows"
	stopped := line{what: "restart with " + rows + ", first right answer", unit: "s", beside: "a node without data", target: atMost(0.3)}
	killed := line{what: "the same after kill -9", unit: "s", beside: "a node without data", target: atMost(0.3)}
	warm := line{what: "restart with " + rows + ", ready and warm", unit: "s", target: atMost(1.5)}
	var held float64
	for range g.size.rounds {
		for _, how := range []struct {
			*line
			signal os.Signal
		}{{&stopped, syscall.SIGTERM}, {&killed, syscall.SIGKILL}} {
			g.c.Close()
			first, err := g.p.again(ctx, how.signal, func(c *client.Client) error { return g.check(ctx, c) })
			if err != nil {
				return err
			}
			how.ours = append(how.ours, first.Seconds())
			took, rows, err := g.p.warm(ctx, float64(g.rows))
			if err != nil {
				return err
			}
			if how.line == &stopped {
				warm.ours = append(warm.ours, took.Seconds())
			}
			held = rows
			if g.c, err = g.p.connect(); err != nil {
				return err
			}
			if first, err = empty.again(ctx, how.signal, func(c *client.Client) error { return applied(ctx, c, 0) }); err != nil {
				return err
			}
			how.theirs = append(how.theirs, first.Seconds())
		}
		g.say("restart: %s s to the first answer, %s s after kill -9, %s s to be warm", last(stopped.ours), last(killed.ours), last(warm.ours))
	}
	g.table.add(stopped)
	g.table.add(killed)
	g.table.add(warm)
	g.table.note("restart: warm with %s of %s in memory.", number(held), rows)
	return nil
}

// again ends the process, starts it, and gives the time from its start until
// a question is answered well.
func (p *program) again(ctx context.Context, how os.Signal, ask func(*client.Client) error) (time.Duration, error) {
	p.end(how)
	if err := p.spawn(); err != nil {
		return 0, err
	}
	var c *client.Client
	defer func() {
		if c != nil {
			c.Close()
		}
	}()
	err := p.until(ctx, "wait for an answer", time.Millisecond, func() (err error) {
		if c == nil {
			if c, err = client.Connect(p.url, nats.NoReconnect()); err != nil {
				c = nil
				return err
			}
		}
		return ask(c)
	})
	return time.Since(p.begun), err
}

// settledAfter is how long the rows in memory must stay the same for a process
// that does not take all of them in to be taken for warm.
const settledAfter = 3 * time.Second

// warm is when, after the start, /readyz said yes and all rows were in memory,
// or their number changed for the last time.
func (p *program) warm(ctx context.Context, all float64) (took time.Duration, rows float64, err error) {
	held, changed := -1.0, time.Now()
	err = p.until(ctx, "wait to be warm", 5*time.Millisecond, func() error {
		if err := p.isReady(); err != nil {
			return err
		}
		figures, err := p.figures()
		if err != nil {
			return err
		}
		if _, rows := rowBytes(figures); rows != held {
			held, changed = rows, time.Now()
		}
		if held < all && time.Since(changed) < settledAfter {
			return fmt.Errorf("%v rows are in memory", held)
		}
		return nil
	})
	return changed.Sub(p.begun), held, err
}
