package bucket_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline/generation"
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
	expiry  time.Duration // of members
}

func newBench(t *testing.T) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*e2e.Patience)
	t.Cleanup(cancel)
	server := natstest.Server(t)
	streams, js := natstest.Streams(t, server)
	return &bench{t, ctx, server, streams, js, never}
}

// expiring has members be away after so long a silence.
func (b *bench) expiring(after time.Duration) *bench { b.expiry = after; return b }

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) stream(name string) jetstream.Stream {
	b.Helper()
	s, err := b.js.Stream(b.ctx, name)
	b.must(err)
	return s
}

// open opens streams for a generation in a slot.
func (b *bench) open(s jetlog.Slot, of generation.Number) (*jetlog.Streams, error) {
	b.Helper()
	o := natstest.Options()
	o.Slot, o.Generation = s, jetlog.Owner{Number: of}
	return jetlog.OpenStreams(b.ctx, b.connect(), o)
}

// other fails unless err says that DELTAS is of another generation, and names both.
func (b *bench) other(what string, err error, is, want string) {
	b.Helper()
	if !errors.Is(err, jetlog.ErrGeneration) || !strings.Contains(err.Error(), "generation "+is) || !strings.Contains(err.Error(), "generation "+want) {
		b.Errorf("%s: %v", what, err)
	}
}

func (b *bench) connect() *nats.Conn { b.Helper(); return natstest.Connect(b, b.server) }

// streamsOnAWire are the streams on a connection that can be muted.
func (b *bench) streamsOnAWire() (*jetlog.Streams, *natstest.Wire) {
	b.Helper()
	wire := natstest.NewWire(b, b.server)
	nc, err := jetlog.Connect(jetlog.ConnectOptions{URL: "nats://" + wire.Address()})
	b.must(err)
	b.Cleanup(nc.Close)
	streams, err := jetlog.OpenStreams(b.ctx, nc, natstest.Options())
	b.must(err)
	return streams, wire
}
