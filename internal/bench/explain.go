package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

const (
	explainedID     = 3_141_592_653_589_793 // a post that nobody else likes
	explainedPlaces = 10
	explainedWithin = 2 // seconds
	filtersDir      = "filters"
)

// explain is the time until the events behind the likes of a post are listed, that ten
// stretches of a log have, over NATS. Beside it: the same without filters, when all of
// the log is read.
func (b *bench) explain(ctx context.Context) error {
	events := b.size.explained
	b.say("explain: a log of %s events", number(float64(events)))
	p, c, err := b.launch(ctx, "explain: {rate: 10000000}\n")
	if err != nil {
		return err
	}
	defer p.discard()
	defer func() { c.Close() }()
	if err := fillExplained(ctx, p, c, events); err != nil {
		return err
	}
	bytes, err := b.filtersMade(ctx, p, events)
	if err != nil {
		return err
	}
	out := line{
		what: fmt.Sprintf("explain, 10 events in a log of %s, in packs of %d", number(float64(events)), explainedPack), unit: "s",
		beside: "without filters", target: atMost(explainedWithin),
	}
	if out.ours, err = b.explainRounds(ctx, c); err != nil {
		return err
	}
	b.say("explain: %s s; filters take %s bytes an event", number(out.ours.median()), number(float64(bytes)/float64(events)))
	if err := p.restartWith("explain: {rate: 0}\n"); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(p.dir, dataDir, filtersDir)); err != nil {
		return err
	}
	c.Close()
	if c, err = p.ready(ctx); err != nil {
		return err
	}
	if out.theirs, err = b.explainRounds(ctx, c); err != nil {
		return err
	}
	b.say("explain: %s s without filters", number(out.theirs.median()))
	b.table.add(out)
	b.table.note("explain: filters take %s bytes an event on disk.", number(float64(bytes)/float64(events)))
	return nil
}

const explainedPack = 256

// fillExplained publishes the log, and in ten places of it a like of the post.
func fillExplained(ctx context.Context, p *program, c *client.Client, events int) error {
	nc, err := nats.Connect(p.url, p.inside())
	if err != nil {
		return err
	}
	defer nc.Close()
	community := newCommunity(12)
	messages := 0
	for range explainedPlaces {
		n, err := fill(ctx, nc, events/explainedPlaces, explainedPack, community.event)
		if err != nil {
			return err
		}
		one := func(body []byte) (string, []byte) {
			return "like", fmt.Appendf(body, `{"type":"like","actor":1,"post":%d,"author":2}`, uint64(explainedID))
		}
		if _, err := fill(ctx, nc, 1, 1, one); err != nil {
			return err
		}
		messages += n + 1
	}
	return applied(ctx, c, pipeline.At(uint64(messages), 0))
}

// filtersMade returns when nearly all of the log has filters, and their bytes.
func (b *bench) filtersMade(ctx context.Context, p *program, events int) (bytes int64, err error) {
	const stretch = 16_384
	err = p.until(ctx, "wait for filters", time.Second, func() error {
		files, err := filepath.Glob(filepath.Join(p.dir, dataDir, filtersDir, "*.filter"))
		if err != nil {
			return err
		}
		if want := events/(stretch+explainedPack) - 1; len(files) < want {
			return fmt.Errorf("%d of %d filters", len(files), want)
		}
		bytes = 0
		for _, name := range files {
			info, err := os.Stat(name)
			if err != nil {
				return err
			}
			bytes += info.Size()
		}
		return nil
	})
	return bytes, err
}

// explainRounds asks for all events behind the post, page by page.
func (b *bench) explainRounds(ctx context.Context, c *client.Client) (s sample, err error) {
	for range b.size.rounds {
		begun, found := time.Now(), 0
		r := client.ExplainRequest{Number: "post.like", ID: explainedID, Timeout: time.Minute}
		for {
			page, err := c.Explain(ctx, r)
			if err != nil {
				return nil, err
			}
			found += len(page.Events)
			if page.Next == 0 {
				break
			}
			r.Before = page.Next
		}
		if found != explainedPlaces {
			return nil, fmt.Errorf("%d events are told, %d there are", found, explainedPlaces)
		}
		s = append(s, time.Since(begun).Seconds())
	}
	return s, nil
}

// restartWith ends the program in order and starts it again with further
// settings in the place of those it had. ready must follow.
func (p *program) restartWith(settings string) error {
	p.end(syscall.SIGTERM)
	name := filepath.Join(p.dir, "config.yaml")
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	at := bytes.LastIndex(text, []byte("explain:"))
	if err := os.WriteFile(name, append(text[:at], settings...), 0o644); err != nil {
		return err
	}
	return p.spawn()
}
