package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node"
	"github.com/tidemark-io/tidemark/internal/twin"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
	"github.com/tidemark-io/tidemark/query/client"
)

// backlog is a server in this process whose EVENTS is full of events that are not
// counted yet. Each reader reads the same.
type backlog struct {
	server   *embed.Server
	nc       *nats.Conn
	js       jetstream.JetStream
	dir      string
	messages int
	events   int
}

func openBacklog(ctx context.Context, dir string, events, pack int, next source) (l *backlog, err error) {
	l = &backlog{dir: dir}
	l.server, err = embed.StartServer(embed.ServerOptions{
		Listen: "127.0.0.1:0", StoreDir: filepath.Join(dir, "streams"),
		StoreBytesMax: jetlog.StreamOptions{}.BytesMax(), SyncInterval: 200 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	if l.nc, err = jetlog.Connect(jetlog.ConnectOptions{URL: l.server.URL()}); err != nil {
		l.close()
		return nil, err
	}
	if _, err = jetlog.OpenStreams(ctx, l.nc, jetlog.StreamOptions{}); err == nil {
		l.js, err = jetstream.New(l.nc)
	}
	if err == nil {
		err = l.forget(ctx) // the node is to be the first
	}
	if err == nil {
		l.messages, err = fill(ctx, l.nc, events, pack, next)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	l.events = l.messages * pack
	return l, nil
}

func (l *backlog) close() {
	if l.nc != nil {
		l.nc.Close()
	}
	l.server.Close()
	os.RemoveAll(l.dir)
}

// rate is events a second.
func (l *backlog) rate(took time.Duration) float64 { return float64(l.events) / took.Seconds() }

// messagesOf calls visit for every message, from an ordered consumer.
func (l *backlog) messagesOf(ctx context.Context, visit func(jetstream.Msg) error) error {
	consumer, err := l.js.OrderedConsumer(ctx, jetlog.EventsStream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	it, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer it.Stop()
	for range l.messages {
		m, err := it.Next()
		if err != nil {
			return err
		}
		if err := visit(m); err != nil {
			return err
		}
	}
	return nil
}

// bare reads every message and does nothing else: what the stream gives.
func (l *backlog) bare(ctx context.Context) (time.Duration, error) {
	runtime.GC()
	begun := time.Now()
	err := l.messagesOf(ctx, func(jetstream.Msg) error { return nil })
	return time.Since(begun), err
}

// count starts a node with no state and stops the clock when an answer over
// NATS reflects every event. check, if any, may then ask more.
func (l *backlog) count(ctx context.Context, check func(*client.Client) error) (took time.Duration, err error) {
	if err := l.forget(ctx); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp(l.dir, "node-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	c := twin.EveryTime(config.Default())
	c.NATS.URL, c.DataDir, c.HTTP.Listen, c.Limits.TimeoutMax = l.server.URL(), filepath.Join(dir, "data"), "", applyWithin
	runtime.GC()
	begun := time.Now()
	n, err := node.Start(ctx, c, node.Options{Version: "0.0.0", Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return 0, err
	}
	defer n.Close()
	asking := client.New(l.nc)
	if err := applied(ctx, asking, pipeline.EndOf(uint64(l.messages))); err != nil {
		return 0, err
	}
	took = time.Since(begun)
	if check != nil {
		err = check(asking)
	}
	return took, err
}

// forget takes away what an earlier node has derived.
func (l *backlog) forget(ctx context.Context) error {
	for _, stream := range []string{jetlog.DeltasStream, jetlog.DeadLetterStream, "KV_" + jetlog.Bucket} {
		if err := l.js.DeleteStream(ctx, stream); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("delete stream %s: %w", stream, err)
		}
	}
	return nil
}

// ingest is a backlog of one event a message until it is queryable, beside a
// bare reader and a consumer that counts into Redis.
func (b *bench) ingest(ctx context.Context) error {
	b.say("ingest: a backlog of %s events, one a message", number(float64(b.size.backlog)))
	l, err := openBacklog(ctx, filepath.Join(b.dir, "ingest"), b.size.backlog, 1, newCommunity(1).event)
	if err != nil {
		return err
	}
	defer l.close()
	const what, unit = "ingest, one event a message", "events/s"
	reading := line{what: what, unit: unit, beside: "a bare ordered consumer", target: ratioAtLeast(0.9)}
	counting := line{what: what, unit: unit, beside: "into Redis, pipelined HINCRBY", target: ratioAtLeast(4)}
	var redis *redisServer
	if b.redis == "" {
		counting.lack = errRedis
	} else if redis, err = b.startRedis(ctx); err != nil {
		return err
	} else {
		defer redis.stop()
	}
	for range b.size.rounds {
		var check func(*client.Client) error
		took, err := l.bare(ctx)
		if err != nil {
			return err
		}
		reading.theirs = append(reading.theirs, l.rate(took))
		if redis != nil {
			if took, err = l.countIntoRedis(ctx, redis); err != nil {
				return err
			}
			counting.theirs = append(counting.theirs, l.rate(took))
			check = func(c *client.Client) error { return compare(ctx, c, redis) }
		}
		if took, err = l.count(ctx, check); err != nil {
			return err
		}
		reading.ours = append(reading.ours, l.rate(took))
		b.say("ingest: %s a second, bare %s, Redis %s", number(l.rate(took)), last(reading.theirs), last(counting.theirs))
	}
	counting.ours = reading.ours
	b.table.add(reading)
	b.table.add(counting)
	return nil
}

// packed is how many events a pack has, as a Packer makes them by default.
const packed = 256

// packs is a backlog in packs of 256.
func (b *bench) packs(ctx context.Context) error {
	b.say("packs: a backlog of %s events in packs of %d", number(float64(b.size.packed)), packed)
	l, err := openBacklog(ctx, filepath.Join(b.dir, "packs"), b.size.packed, packed, newCommunity(1).event)
	if err != nil {
		return err
	}
	defer l.close()
	out := line{what: "ingest, packs of 256", unit: "events/s", beside: "a bare ordered consumer", target: atLeast(1e6)}
	for range b.size.rounds {
		took, err := l.bare(ctx)
		if err != nil {
			return err
		}
		out.theirs = append(out.theirs, l.rate(took))
		if took, err = l.count(ctx, nil); err != nil {
			return err
		}
		out.ours = append(out.ours, l.rate(took))
		b.say("packs: %s a second", last(out.ours))
	}
	b.table.add(out)
	return nil
}

// last is a sample's last value, for progress.
func last(s sample) string {
	if len(s) == 0 {
		return "–"
	}
	return number(s[len(s)-1])
}
