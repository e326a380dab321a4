// Package node puts the rooms together: one process of Tidemark, from the
// streams to the answers, started and stopped in order.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/cmd/tidemark/config"
	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// Options are what the command line adds to the configuration.
type Options struct {
	Version string
	Demo    bool // the data directory is for made-up numbers
	// Processors is how many goroutines of a kind compute side by side: lanes
	// of the router, owners of shards, workers for requests. Default:
	// GOMAXPROCS.
	Processors int
	Logger     *slog.Logger
	// Pages are further pages of the HTTP server, by path: "/demo/". Each is
	// made once queries are answered, with the node's own connection, which it
	// must not close. Its requests end when the node closes.
	Pages map[string]func(*nats.Conn) http.Handler
}

// Node is a running process. Start makes one, Close stops it.
type Node struct {
	config *config.Config
	o      Options
	log    *slog.Logger

	// In the order in which they are opened; Close goes the other way.
	listener net.Listener // of the HTTP server; nil when it is off
	dir      *dataDir
	server   *jetlog.Server // nil with an external one
	nc       *nats.Conn
	queries  *nats.Conn // for requests alone: on nc they would stand behind megabytes of events
	streams  *jetlog.Streams
	store    *cold.Store
	sinks    *sinks.Node
	service  *query.Service
	http     *httpServer

	program  *operators.Program
	guard    *pipeline.Guard
	follower *pipeline.Follower
	router   *pipeline.Router
	lease    *jetlog.Lease
	events   *jetlog.Events
	deltas   *jetlog.DeltaLog
	reports  *jetlog.Checkpoints
	registry *prometheus.Registry

	ctx     context.Context
	cancel  context.CancelFunc
	work    sync.WaitGroup
	state   atomic.Pointer[streamsState] // as of the last look
	seen    sightings
	front   front
	trouble troubles

	overruled time.Time // when the log last had of reports that were not heeded; keep's
	closing   sync.Once
	closeErr  error
}

// startWithin bounds the requests to the server during the start.
const startWithin = 30 * time.Second

// Start opens everything in order and returns once queries are answered.
// What it made is taken away again when it fails, or ctx ends meanwhile. The
// node lives on when ctx ends later.
func Start(ctx context.Context, c *config.Config, o Options) (*Node, error) {
	n := newNode(c, o)
	started := context.AfterFunc(ctx, n.cancel)
	defer started()
	for _, step := range []func() error{
		n.openHTTP, n.openData, n.openServer, n.openStreams, n.openState, n.openPipeline, n.openQueries,
	} {
		if err := step(); err != nil {
			n.undo()
			return nil, err
		}
	}
	n.begin()
	return n, nil
}

func newNode(c *config.Config, o Options) *Node {
	if o.Processors <= 0 {
		o.Processors = runtime.GOMAXPROCS(0)
	}
	n := &Node{config: c, o: o, log: o.Logger, registry: prometheus.NewRegistry()}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n
}

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

func (n *Node) openData() (err error) {
	n.dir, err = openDataDir(n.config.DataDir, n.config.Shards, n.o.Demo)
	if err != nil {
		return err
	}
	return checkFree(n.dir.path)
}

// storeBytesMin is what the embedded server may store at least: its limit is
// not the streams', which an operator may raise while it runs.
const storeBytesMin = 1 << 40

