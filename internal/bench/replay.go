package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/internal/node/checks"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

// auditOff is a line of a configuration; without it there is the default audit.
const auditOff = "audit: {rate: 0, memory: 4GiB}\n"

// replay is what it costs to hold what is served to the log: verify as fast as it
// can, and the audit at its default rate beside a node that does nothing.
func (b *bench) replay(ctx context.Context) error {
	const pack = 256
	events := b.size.replayed
	b.say("replay: %s events to verify", number(float64(events)))
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
	messages, err := fill(ctx, nc, events, pack, newCommunity(5).event)
	if err != nil {
		return err
	}
	events = messages * pack
	if err := applied(ctx, c, pipeline.EndOf(uint64(messages))); err != nil {
		return err
	}
	if _, err := p.rest(ctx); err != nil {
		return err
	}
	some, err := b.verify(ctx, nc, c, "1/64")
	if err != nil {
		return err
	}
	all, err := b.verify(ctx, nc, c, "1/1")
	if err != nil {
		return err
	}
	log := fmt.Sprintf("of %s events", number(float64(events)))
	b.table.add(line{what: "verify one id in 64 " + log, unit: "events/s", ours: sample{float64(events) / some.took.Seconds()}})
	b.table.add(line{what: "verify all ids " + log + ", in one pass", unit: "ids/s", ours: sample{float64(all.IDs) / all.took.Seconds()}})
	b.table.note("verify: %s ids of all were compared, with all that is known of each, in %s s; %s of them in %s s.",
		number(float64(all.IDs)), number(all.took.Seconds()), number(float64(some.IDs)), number(some.took.Seconds()))

	idle := p.share(b.size.calling * 10)
	path := filepath.Join(p.dir, "config.yaml")
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(strings.Replace(string(text), auditOff, "", 1)), 0o644)
	}
	if err != nil {
		return err
	}
	if _, err := p.again(ctx, syscall.SIGTERM, func(c *client.Client) error { return applied(ctx, c, pipeline.EndOf(uint64(messages))) }); err != nil {
		return err
	}
	if _, _, err := p.warm(ctx, 1e18); err != nil {
		return err
	}
	b.table.add(line{
		what: "the audit at its default rate, more of a core", unit: "%", ours: sample{100 * (p.share(b.size.calling*10) - idle)},
		beside: "the node at rest", theirs: sample{100 * idle}, target: atMost(3), signed: true,
	})
	return nil
}

// share is how much of a core the process takes for a while.
func (p *program) share(while time.Duration) float64 {
	before, begun := p.busy(), time.Now()
	time.Sleep(while)
	return (p.busy() - before).Seconds() / time.Since(begun).Seconds()
}

// verified is what a node has found, and how long it took.
type verified struct {
	checks.Checked
	took time.Duration
}

// verify has the one node verify a share of all ids.
func (b *bench) verify(ctx context.Context, nc *nats.Conn, c *client.Client, share string) (v verified, err error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return v, err
	}
	begun := time.Now()
	raw, err := job.Ask(ctx, nc, nodes.Nodes[0].Node, "verify", checks.VerifyAsk{Share: share}, nil)
	v.took = time.Since(begun)
	if err == nil {
		err = json.Unmarshal(raw, &v.Checked)
	}
	if err == nil && (v.Differs+v.Notices > 0 || v.Passes != 1 || v.IDs == 0) {
		err = fmt.Errorf("verify %s: %d of %d ids differ, in %d passes: %+v", share, v.Differs, v.IDs, v.Passes, v.Examples)
	}
	b.say("replay: %s ids of %s in %v", number(float64(v.IDs)), share, v.took)
	return v, err
}
