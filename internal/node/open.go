package node

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/node/history"
	"github.com/tidemark-io/tidemark/internal/node/led"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

func (g *generation) streamOptions() jetlog.StreamOptions {
	s := g.config.NATS.Streams
	return jetlog.StreamOptions{
		Replicas:    g.config.NATS.Replicas,
		Events:      jetlog.Limits{BytesMax: int64(s.Events.MaxBytes), AgeMax: s.Events.MaxAge},
		Deltas:      jetlog.Limits{BytesMax: int64(s.Deltas.MaxBytes)},
		DeadLetters: jetlog.Limits{BytesMax: int64(s.DeadLetter.MaxBytes)},
		Slot:        g.slot,
		Generation:  g.owner(),
		Continues:   g.dir.Continues(),
		Logger:      g.log,
	}
}

// evict makes room for a generation where one that was there before has left
// something in its slot.
func (g *generation) evict() error {
	js, err := jetstream.New(g.nc)
	if err != nil {
		return err
	}
	ctx, cancel := led.Context(g.ctx, g.host.inCluster())
	defer cancel()
	return g.led().Until(ctx, led.LookWithin, jetlog.Leaderless, func(ctx context.Context) error {
		evicted, err := jetlog.Evict(ctx, js, g.slot, g.owner())
		if evicted {
			g.log.Info("tidemark: what an earlier generation has left is removed", "stream", g.slot.Deltas())
		}
		return err
	})
}

func (g *generation) openStreams() error {
	ctx, cancel := led.Context(g.ctx, g.host.inCluster())
	defer cancel()
	if err := g.tryStreams(ctx); err != nil {
		return err
	}
	g.history = history.New(g.streams, g.config.NATS.Streams.Events.Archive, false, g.log)
	g.events = g.eventsIn(jetlog.RunOptions{
		MessagesMax: g.config.Windows.Events,
		BytesMax:    runBytes,
		Linger:      g.config.Windows.Delay,
		Logger:      g.log,
	})
	g.deltas = jetlog.NewDeltaLog(g.streams) // to read; the router has its own
	g.reports = bucket.NewCheckpoints(g.streams)
	if most := g.nc.MaxPayload() - windowEnvelope; int64(g.config.Windows.Bytes) > most {
		return fmt.Errorf("windows.bytes is %d and the NATS server takes messages of %d bytes: lower windows.bytes to %d, or raise the server's max_payload",
			g.config.Windows.Bytes, g.nc.MaxPayload(), most)
	}
	return nil
}

// tryStreams opens the streams and looks at them.
func (g *generation) tryStreams(ctx context.Context) error {
	return g.led().Until(ctx, led.LookWithin, jetlog.Passing, func(ctx context.Context) (err error) {
		if g.streams, err = jetlog.OpenStreams(ctx, g.nc, g.streamOptions()); err != nil {
			return err
		}
		return g.observeStreams(ctx)
	})
}

// led is the server, as a start asks it.
func (g *generation) led() led.Asker { return led.Asker{NC: g.nc, Trouble: &g.trouble, Log: g.log} }

// runBytes bounds the bodies of one run of messages: about a window's worth
// of single events.
const runBytes = 1 << 20

// windowEnvelope is left for the headers of a window's message.
const windowEnvelope = 4 << 10

func (g *generation) openStore() error {
	schema, err := g.config.Schema()
	if err != nil {
		return err
	}
	g.store, err = cold.Open(g.dir.Of(g.number, datadir.BadgerDir), schema, cold.Options{
		Shards:        g.config.Shards,
		Node:          g.name,
		MemTableBytes: int64(g.config.Badger.MemTable),
		BlockCache:    int64(g.config.Badger.BlockCache),
		IndexCache:    int64(g.config.Badger.IndexCache),
		Free:          func() (uint64, bool) { return datadir.Free(g.dir.Path) },
		Logger:        g.log,
	})
	return err
}

// openState loads the shards and brings them to where DELTAS can take over.
func (g *generation) openState() (err error) {
	if err := g.beginAnew(); err != nil {
		return err
	}
	if err := g.openStore(); err != nil {
		return err
	}
	if err := g.checkStreams(); err != nil {
		return err
	}
	g.takeCommons()
	if err := g.openSinks(g.heldAtStart(), g.sequenceMax()); err != nil {
		return err
	}
	g.guard = pipeline.NewGuard(g.sinks, g.events, g.deltas, g.log)
	g.follower = &pipeline.Follower{Guard: g.guard, Tailer: g.openTailer, Lane: g.lane}
	ctx, cancel := led.Context(g.ctx, g.host.inCluster())
	defer cancel()
	// Before it reads: the router purges what no node that it knows of needs.
	err = g.led().Until(ctx, led.LookWithin, jetlog.Leaderless, func(ctx context.Context) error {
		return g.reports.Report(ctx, g.name, g.sinks.Checkpointed())
	})
	if err != nil {
		return err
	}
	return g.led().Until(ctx, led.StartWithin, jetlog.Leaderless, func(context.Context) error { return g.join() })
}

// openSinks compiles the rules and opens shards; held nil: all.
func (g *generation) openSinks(held []pipeline.Shard, sequenceMax uint64) (err error) {
	if g.program, err = g.config.Program(g.store.Schema()); err != nil {
		return err
	}
	g.sinks, err = sinks.NewNode(g.store, g.sinksOptions(held, sequenceMax))
	return err
}

// sinksOptions are those of what holds some shards.
func (g *generation) sinksOptions(held []pipeline.Shard, sequenceMax uint64) sinks.Options {
	return sinks.Options{
		Shards:          g.config.Shards,
		Held:            held,
		Owners:          g.processors,
		CheckpointEvery: g.config.Checkpoint.Interval,
		DirtyRowsMax:    g.config.Checkpoint.Rows,
		MemoryBytes:     int(g.memory.Load()),
		Turn:            g.turn,
		Others:          g.explaining,
		SequenceMax:     sequenceMax,
		Users: shard.Limits{
			PostsMax:  g.config.Feed.PostsPerAuthor,
			PostsKept: g.config.Feed.Kept(),
			Retention: int64(g.config.Feed.Retention / time.Second),
			Inactive:  int64(g.config.InactiveAfter / time.Second),
		},
		Notices:  g.config.ChannelsOf(config.KindNotice),
		Dots:     g.config.ChannelsOf(config.KindDot),
		Channels: shard.ChannelLimits{Channels: g.config.Limits.Channels, Notices: g.config.Limits.Notices},
		Logger:   g.log,
	}
}
