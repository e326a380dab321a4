package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// openHTTP takes the port first: it is the cheapest thing to fail.
func (n *Node) openHTTP() (err error) {
	if n.config.HTTP.Listen == "" {
		return nil
	}
	n.listener, err = net.Listen("tcp", n.config.HTTP.Listen)
	if err != nil {
		return fmt.Errorf("http.listen: %w: stop what uses the port, or choose another", err)
	}
	return nil
}

// lockData takes the data directory, and the name that it has.
func (n *Node) lockData() (err error) {
	if n.dir, err = openDataDir(n.config.DataDir, n.config.Node, n.o.Demo); err == nil {
		n.name = n.dir.marker.Node
	}
	return err
}

// openData takes the data directory.
func (n *Node) openData() error {
	if err := n.lockData(); err != nil {
		return err
	}
	return checkFree(n.dir.path)
}

// storeBytesMin is what the embedded server may store at least: its limit is
// not the streams', which an operator may raise while it runs.
const storeBytesMin = 1 << 40

// openServer starts the embedded server, if there is to be one, and connects.
func (n *Node) openServer() (err error) {
	c := n.config.NATS
	url := c.URL
	if url == "" {
		n.server, err = jetlog.StartServer(jetlog.ServerOptions{
			Listen:          c.Listen,
			StoreDir:        n.dir.join(streamsDir),
			StoreBytesMax:   max(2*n.gen().streamOptions().BytesMax(), storeBytesMin),
			SyncInterval:    c.SyncInterval,
			PayloadBytesMax: int(c.MaxPayload),
			Name:            "tidemark-" + n.name,
			Cluster:         n.clusterOptions(),
			Copied:          c.Replicas > 1,
			Logger:          n.log,
		})
		if errors.Is(err, jetlog.ErrClusterListen) {
			return fmt.Errorf("nats.cluster.listen: %w: stop what uses the port, or choose another", err)
		}
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("nats.listen: %w: stop what uses the port, or choose another; to use the server there, set nats.url", err)
		}
		if err != nil {
			return err
		}
		url = n.server.URL()
	}
	if n.nc, err = n.connect(url, ""); err != nil {
		return err
	}
	n.queries, err = n.connect(url, "-queries")
	return err
}

func (n *generation) streamOptions() jetlog.StreamOptions {
	s := n.config.NATS.Streams
	return jetlog.StreamOptions{
		Replicas:    n.config.NATS.Replicas,
		Events:      jetlog.Limits{BytesMax: int64(s.Events.MaxBytes), AgeMax: s.Events.MaxAge},
		Deltas:      jetlog.Limits{BytesMax: int64(s.Deltas.MaxBytes)},
		DeadLetters: jetlog.Limits{BytesMax: int64(s.DeadLetter.MaxBytes)},
		Slot:        n.slot,
		Generation:  n.owner(),
		Continues:   n.dir.continues(),
		Logger:      n.log,
	}
}

func (n *generation) openStreams() error {
	ctx, cancel := n.startContext()
	defer cancel()
	if err := n.tryStreams(ctx); err != nil {
		return err
	}
	n.history = newHistory(n.streams, n.config.NATS.Streams.Events.Archive, false, n.log)
	n.events = n.eventsIn(jetlog.RunOptions{
		MessagesMax: n.config.Windows.Events,
		BytesMax:    runBytes,
		Linger:      n.config.Windows.Delay,
		Logger:      n.log,
	})
	n.deltas = jetlog.NewDeltaLog(n.streams) // to read; the router has its own
	n.reports = jetlog.NewCheckpoints(n.streams)
	if most := n.nc.MaxPayload() - windowEnvelope; int64(n.config.Windows.Bytes) > most {
		return fmt.Errorf("windows.bytes is %d and the NATS server takes messages of %d bytes: lower windows.bytes to %d, or raise the server's max_payload",
			n.config.Windows.Bytes, n.nc.MaxPayload(), most)
	}
	return nil
}

// lookWithin bounds requests to the server that take a moment. In a cluster
// without a leader nobody answers, and later neither: who is to ask again must
// not wait for long.
const lookWithin = 5 * time.Second

// tryStreams opens the streams and looks at them.
func (n *generation) tryStreams(ctx context.Context) error {
	return n.untilLed(ctx, lookWithin, jetlog.Passing, func(ctx context.Context) (err error) {
		if n.streams, err = jetlog.OpenStreams(ctx, n.nc, n.streamOptions()); err != nil {
			return err
		}
		return n.observeStreams(ctx)
	})
}

