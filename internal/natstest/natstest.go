// Package natstest gives tests a real server: embedded, on a free port, with
// its files in the test's temporary directory, gone when the test ends. wire.go is a
// connection to it that can be muted, and main.go has what most packages of tests need.
// events.go stores events that say their sequence, and reads them back; raw.go publishes any
// bytes as headers.
package natstest

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
)

// Server starts a server.
func Server(tb testing.TB) *embed.Server {
	tb.Helper()
	s, err := embed.StartServer(embed.ServerOptions{
		Listen: "127.0.0.1:0", StoreDir: tb.TempDir(), SyncInterval: time.Minute,
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

// Connect opens a connection that closes before the server does.
func Connect(tb testing.TB, s *embed.Server) *nats.Conn {
	tb.Helper()
	nc, err := jetlog.Connect(jetlog.ConnectOptions{URL: s.URL(), Name: tb.Name()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	return nc
}

// Options are small limits that fit a test's disk. From EVENTS tests may delete.
func Options() jetlog.StreamOptions {
	return jetlog.StreamOptions{
		Events:         jetlog.Limits{BytesMax: 1 << 30},
		Deltas:         jetlog.Limits{BytesMax: 1 << 30},
		DeadLetters:    jetlog.Limits{BytesMax: 64 << 20},
		BucketBytesMax: 1 << 20,
		Unprotected:    true,
	}
}

// Streams opens the streams on a new connection to s, and gives a plain
// JetStream context on the same connection to look behind them.
func Streams(tb testing.TB, s *embed.Server) (*jetlog.Streams, jetstream.JetStream) {
	tb.Helper()
	nc := Connect(tb, s)
	js, err := jetstream.New(nc)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), e2e.Patience)
	defer cancel()
	streams, err := jetlog.OpenStreams(ctx, nc, Options())
	if err != nil {
		tb.Fatal(err)
	}
	return streams, js
}

// Stream is a stream of the server that nc is connected to, to look into it and to
// do to it what operators do.
func Stream(tb testing.TB, nc *nats.Conn, name string) jetstream.Stream {
	tb.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), e2e.Patience)
	defer cancel()
	stream, err := js.Stream(ctx, name)
	if err != nil {
		tb.Fatal(err)
	}
	return stream
}
