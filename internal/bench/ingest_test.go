// Package bench measures the whole of Tidemark against what it stands on, in
// one run on one machine: ratios, not seconds, are the result.
package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/cmd/tidemark/config"
	"github.com/tidemark-io/tidemark/cmd/tidemark/node"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// event draws one event of a community of a million users whose posts are
// liked by Zipf's law: the hot ones merge, the tail does not.
func event(r *rand.Rand, posts *rand.Zipf) (kind, body string) {
	const users = 1_000_000
	actor, author := 1+r.Uint64N(users), 1+r.Uint64N(users)
	post := 1_000_000_000_000_000 + posts.Uint64()
	switch n := r.IntN(100); {
	case n < 55:
		return "like", fmt.Sprintf(`{"type":"like","actor":%d,"post":%d,"author":%d,"at":1341286912000}`, actor, post, author)
	case n < 70:
		return "comment", fmt.Sprintf(`{"type":"comment","actor":%d,"post":%d,"author":%d,"at":1341286912000}`, actor, post, author)
	case n < 80:
		return "post", fmt.Sprintf(`{"type":"post","actor":%d,"post":%d,"at":1341286912000}`, actor, 2_000_000_000_000_000+r.Uint64N(1<<40))
	case n < 95:
		return "post", fmt.Sprintf(`{"type":"post","actor":%d,"post":%d,"at":1341286912000,"repost_of":%d,"author":%d}`, actor, 2_000_000_000_000_000+r.Uint64N(1<<40), post, author)
	}
	return "mention", fmt.Sprintf(`{"type":"mention","actor":%d,"target":%d,"at":1341286912000}`, actor, author)
}

// server is an embedded server with the streams filled with n events, `pack` of them a message.
func server(b *testing.B, n, pack int) (*jetlog.Server, *nats.Conn) {
	b.Helper()
	s, err := jetlog.StartServer(jetlog.ServerOptions{
		Listen: "127.0.0.1:0", StoreDir: b.TempDir(),
		StoreBytesMax: jetlog.StreamOptions{}.BytesMax(), SyncInterval: 200 * time.Millisecond,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Close)
	nc, err := jetlog.Connect(jetlog.ConnectOptions{URL: s.URL()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	if _, err := jetlog.OpenStreams(context.Background(), nc, jetlog.StreamOptions{}); err != nil {
		b.Fatal(err)
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4096))
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	posts := rand.NewZipf(r, 1.1, 10, 5_000_000)
	var lines []string
	for range n {
		kind, body := event(r, posts)
		if lines = append(lines, body); len(lines) < pack {
			continue
		}
		if pack > 1 {
			kind = "pack"
		}
		if _, err := js.PublishAsync("events."+kind, []byte(strings.Join(lines, "\n")), jetstream.WithStallWait(time.Minute)); err != nil {
			b.Fatal(err)
		}
		lines = lines[:0]
	}
	<-js.PublishAsyncComplete()
	return s, nc
}

// bare reads every message with an ordered consumer that does nothing else.
func bare(b *testing.B, nc *nats.Conn, messages int) time.Duration {
	b.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	consumer, err := js.OrderedConsumer(context.Background(), jetlog.EventsStream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		b.Fatal(err)
	}
	begun := time.Now()
	it, err := consumer.Messages()
	if err != nil {
		b.Fatal(err)
	}
	defer it.Stop()
	for range messages {
		if _, err := it.Next(); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(begun)
}

// tidemark starts a node with empty state and waits until everything is queryable.
func tidemark(b *testing.B, s *jetlog.Server, messages int) time.Duration {
	b.Helper()
	c := config.Default()
	c.NATS.URL = s.URL()
	c.DataDir = b.TempDir()
	c.HTTP.Listen = ""
	begun := time.Now()
	n, err := node.Start(c, node.Options{Version: "0.0.0", Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if err := n.WaitApplied(ctx, pipeline.EndOf(uint64(messages))); err != nil {
		b.Fatal(err)
	}
	return time.Since(begun)
}

// BenchmarkBacklog: a backlog of EVENTS until queryable, against a bare
// ordered consumer that reads the same stream.
func BenchmarkBacklog(b *testing.B) {
	const events = 500_000
	for _, pack := range []int{1, 256} {
		b.Run(fmt.Sprintf("pack=%d", pack), func(b *testing.B) {
			messages := events / pack
			var reading, counting time.Duration
			for b.Loop() {
				b.StopTimer()
				s, nc := server(b, events, pack)
				reading += bare(b, nc, messages)
				b.StartTimer()
				counting += tidemark(b, s, messages)
			}
			total := float64(messages * pack * b.N)
			b.ReportMetric(total/counting.Seconds(), "events/s")
			b.ReportMetric(total/reading.Seconds(), "bare-events/s")
			b.ReportMetric(reading.Seconds()/counting.Seconds(), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}