// untilLed does what asks the server, each time with so long at most, and does it
// again while its error is passing: the server's cluster chooses a leader or has
// just started.
func (n *generation) untilLed(ctx context.Context, within time.Duration, passing func(error) bool, do func(context.Context) error) error {
	var log paced
	for {
		before := n.nc.LastError()
		try, cancel := context.WithTimeout(ctx, within)
		err := do(try)
		cancel()
		denied := n.nc.LastError()
		switch {
		case err == nil || !passing(err):
			n.trouble.clear(startPart)
			return err
		case denied != before && jetlog.Denial(denied) != "":
			return fmt.Errorf("the NATS server does not let this node do so: %s: %w", jetlog.Denial(denied), err)
		case ctx.Err() != nil:
			return fmt.Errorf("the NATS server did not have its streams ready within %v, has its cluster a leader? %w", startWithin, err)
		}
		n.trouble.set(startPart, fmt.Errorf("the NATS server does not have its streams ready: %w", err))
		if log.tell(err.Error()) {
			n.log.Warn("the NATS server does not have its streams ready; trying again", "error", err)
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
		}
	}
}

// startContext bounds what a start asks of the server. In a cluster it waits for
// the others for as long as it takes.
func (n *generation) startContext() (context.Context, context.CancelFunc) {
	if n.inCluster() {
		return context.WithCancel(n.ctx)
	}
	return context.WithTimeout(n.ctx, startWithin)
}

// runBytes bounds the bodies of one run of messages: about a window's worth
// of single events.
const runBytes = 1 << 20

// windowEnvelope is left for the headers of a window's message.
const windowEnvelope = 4 << 10

func (n *generation) openStore() error {
	schema, err := n.config.Schema()
	if err != nil {
		return err
	}
	n.store, err = cold.Open(n.dir.of(n.number, badgerDir), schema, cold.Options{
		Shards:        n.config.Shards,
		Node:          n.name,
		MemTableBytes: int64(n.config.Badger.MemTable),
		BlockCache:    int64(n.config.Badger.BlockCache),
		IndexCache:    int64(n.config.Badger.IndexCache),
		Free:          func() (uint64, bool) { return diskFree(n.dir.path) },
		Logger:        n.log,
	})
	return err
}

// openState loads the shards and brings them to where DELTAS can take over.
func (n *generation) openState() (err error) {
	if err := n.beginAnew(); err != nil {
		return err
	}
	if err := n.openStore(); err != nil {
		return err
	}
	if err := n.checkStreams(); err != nil {
		return err
	}
	n.takeCommons()
	if err := n.openSinks(n.heldAtStart(), n.sequenceMax()); err != nil {
		return err
	}
	n.guard = pipeline.NewGuard(n.sinks, n.events, n.deltas, n.log)
	n.follower = &pipeline.Follower{Guard: n.guard, Tailer: n.openTailer, Lane: n.lane}
	ctx, cancel := n.startContext()
	defer cancel()
	// Before it reads: the router purges what no node that it knows of needs.
	err = n.untilLed(ctx, lookWithin, jetlog.Leaderless, func(ctx context.Context) error {
		return n.reports.Report(ctx, n.name, n.sinks.Checkpointed())
	})
	if err != nil {
		return err
	}
	return n.untilLed(ctx, startWithin, jetlog.Leaderless, func(context.Context) error { return n.join() })
}

// openSinks compiles the rules and opens shards; held nil: all.
func (n *generation) openSinks(held []pipeline.Shard, sequenceMax uint64) (err error) {
	if n.program, err = n.config.Program(n.store.Schema()); err != nil {
		return err
	}
	n.sinks, err = sinks.NewNode(n.store, n.sinksOptions(held, sequenceMax))
	return err
}

// sinksOptions are those of what holds some shards.
func (n *generation) sinksOptions(held []pipeline.Shard, sequenceMax uint64) sinks.Options {
	return sinks.Options{
		Shards:          n.config.Shards,
		Held:            held,
		Owners:          n.o.Processors,
		CheckpointEvery: n.config.Checkpoint.Interval,
		DirtyRowsMax:    n.config.Checkpoint.Rows,
		MemoryBytes:     int(n.memory.Load()),
		Turn:            n.turn,
		Others:          n.explaining,
		SequenceMax:     sequenceMax,
		Users: shard.Limits{
			PostsMax:  n.config.Feed.PostsPerAuthor,
			PostsKept: n.config.Feed.Kept(),
			Retention: int64(n.config.Feed.Retention / time.Second),
			Inactive:  int64(n.config.InactiveAfter / time.Second),
		},
		Notices:  n.config.ChannelsOf(config.KindNotice),
		Dots:     n.config.ChannelsOf(config.KindDot),
		Channels: shard.ChannelLimits{Channels: n.config.Limits.Channels, Notices: n.config.Limits.Notices},
		Logger:   n.log,
	}
}
