package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline"
)

// rebuild is what a second generation costs beside the one that serves: events a second
// until it has caught up, how long it takes to compare, and what small requests take
// during it.
func (b *bench) rebuild(ctx context.Context) error {
	const pack = 256
	b.say("rebuild: of %s events, with %s post rows and %s users to ask for", number(float64(b.size.replayed)), number(float64(b.size.asked)), number(float64(b.size.persons)))
	p, c, err := b.launch(ctx, "log: {level: error}\n"+auditOff)
	if err != nil {
		return err
	}
	defer p.discard()
	defer c.Close()
	nc, err := nats.Connect(p.url, p.inside())
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := loadRows(ctx, c, 0, b.size.asked); err != nil {
		return err
	}
	if err := loadPersons(ctx, c, b.size.persons); err != nil {
		return err
	}
	messages, err := fill(ctx, nc, b.size.replayed, pack, newCommunity(7).event)
	if err != nil {
		return err
	}
	if err := p.settle(ctx); err != nil {
		return err
	}
	if _, err := b.call(ctx, p, warmUp); err != nil {
		return err
	}
	quiet, err := b.call(ctx, p, b.size.calling)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := p.command(ctx, new(bytes.Buffer), "rebuild", "--yes", "--nats", p.url); err != nil {
		return err
	}
	var loud sample
	var caught, switched time.Duration
	for switched == 0 {
		took, err := b.call(ctx, p, b.size.calling/4)
		if err != nil {
			return err
		}
		loud = append(loud, took...)
		s, err := p.rebuilt(ctx)
		if err != nil {
			return err
		}
		since := time.Since(begun)
		if caught == 0 && s.State != "building" {
			caught = since
		}
		switch {
		case s.State == "switched":
			switched = since
		case s.State == "aborted" || s.Differs > 0:
			return fmt.Errorf("the rebuild is %s and differs in %d ids: %s", s.State, s.Differs, s.Why)
		}
	}
	events := float64(messages * pack)
	b.table.add(line{what: "rebuild of " + number(events) + " events, and of what is asked for, until it has caught up", unit: "events/s", ours: sample{events / caught.Seconds()}})
	b.table.add(line{what: "the same, until it was compared and serves", unit: "s", ours: sample{switched.Seconds()}, beside: "until it has caught up", theirs: sample{caught.Seconds()}})
	b.table.add(line{
		what: "small requests, p99 beside a rebuild", unit: "ms", ours: sample{loud.quantile(0.99)},
		beside: "p99 when all is quiet", theirs: sample{quiet.quantile(0.99)}, target: ratioAtMost(2),
	})
	return nil
}

// rebuiltStatus is what `tidemark rebuild --status --json` prints.
type rebuiltStatus struct {
	State    string            `json:"state"`
	Position pipeline.Position `json:"position,string"`
	Differs  uint64            `json:"differs"`
	Why      string            `json:"why"`
}

func (p *program) rebuilt(ctx context.Context) (s rebuiltStatus, err error) {
	var out bytes.Buffer
	if err := p.command(ctx, &out, "rebuild", "--status", "--json", "--nats", p.url); err != nil {
		return s, err
	}
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		return s, errors.Join(fmt.Errorf("rebuild --status: %q", out.Bytes()), err)
	}
	return s, nil
}

// auditOff is a line of a configuration; without it there is the default audit.
const auditOff = "audit: {rate: 0, memory: 4GiB}\n"

// command runs the program with other arguments.
func (p *program) command(ctx context.Context, out io.Writer, args ...string) error {
	c := exec.CommandContext(ctx, p.b.binary, args...)
	var errs bytes.Buffer
	c.Stdout, c.Stderr, c.Dir = out, &errs, p.dir // its config.yaml
	if err := c.Run(); err != nil {
		return fmt.Errorf("tidemark %s: %w: %s", args[0], err, errs.Bytes())
	}
	return nil
}