func (n *Node) openServer() (err error) {
	c := n.config.NATS
	url := c.URL
	if url == "" {
		n.server, err = jetlog.StartServer(jetlog.ServerOptions{
			Listen:          c.Listen,
			StoreDir:        n.dir.join(streamsDir),
			StoreBytesMax:   max(2*n.streamOptions().BytesMax(), storeBytesMin),
			SyncInterval:    c.SyncInterval,
			PayloadBytesMax: int(c.MaxPayload),
			Name:            "tidemark-" + n.dir.marker.Node,
			Logger:          n.log,
		})
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

func (n *Node) streamOptions() jetlog.StreamOptions {
	s := n.config.NATS.Streams
	return jetlog.StreamOptions{
		Replicas:    n.config.NATS.Replicas,
		Events:      jetlog.Limits{BytesMax: int64(s.Events.MaxBytes), AgeMax: s.Events.MaxAge},
		Deltas:      jetlog.Limits{BytesMax: int64(s.Deltas.MaxBytes)},
		DeadLetters: jetlog.Limits{BytesMax: int64(s.DeadLetter.MaxBytes)},
		Logger:      n.log,
	}
}

func (n *Node) openStreams() error {
	ctx, cancel := context.WithTimeout(n.ctx, startWithin)
	defer cancel()
	if err := n.tryStreams(ctx); err != nil {
		return err
	}
	n.events = jetlog.NewEvents(n.streams, jetlog.RunOptions{
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

// tryStreams opens the streams and looks at them, and tries again while the
// server's cluster chooses a leader or has just started.
func (n *Node) tryStreams(ctx context.Context) error {
	for {
		try, cancel := context.WithTimeout(ctx, lookWithin)
		var err error
		if n.streams, err = jetlog.OpenStreams(try, n.nc, n.streamOptions()); err == nil {
			err = n.observeStreams(try)
		}
		cancel()
		switch {
		case !jetlog.Passing(err):
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("the NATS server did not have its streams ready within %v, has its cluster a leader? %w", startWithin, err)
		}
		n.log.Warn("the NATS server does not have its streams ready; trying again", "error", err)
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
		}
	}
}

// runBytes bounds the bodies of one run of messages: about a window's worth
// of single events.
const runBytes = 1 << 20

// windowEnvelope is left for the headers of a window's message.
const windowEnvelope = 4 << 10

func (n *Node) openStore() error {
	schema, err := n.config.Schema()
	if err != nil {
		return err
	}
	n.store, err = cold.Open(n.dir.join(badgerDir), schema, cold.Options{
		Shards:        n.config.Shards,
		Node:          n.dir.marker.Node,
		MemTableBytes: int64(n.config.Badger.MemTable),
		BlockCache:    int64(n.config.Badger.BlockCache),
		IndexCache:    int64(n.config.Badger.IndexCache),
		Free:          func() (uint64, bool) { return diskFree(n.dir.path) },
		Logger:        n.log,
	})
	return err
}

// openState loads the shards and brings them to where DELTAS can take over.
func (n *Node) openState() (err error) {
	if err := n.openStore(); err != nil {
		return err
	}
	n.program, err = operators.Compile(n.store.Schema(), n.config.Rules(), n.config.Shards, operators.Limits{
		Events:   n.config.Windows.Events,
		Bytes:    int(n.config.Windows.Bytes),
		Channels: n.config.OnlyChannels(),
	})
	if err != nil {
		return err
	}
	if err := n.checkStreams(); err != nil {
		return err
	}
	n.sinks, err = sinks.NewNode(n.store, sinks.Options{
		Shards:          n.config.Shards,
		Owners:          n.o.Processors,
		CheckpointEvery: n.config.Checkpoint.Interval,
		DirtyRowsMax:    n.config.Checkpoint.Rows,
		MemoryBytes:     n.config.ShardBytes(),
		SequenceMax:     n.sequenceMax(),
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
	})
	if err != nil {
		return err
	}
	n.guard = pipeline.NewGuard(n.sinks, n.events, n.deltas, n.log)
	n.follower = &pipeline.Follower{Guard: n.guard, Tailer: n.openTailer, Lane: n.lane}
	// Before it reads: the router purges what no node that it knows of needs.
	ctx, cancel := context.WithTimeout(n.ctx, lookWithin)
	defer cancel()
	if err := n.reports.Report(ctx, n.dir.marker.Node, n.sinks.Checkpointed()); err != nil {
		return err
	}
	return n.join()
}

func (n *Node) lane() pipeline.Deriver { return n.program.NewLane() }

func (n *Node) openTailer(ctx context.Context, after uint64) (pipeline.Tailer, error) {
	tailer, err := jetlog.OpenTailer(ctx, n.streams, after, jetlog.RunOptions{MessagesMax: 64, Logger: n.log})
	if err != nil {
		return nil, err
	}
	if !tailer.Created().Equal(n.store.Meta().Streams.Deltas) {
		return nil, errors.Join(errors.New("stream DELTAS was recreated since where to follow it was looked for"), tailer.Close())
	}
	n.trouble.clear("follow")
	return tailer, nil
}

func (n *Node) openPipeline() error {
	lanes := n.config.Router.Lanes
	if lanes == 0 {
		lanes = n.o.Processors
	}
	lease, err := jetlog.NewLease(n.streams, jetlog.LeaseOptions{
		Owner:  n.dir.marker.Node,
		Renew:  n.config.Router.LeaseRenew,
		Expiry: n.config.Router.LeaseExpiry,
		Logger: n.log,
	})
	if err != nil {
		return err
	}
	letters, err := jetlog.NewDeadLetters(n.streams, n.log)
	if err != nil {
		return err
	}
	n.lease = lease
	n.router = &pipeline.Router{
		Open: func(held context.Context, from pipeline.Position) (pipeline.Source, error) {
			return n.guard.Open(n.ctx, held, from)
		},
		Log:     jetlog.NewDeltaLog(n.streams),
		Letters: letters,
		Lane:    n.lane,
		Lanes:   lanes,
		Logger:  n.log,
		Cuts:    n.guard.Cuts,
	}
	return nil
}

func (n *Node) openQueries() (err error) {
	n.registry.MustRegister(newCollector(n))
	registerProcess(n.registry)
	n.service, err = query.New(n.queries, query.Options{
		Schema:    n.store.Schema(),
		Reader:    n.sinks,
		Publisher: jetlog.NewReads(n.streams),
		LogEnd: func(ctx context.Context) (uint64, error) {
			state, err := n.streams.State(ctx, jetlog.EventsStream)
			return state.Last, err
		},
		Limits: query.Limits{
			IDs:        n.config.Limits.IDs,
			Requests:   n.config.Limits.Requests,
			Processors: n.o.Processors,
			ColdReads:  n.config.Limits.ColdReads,
			Timeout:    n.config.Limits.Timeout,
			TimeoutMax: n.config.Limits.TimeoutMax,
		},
		Slow:       query.Slow(n.config.Slow),
		Stats:      n.figures,
		Shards:     n.config.Shards,
		Version:    n.o.Version,
		Registerer: n.registry,
		Logger:     n.log,
		Metadata:   map[string]string{"node": n.dir.marker.Node},
	})
	if err != nil {
		return err
	}
	n.http = serveHTTP(n)
	return nil
}

// begin starts what runs for as long as the node does.
func (n *Node) begin() {
	n.seen.see(time.Now(), n.state.Load().Events.Last, n.sinks.Applied().Sequence())
	n.work.Go(n.follow)
	n.work.Go(n.route)
	n.work.Go(n.keep)
	if n.server != nil {
		n.work.Go(n.tend)
	}
	n.log.Info("tidemark: running", "node", n.dir.marker.Node, "nats", n.nc.ConnectedUrlRedacted(),
		"http", n.HTTPAddress(), "applied", n.sinks.Applied())
}

// retryAfter paces what failed and is tried again.
const retryAfter = time.Second

// follow applies DELTAS until the node closes.
func (n *Node) follow() {
	n.repeat("follow", func() error {
		if err := n.join(); err != nil {
			return err
		}
		return n.follower.Follow(n.ctx)
	})
}

// route is the router while this process holds the lease.
func (n *Node) route() {
	n.repeat("route", func() error {
		held, release, err := n.lease.Acquire(n.ctx)
		if err != nil {
			return err
		}
		defer release()
		err = n.router.Run(held)
		lost := held.Err() != nil && n.ctx.Err() == nil
		if lost {
			err = context.Cause(held)
		}
		if lost || errors.Is(err, pipeline.ErrFenced) {
			n.log.Warn("router: stepped down, standing by", "reason", err)
			return nil
		}
		return err
	})
}

// routed says that this node routes, or another: what kept this one from it
// is nobody's trouble any more.
func (n *Node) routed() bool {
	holder, mine := n.lease.Holder()
	return n.router.Stats.Active.Load() || holder != "" && !mine
}

// repeat does something over and over until the node closes, and remembers
// what is wrong with it meanwhile.
func (n *Node) repeat(name string, do func() error) {
	for n.ctx.Err() == nil {
		err := do()
		if n.ctx.Err() != nil {
			return
		}
		if err != nil {
			n.trouble.set(name, err)
			n.log.Error("tidemark: "+name+" failed; trying again", "error", err)
		}
		select {
		case <-time.After(retryAfter):
		case <-n.ctx.Done():
		}
	}
}

// keepEvery paces housekeeping.
const keepEvery = time.Second

// keep looks at the streams, recreates what was deleted of them, reports this node's checkpoint, and lets the
// router purge DELTAS below the lowest of all nodes'.
func (n *Node) keep() {
	ticker := time.NewTicker(keepEvery)
	defer ticker.Stop()
	var last time.Time
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-ticker.C:
		}
		if n.routed() {
			n.trouble.clear("route")
		}
		if err := n.keepOnce(&last); err != nil && n.ctx.Err() == nil {
			n.trouble.set("keep", err)
			n.log.Warn("tidemark: housekeeping failed; trying again", "error", err)
		} else {
			n.trouble.clear("keep")
		}
	}
}

// reportEvery is how often this node's checkpoint is reported, moving or not:
// a node that is silent for node_expiry is taken for gone.
const reportEvery = 5 * time.Second

// silenceUnderPressure is what node_expiry comes down to when DELTAS is half full.
const silenceUnderPressure = time.Minute

func (n *Node) keepOnce(reported *time.Time) error {
	ctx, cancel := context.WithTimeout(n.ctx, lookWithin)
	defer cancel()
	if err := n.streams.Restore(ctx); err != nil {
		return err
	}
	if err := n.observeStreams(ctx); err != nil {
		return err
	}
	n.seen.see(time.Now(), n.state.Load().Events.Last, n.sinks.Applied().Sequence())
	if time.Since(*reported) < reportEvery && !n.nearlyFull() {
		return nil
	}
	checkpointed := n.sinks.Checkpointed()
	if n.pressed() {
		checkpointed = n.sinks.CheckpointedGoing()
	}
	err := n.reports.Report(ctx, n.dir.marker.Node, checkpointed)
	if err == nil {
		*reported = time.Now()
	}
	if n.router.Stats.Active.Load() {
		err = errors.Join(err, n.purge(ctx, checkpointed))
	}
	return err
}

// purge takes from DELTAS what no node needs.
func (n *Node) purge(ctx context.Context, checkpointed uint64) error {
	silence := n.config.NodeExpiry
	if n.pressed() {
		silence = min(silence, silenceUnderPressure)
	}
	below, err := n.reports.Lowest(ctx, silence)
	if n.nearlyFull() {
		if below < checkpointed {
			n.tellOverruled(below, checkpointed, err)
		}
		below, err = checkpointed, nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(n.ctx, startWithin)
	defer cancel()
	return n.deltas.Purge(ctx, below)
}

// overruledEvery paces what the log has of reports that were not heeded.
const overruledEvery = time.Minute

func (n *Node) tellOverruled(reported, checkpointed uint64, err error) {
	if time.Since(n.overruled) < overruledEvery {
		return
	}
	n.overruled = time.Now()
	n.log.Warn("tidemark: DELTAS is nearly full and reports of nodes hold its purge back: it is purged below this node's own checkpoint; nodes that need more derive it from EVENTS",
		"reported", reported, "error", err, "checkpoint", checkpointed,
		"remedy", "look at the keys node.* of the bucket "+jetlog.Bucket+": delete those that are no node's, and deny others $KV."+jetlog.Bucket+".> (docs/operations.md, Who may do what)")
}

// pressed says that DELTAS is half full. From then on nodes that are away and
// shards that have stopped no longer hold it back: it must not fill up for
// all, and they can derive what they missed from EVENTS.
func (n *Node) pressed() bool {
	return n.state.Load().Deltas.Bytes > uint64(n.config.NATS.Streams.Deltas.MaxBytes)/2
}

// nearlyFull says that DELTAS has room for an eighth, or one window. From then
// on nobody's report holds it back: anybody may have written it who reaches the
// bucket, and with a log that is full nothing is counted any more.
func (n *Node) nearlyFull() bool {
	limit := uint64(n.config.NATS.Streams.Deltas.MaxBytes)
	return n.state.Load().Deltas.Bytes+max(limit/8, uint64(n.config.Windows.Bytes)) > limit
}

// Close stops in order: no more queries, no more routing, no more windows; a
// last checkpoint; then the database, the connection and the server.
func (n *Node) Close() error {
	n.closing.Do(func() { n.closeErr = n.close() })
	return n.closeErr
}

// drainWithin bounds the wait for answers under way.
const drainWithin = 5 * time.Second

func (n *Node) close() error {
	n.log.Info("tidemark: stopping")
	ctx, cancel := context.WithTimeout(context.Background(), drainWithin)
	defer cancel()
	var faults []error
	faults = append(faults, n.service.Stop(ctx))
	n.cancel()
	n.work.Wait()
	faults = append(faults, n.sinks.Close())
	n.log.Info("tidemark: checkpointed", "applied", n.sinks.Applied())
	n.http.close(ctx)
	faults = append(faults, n.store.Close())
	n.queries.Close()
	n.nc.Close()
	if n.server != nil {
		n.server.Close()
	}
	faults = append(faults, n.dir.close())
	return errors.Join(faults...)
}

// undo closes what a failed Start has opened.
func (n *Node) undo() {
	n.cancel()
	if n.sinks != nil {
		n.sinks.Close()
	}
	if n.store != nil {
		n.store.Close()
	}
	if n.queries != nil {
		n.queries.Close()
	}
	if n.nc != nil {
		n.nc.Close()
	}
	if n.server != nil {
		n.server.Close()
	}
	if n.dir != nil {
		if n.streams == nil {
			n.dir.abandon()
		} else {
			n.dir.close()
		}
	}
	if n.listener != nil {
		n.listener.Close()
	}
}

// WaitApplied returns when every later answer reflects all events up to a
// position, or with ctx's error.
func (n *Node) WaitApplied(ctx context.Context, p pipeline.Position) error {
	return n.sinks.WaitApplied(ctx, p)
}
