package counting

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/kit"
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

func (g *Generation) StreamOptions() jetlog.StreamOptions {
	o := StreamLimits(&g.Config.NATS)
	o.Slot, o.Generation, o.Continues, o.Logger = g.Slot, g.owner(), g.Dir.Continues(), g.Log
	return o
}

// StreamLimits is what of the streams' options the configuration says.
func StreamLimits(c *config.NATS) jetlog.StreamOptions {
	s := c.Streams
	return jetlog.StreamOptions{
		Replicas:    c.Replicas,
		Events:      jetlog.Limits{BytesMax: int64(s.Events.MaxBytes), AgeMax: s.Events.MaxAge},
		Deltas:      jetlog.Limits{BytesMax: int64(s.Deltas.MaxBytes)},
		DeadLetters: jetlog.Limits{BytesMax: int64(s.DeadLetter.MaxBytes)},
	}
}

// evict makes room for a generation where one that was there before has left
// something in its slot.
func (g *Generation) evict() error {
	ctx, cancel := led.Context(g.ctx, g.host.InCluster())
	defer cancel()
	return g.led().Until(ctx, led.LookWithin, jetlog.Leaderless, func(ctx context.Context) error {
		evicted, err := jetlog.Evict(ctx, g.NC, g.Slot, g.owner())
		if evicted {
			g.Log.Info("tidemark: what an earlier generation has left is removed", "stream", g.Slot.Deltas())
		}
		return err
	})
}

func (g *Generation) openStreams() error {
	ctx, cancel := led.Context(g.ctx, g.host.InCluster())
	defer cancel()
	if err := g.tryStreams(ctx); err != nil {
		return err
	}
	g.history = history.New(g.streams, g.Config.NATS.Streams.Events.Archive, false, g.Log)
	g.events = g.eventsIn(jetlog.RunOptions{
		MessagesMax: g.Config.Windows.Events,
		BytesMax:    runBytes,
		Linger:      g.Config.Windows.Delay,
		Logger:      g.Log,
	})
	g.deltas = jetlog.NewDeltaLog(g.streams) // to read; the router has its own
	g.reports = bucket.NewCheckpoints(g.streams)
	if most := g.NC.MaxPayload() - windowEnvelope; int64(g.Config.Windows.Bytes) > most {
		return fmt.Errorf("windows.bytes is %d and the NATS server takes messages of %d bytes: lower windows.bytes to %d, or raise the server's max_payload",
			g.Config.Windows.Bytes, g.NC.MaxPayload(), most)
	}
	return nil
}

// tryStreams opens the streams and looks at them.
func (g *Generation) tryStreams(ctx context.Context) error {
	return g.led().Until(ctx, led.LookWithin, jetlog.Passing, func(ctx context.Context) (err error) {
		if g.streams, err = jetlog.OpenStreams(ctx, g.NC, g.StreamOptions()); err != nil {
			return err
		}
		return g.observeStreams(ctx)
	})
}

// led is the server, as a start asks it.
func (g *Generation) led() led.Asker { return led.Asker{NC: g.NC, Trouble: &g.trouble, Log: g.Log} }

// runBytes bounds the bodies of one run of messages: about a window's worth
// of single events.
const runBytes = 1 << 20

// windowEnvelope is left for the headers of a window's message.
const windowEnvelope = 4 << 10

func (g *Generation) openStore() error {
	schema, err := g.Config.Schema()
	if err != nil {
		return err
	}
	g.store, err = cold.Open(g.Dir.Of(g.Number, datadir.BadgerDir), schema, cold.Options{
		Shards:        g.Config.Shards,
		Node:          g.Name,
		MemTableBytes: int64(g.Config.Badger.MemTable),
		BlockCache:    int64(g.Config.Badger.BlockCache),
		IndexCache:    int64(g.Config.Badger.IndexCache),
		Free:          func() (uint64, bool) { return kit.DiskFree(g.Dir.Path) },
		Logger:        g.Log,
	})
	return err
}

// openState loads the shards and brings them to where DELTAS can take over.
func (g *Generation) openState() (err error) {
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
	g.guard = pipeline.NewGuard(g.sinks, g.events, g.deltas, g.Log)
	g.follower = &pipeline.Follower{Guard: g.guard, Tailer: g.openTailer, Lane: g.lane}
	ctx, cancel := led.Context(g.ctx, g.host.InCluster())
	defer cancel()
	// Before it reads: the router purges what no node that it knows of needs.
	err = g.led().Until(ctx, led.LookWithin, jetlog.Leaderless, func(ctx context.Context) error {
		return g.reports.Report(ctx, g.Name, g.sinks.Checkpointed())
	})
	if err != nil {
		return err
	}
	err = g.led().Until(ctx, led.StartWithin, jetlog.Leaderless, func(context.Context) error { return g.join() })
	if errors.Is(err, pipeline.ErrLostTail) { // it answers by what it has until that is counted again
		return nil
	}
	return err
}

// openSinks compiles the rules and opens shards; held nil: all.
func (g *Generation) openSinks(held []pipeline.Shard, sequenceMax uint64) (err error) {
	if g.program, err = g.Config.Program(g.store.Schema()); err != nil {
		return err
	}
	g.sinks, err = sinks.NewNode(g.store, g.sinksOptions(held, sequenceMax))
	return err
}

// sinksOptions are those of what holds some shards.
func (g *Generation) sinksOptions(held []pipeline.Shard, sequenceMax uint64) sinks.Options {
	return sinks.Options{
		Shards:          g.Config.Shards,
		Held:            held,
		Owners:          g.Processors,
		CheckpointEvery: g.Config.Checkpoint.Interval,
		DirtyRowsMax:    g.Config.Checkpoint.Rows,
		MemoryBytes:     int(g.memory.Load()),
		Turn:            g.turn,
		Disk:            g.disk,
		Others:          g.explaining,
		SequenceMax:     sequenceMax,
		Users: shard.Limits{
			PostsMax:  g.Config.Feed.PostsPerAuthor,
			PostsKept: g.Config.Feed.Kept(),
			Retention: int64(g.Config.Feed.Retention / time.Second),
			Inactive:  int64(g.Config.InactiveAfter / time.Second),
		},
		Notices:  g.Config.ChannelsOf(config.KindNotice),
		Dots:     g.Config.ChannelsOf(config.KindDot),
		Channels: shard.ChannelLimits{Channels: g.Config.Limits.Channels, Notices: g.Config.Limits.Notices},
		Logger:   g.Log,
	}
}
