package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/internal/node"
	"github.com/tidemark-io/tidemark/query/client"
)

type topCommand struct {
	Once     bool          `help:"Show it once, and end."`
	Interval time.Duration `default:"1s" help:"Between two looks, 100ms or more; rates are of this time (${default})."`
	remote
}

func (topCommand) Help() string {
	return `Shows what goes on, live, until Ctrl-C: rates since the look before, of all nodes together and of each.

    events     a second, that were understood and counted
    lag        how long the oldest event that is not applied has waited; how many messages wait
    visible    from published to visible: the age of the newest event that a node has applied while newer ones wait; the oldest of all nodes
    answers    a second, and the mean time of one; requests for stats, nodes, shards and schema are left out
    errors     answers a second with another code than 200
    refused    events a second that became dead letters
    shards     that are loading, that nobody answers for, and of which one copy is left

Each node is asked for its figures, which needs the rights of a node (docs/security.md). Without them the figures are of one node, and the output says of which.
With --json it prints one document a look. If no node answers, it says so and goes on; with --once the exit code is 1.

EXAMPLE

    tidemark top
    tidemark top --once --json | jq .events_per_s`
}

const intervalMin = 100 * time.Millisecond

func (c *topCommand) Run(t *terminal) error {
	if c.Interval < intervalMin {
		return usage("--interval %s is less than %s", c.Interval, intervalMin)
	}
	ctx, stop := interruptible()
	defer stop()
	s, err := c.display(t)
	if err != nil {
		return err
	}
	defer s.end()
	return c.watch(ctx, s)
}

// watch looks until ctx ends, or once.
func (c *topCommand) watch(ctx context.Context, s *display) error {
	nc, err := c.dial(c.Once)
	if err != nil {
		return err
	}
	defer nc.Close()
	var before *sample
	for tick := time.Tick(c.Interval); ; {
		now, err := c.look(ctx, client.New(nc))
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && c.Once:
			return c.explain(err)
		case err != nil:
			err = s.trouble(c.explain(err))
		case before != nil:
			err = s.show(viewOf(before, now))
		}
		if err != nil || c.Once && before != nil {
			return err
		}
		if now != nil {
			before = now
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return nil
		}
	}
}

// look asks for all that a view is made of.
func (c *topCommand) look(ctx context.Context, ask *client.Client) (*sample, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout+answerSlack)
	defer cancel()
	nodes, err := ask.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	shards, err := ask.Shards(ctx)
	if err != nil {
		return nil, err
	}
	s := &sample{nodes: nodes, shards: shards, figures: map[string]figures{}}
	if c.reach.denial() == nil {
		c.askEach(ctx, s)
	}
	if len(s.figures) == 0 {
		err = s.askOne(ctx, ask)
	}
	s.at = time.Now()
	return s, err
}

// figuresWithin is how long one node may take: the others' figures are shown without its.
const figuresWithin = time.Second

// askEach asks each node that is there for its figures.
func (c *topCommand) askEach(ctx context.Context, s *sample) {
	ctx, cancel := context.WithTimeout(ctx, figuresWithin)
	defer cancel()
	ctx, done := c.reach.untilDenied(ctx)
	defer done()
	var asking sync.WaitGroup
	var mu sync.Mutex
	for _, n := range s.nodes.Nodes {
		if n.State == nodeAway {
			continue
		}
		asking.Go(func() {
			raw, err := job.Ask(ctx, c.reach.nc, n.Node, node.StatsVerb, struct{}{}, nil)
			if err != nil {
				return // the view says whose figures are not there
			}
			var f figures
			if json.Unmarshal(raw, &f) == nil {
				mu.Lock()
				s.figures[n.Node] = f
				mu.Unlock()
			}
		})
	}
	asking.Wait()
}

// askOne asks any node for its figures, as a client without a node's rights may.
func (s *sample) askOne(ctx context.Context, ask *client.Client) error {
	all, err := ask.Stats(ctx)
	if err != nil {
		return err
	}
	f := figures{}
	for name, value := range all {
		if number, is := value.(json.Number); is {
			f[name], _ = number.Float64()
		}
	}
	s.figures[nodeOf(all)] = f
	return nil
}

// display is where views are shown: a terminal, which is drawn over, or a pipe.
type display struct {
	to       io.Writer
	json     bool
	terminal bool
	every    time.Duration
}

// What a terminal is to do: the cursor home, nothing after it in this line, or below.
const (
	home, lineEnd, below   = "\x1b[H", "\x1b[K", "\x1b[J"
	screenOpen, screenShut = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
)

func (c *topCommand) display(t *terminal) (*display, error) {
	f, is := t.out.(*os.File)
	s := &display{to: t.out, json: c.JSON, every: c.Interval}
	s.terminal = is && consoleOf(f) != nil && !c.Once && !c.JSON
	if !s.terminal {
		return s, nil
	}
	_, err := io.WriteString(s.to, screenOpen)
	return s, err
}

func (s *display) end() {
	if s.terminal {
		io.WriteString(s.to, screenShut)
	}
}

func (s *display) show(v *view) error {
	if s.json {
		return printJSON(s.to, v)
	}
	var text bytes.Buffer
	if err := v.print(&text); err != nil {
		return err
	}
	return s.draw(text.Bytes())
}

// trouble shows why there is no view.
func (s *display) trouble(why error) error {
	if s.json {
		return printJSON(s.to, struct {
			At    time.Time `json:"at"`
			Error string    `json:"error"`
		}{time.Now().UTC(), sentence(why)})
	}
	return s.draw(fmt.Appendf(nil, "%s: %s; looking again every %s\n", clockTime(time.Now()), sentence(why), s.every))
}

func (s *display) draw(text []byte) error {
	if s.terminal {
		text = append([]byte(home), bytes.ReplaceAll(text, []byte("\n"), []byte(lineEnd+"\n"))...)
		text = append(text, below...)
	} else {
		text = append(text, '\n')
	}
	_, err := s.to.Write(text)
	return err
}
