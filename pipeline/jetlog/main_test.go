package jetlog_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
)

func TestMain(m *testing.M) { natstest.Main(m) }

// bench is what most tests work on.
type bench struct {
	*testing.T
	ctx     context.Context
	server  *embed.Server
	streams *jetlog.Streams
	js      jetstream.JetStream
}

func newBench(t *testing.T) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*e2e.Patience)
	t.Cleanup(cancel)
	server := natstest.Server(t)
	streams, js := natstest.Streams(t, server)
	return &bench{t, ctx, server, streams, js}
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// publish stores n events whose bodies are their sequences.
func (b *bench) publish(n int) {
	b.Helper()
	state, err := b.streams.State(b.ctx, jetlog.EventsStream)
	b.must(err)
	for i := range n {
		_, err := b.js.PublishAsync("events.like", fmt.Append(nil, state.Last+uint64(i)+1), jetstream.WithStallWait(time.Minute))
		b.must(err)
		if i%2000 == 1999 || i == n-1 {
			<-b.js.PublishAsyncComplete()
		}
	}
}

func (b *bench) stream(name string) jetstream.Stream {
	b.Helper()
	s, err := b.js.Stream(b.ctx, name)
	b.must(err)
	return s
}

func (b *bench) events() *jetlog.Events { return jetlog.NewEvents(b.streams, jetlog.RunOptions{}) }

func (b *bench) source(from pipeline.Position, o jetlog.RunOptions) *jetlog.Source {
	b.Helper()
	s, err := jetlog.OpenSource(b.ctx, b.streams, from, o)
	b.must(err)
	b.Cleanup(func() { _ = s.Close() })
	return s
}

// read takes messages until n have come, and checks that they are in order
// and their own.
func (b *bench) read(s *jetlog.Source, n int) []pipeline.Message {
	b.Helper()
	var all []pipeline.Message
	for len(all) < n {
		run, err := s.Next(b.ctx)
		b.must(err)
		all = append(all, run...)
	}
	for i, m := range all {
		if i > 0 && m.Sequence <= all[i-1].Sequence {
			b.Fatalf("sequence %d comes after %d", m.Sequence, all[i-1].Sequence)
		}
		if got := fmt.Sprint(m.Sequence); m.Subject == "events.like" && string(m.Data) != got {
			b.Fatalf("sequence %s has the body of %s", got, m.Data)
		}
	}
	return all
}

func sequences(messages []pipeline.Message) []uint64 {
	var all []uint64
	for _, m := range messages {
		all = append(all, m.Sequence)
	}
	return all
}

func window(from, to pipeline.Position) []byte {
	return pipeline.AppendWindow(nil, &pipeline.Window{Header: pipeline.Header{From: from, To: to, Rules: 7, Events: 1}})
}

func (b *bench) connect() *nats.Conn { b.Helper(); return natstest.Connect(b, b.server) }
