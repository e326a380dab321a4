package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query/client"
)

// probes are private messages, each to a user of its own: no other event of
// the load touches that user's row, so one in it means that this one is seen.
type probes struct {
	c   *client.Client
	mu  sync.Mutex
	due map[uint64]time.Time // when the probe to a user was to be published

	answered, delivered sample // milliseconds from there
}

const probesSubject = "events.message"

// visible is the time from when a probe was due to be published until an
// answer over NATS has it in, while others publish at a steady pace. Beside
// it: until a bare consumer of that subject has it in hand.
func (b *bench) visible(ctx context.Context) error {
	b.say("visible: %s events a second, one a message", number(float64(b.size.pace)))
	p, c, err := b.launch(ctx, "")
	if err != nil {
		return err
	}
	defer p.discard()
	defer c.Close()
	out := line{
		what: fmt.Sprintf("published → visible, p99 at %s events/s", number(float64(b.size.pace))), unit: "ms",
		beside: "published → at a bare consumer, p99", target: ratioAtMost(1.5),
	}
	middle := sample{}
	for round := range b.size.rounds {
		s, offered, err := b.probe(ctx, p, uint64(round))
		if err != nil {
			return err
		}
		if offered < 0.95*float64(b.size.pace) { // then it is another measurement
			out.what = fmt.Sprintf("published → visible, p99 at %s events/s only", number(offered))
			out.target = target{}
		}
		out.ours = append(out.ours, s.answered.quantile(0.99))
		out.theirs = append(out.theirs, s.delivered.quantile(0.99))
		middle = append(middle, s.answered.median())
		b.say("visible: p99 %s ms of %d probes, %s events a second offered", last(out.ours), len(s.answered), number(offered))
	}
	b.table.add(out)
	b.table.note("published → visible: the median is %s ms, of %d probes a second.", number(middle.median()), b.size.probes)
	return nil
}

// warmUp is how long a round publishes before its first probe.
const warmUp = time.Second

// probe is one round; offered is how many events a second were published.
func (b *bench) probe(ctx context.Context, p *program, round uint64) (s *probes, offered float64, err error) {
	c, err := p.connect()
	if err != nil {
		return nil, 0, err
	}
	defer c.Close()
	s = &probes{c: c, due: make(map[uint64]time.Time)}
	stop, err := s.listen(ctx, p)
	if err != nil {
		return nil, 0, err
	}
	defer stop()
	loading, end := context.WithCancel(ctx)
	defer end()
	work, probing := errgroup.WithContext(ctx)
	work.Go(func() (err error) {
		offered, err = publishAt(loading, p, b.size.pace, round)
		return err
	})
	work.Go(func() error {
		defer end()
		return s.send(probing, b.size.probes, b.size.visible, round)
	})
	if err := work.Wait(); err != nil {
		return nil, 0, err
	}
	return s, offered, s.wait()
}

// send publishes probes at fixed times, whatever becomes of those before, and
// returns when all are answered.
func (s *probes) send(ctx context.Context, perSecond int, during time.Duration, round uint64) error {
	begun := time.Now().Add(warmUp)
	work, ctx := errgroup.WithContext(ctx)
	for i := range int(during.Seconds() * float64(perSecond)) {
		due := begun.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
		target := (round+1)<<40 + uint64(i) + 1 // beyond all users
		time.Sleep(time.Until(due))
		s.mu.Lock()
		s.due[target] = due
		s.mu.Unlock()
		work.Go(func() error { return s.one(ctx, target, due) })
	}
	return work.Wait()
}

func (s *probes) one(ctx context.Context, target uint64, due time.Time) error {
	at, err := s.c.Publish(ctx, client.Message(1, target))
	if err != nil {
		return err
	}
	reply, err := s.c.Get(ctx, client.GetRequest{
		Counter: "unread", IDs: []uint64{target}, Columns: []string{"message"},
		MinPosition: at, Timeout: 30 * time.Second,
	})
	took := time.Since(due)
	if err != nil {
		return err
	}
	if n, _ := reply.Value(0, "message"); n != 1 {
		return fmt.Errorf("probe %d: the answer counts %d messages", target, n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered = append(s.answered, took.Seconds()*1000)
	return nil
}

// listen notes when a bare consumer has each probe.
func (s *probes) listen(ctx context.Context, p *program) (stop func(), err error) {
	nc, err := nats.Connect(p.url, p.inside())
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, err
	}
	consumer, err := js.OrderedConsumer(ctx, jetlog.EventsStream, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{probesSubject}, DeliverPolicy: jetstream.DeliverNewPolicy,
	})
	if err != nil {
		nc.Close()
		return nil, err
	}
	consuming, err := consumer.Consume(func(m jetstream.Msg) { s.arrived(m.Data(), time.Now()) })
	if err != nil {
		nc.Close()
		return nil, err
	}
	return func() { consuming.Stop(); nc.Close() }, nil
}

func (s *probes) arrived(body []byte, at time.Time) {
	var probe struct{ Target uint64 }
	if json.Unmarshal(body, &probe) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if due, ok := s.due[probe.Target]; ok {
		s.delivered = append(s.delivered, at.Sub(due).Seconds()*1000)
		delete(s.due, probe.Target)
	}
}

// wait returns when the consumer has every probe.
func (s *probes) wait() error {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		s.mu.Lock()
		left := len(s.due)
		s.mu.Unlock()
		if left == 0 {
			return nil
		}
	}
	return fmt.Errorf("%d probes did not reach the bare consumer", len(s.due))
}

// publishAt publishes events at a pace until ctx ends, each a message, and
// says how many a second there were.
func publishAt(ctx context.Context, p *program, pace int, round uint64) (perSecond float64, err error) {
	nc, err := nats.Connect(p.url, p.inside())
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(1<<14))
	if err != nil {
		return 0, err
	}
	// Made before, and used again and again: making events is not the subject.
	type message struct {
		subject string
		body    []byte
	}
	community, messages := newCommunity(round+10), make([]message, 1<<16)
	for i := range messages {
		kind, body := community.event(nil)
		messages[i] = message{"events." + kind, body}
	}
	begun, sent := time.Now(), 0
	for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
		for due := int(time.Since(begun).Seconds() * float64(pace)); sent < due; sent++ {
			m := &messages[sent%len(messages)]
			if _, err := js.PublishAsync(m.subject, m.body, jetstream.WithStallWait(time.Minute)); err != nil {
				return 0, err
			}
		}
	}
	perSecond = float64(sent) / time.Since(begun).Seconds()
	select {
	case <-js.PublishAsyncComplete():
		return perSecond, nil
	case <-time.After(time.Minute):
		return 0, fmt.Errorf("%d events are without an acknowledgement", js.PublishAsyncPending())
	}
}
