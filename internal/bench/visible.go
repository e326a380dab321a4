package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query/client"
)

// visible is the time from when a probe was due to be published until an answer over NATS
// has it in, while others publish at a steady pace. Beside it: until a bare consumer of that
// subject has it in hand. Probes are private messages, each to a user of its own: one in
// that user's row is this one.
func (b *bench) visible() {
	p, c := b.launch("")
	defer p.discard()
	defer c.Close()
	out := line{
		what: fmt.Sprintf("published → visible, p99 at %s events/s", number(float64(b.size.pace))), unit: "ms",
		beside: "published → at a bare consumer, p99", target: ratioAtMost(2),
	}
	for round := range b.size.rounds {
		answered, delivered, offered := b.probe(p, c, uint64(round+1)<<40) // beyond all users
		if offered < 0.95*float64(b.size.pace) {                           // then it is another measurement
			out.what, out.target = fmt.Sprintf("published → visible, p99 at %s events/s only", number(offered)), target{}
		}
		out.ours, out.theirs = append(out.ours, answered.quantile(0.99)), append(out.theirs, delivered.quantile(0.99))
		b.say("visible: p50 %s ms, p99 %s ms, bare %s, %s events a second offered", number(answered.median()), out.ours.last(), out.theirs.last(), number(offered))
	}
	b.table.add(out)
}

// probe is one round, in milliseconds; offered is how many events a second were published.
// Users from first on are probed.
func (b *bench) probe(p *program, c *client.Client, first uint64) (answered, delivered sample, offered float64) {
	nc := p.inside()
	defer nc.Close()
	var mu sync.Mutex
	due := map[uint64]time.Time{}
	consumer := must(must(jetstream.New(nc)).OrderedConsumer(ctx, jetlog.EventsStream, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{"events.message"}, DeliverPolicy: jetstream.DeliverNewPolicy,
	}))
	consuming := must(consumer.Consume(func(m jetstream.Msg) {
		now := time.Now()
		var probe struct{ Target uint64 }
		if json.Unmarshal(m.Data(), &probe) != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		delivered = append(delivered, now.Sub(due[probe.Target]).Seconds()*1000)
	}))
	enough, published := make(chan struct{}), make(chan error)
	go func() { published <- caught(func() { offered = publishAt(p, b.size.pace, first, enough) }) }()
	time.Sleep(b.size.round) // until the load is steady
	answered = pace(200, 5*b.size.round, func(i int, at time.Time, _ *rand.Rand) error {
		mu.Lock()
		due[first+uint64(i)] = at
		mu.Unlock()
		return visibleOnce(c, first+uint64(i))
	})
	close(enough)
	check(<-published)
	consuming.Drain()
	<-consuming.Closed()
	if len(delivered) != len(answered) {
		check(fmt.Errorf("%d of %d probes reached the bare consumer", len(delivered), len(answered)))
	}
	return answered, delivered, offered
}

// visibleOnce publishes a probe and returns when an answer has it in.
func visibleOnce(c *client.Client, target uint64) error {
	at, err := c.Publish(ctx, client.Message(1, target))
	if err != nil {
		return err
	}
	reply, err := c.Get(ctx, client.GetRequest{
		Counter: "unread", IDs: []uint64{target}, Columns: []string{"message"}, MinPosition: at, Timeout: 30 * time.Second,
	})
	if n, _ := reply.Value(0, "message"); err == nil && n != 1 {
		err = fmt.Errorf("the answer counts %d messages of probe %d", n, target)
	}
	return err
}

// publishAt publishes events at a pace, each a message, until enough is closed, and says
// how many a second there were.
func publishAt(p *program, pace int, seed uint64, enough <-chan struct{}) (perSecond float64) {
	nc := p.inside()
	defer nc.Close()
	to := publishing(nc)
	names, bodies := prepared(community(seed), 1<<16)
	begun, sent := time.Now(), 0
	for {
		select {
		case <-enough:
			perSecond = float64(sent) / time.Since(begun).Seconds()
			to.wait()
			return perSecond
		case <-time.After(time.Millisecond):
		}
		for due := int(time.Since(begun).Seconds() * float64(pace)); sent < due; sent++ {
			to.add(names[sent%len(names)], bodies[sent%len(bodies)])
		}
	}
}
