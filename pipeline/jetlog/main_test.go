package jetlog_test

import (
	"context"
	"errors"
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

// newClusterBench is a bench on three servers, with three copies of the streams.
func newClusterBench(t *testing.T) (*bench, *natstest.Cluster) {
	t.Helper()
	c := natstest.NewCluster(t)
	js, err := jetstream.New(c.Conn())
	if err != nil {
		t.Fatal(err)
	}
	o := natstest.Options()
	o.Replicas = 3
	streams, err := jetlog.OpenStreams(t.Context(), c.Conn(), o)
	for end := time.Now().Add(e2e.Patience); errors.Is(err, context.DeadlineExceeded) && time.Now().Before(end); { // a new cluster may lose a request
		streams, err = jetlog.OpenStreams(t.Context(), c.Conn(), o)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &bench{T: t, ctx: t.Context(), streams: streams, js: js}, c
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// publish stores n events whose bodies are their sequences.
func (b *bench) publish(n int) { b.Helper(); natstest.Publish(b.ctx, b, b.streams, b.js, n) }

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

func (b *bench) read(s *jetlog.Source, n int) []pipeline.Message {
	b.Helper()
	return natstest.Read(b.ctx, b, s, n)
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
