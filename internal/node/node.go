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
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query/explain"
	"github.com/tidemark-io/tidemark/query/spread"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/move"
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
	// Clock goes on while the machine is suspended. Default: the time since it was
	// booted, where the system has that.
	Clock func() time.Duration
	// Pages are further pages of the HTTP server, by path: "/demo/". Each is
	// made once queries are answered, with the node's own connection, which it
	// must not close. Its requests end when the node closes.
	Pages map[string]func(*nats.Conn) http.Handler
}

// Node is a running process. Start makes one, Close stops it.
type Node struct {
	*process
	config *config.Config

	// In the order in which they are opened; Close goes the other way.
	listener net.Listener   // of the HTTP server; nil when it is off
	server   *jetlog.Server // nil with an external one
	serving  atomic.Pointer[generation]
	answers  atomic.Pointer[answers] // answers everybody; nil: this one does not
	rebuilds rebuilds                // which generations there are, and the one beside that which serves
	thin     *thin                   // nil: this one does more than answer
	jobs     *job.Server
	http     *httpServer
	registry *prometheus.Registry

	failing sync.Once
	failed  chan struct{}
	failure error

	ctx      context.Context
	cancel   context.CancelFunc
	work     sync.WaitGroup
	trouble  troubles
	closing  sync.Once
	closeErr error
}

// process is what all generations of a process use. Start fills it in, in this order,
// before the first of them opens. Nothing in it changes after that.
type process struct {
	o         Options
	log       *slog.Logger
	lines     *shardLines    // of the log, about shards
	moveLimit *move.Limiter  // of the bytes read from other nodes; nil: none
	turns     pipeline.Turns // in which the second generation computes, and what compares
	dir       *dataDir       // nil: this process only answers
	name      string         // of this node, among all nodes
	nc        *nats.Conn
	queries   *nats.Conn // only for requests: on nc they would wait for megabytes of events
	session   string     // of a process that only answers, in all generations; "": each generation has its own
}

// host is what a generation asks of the process that it is in. Several goroutines
// may call its methods.
type host interface {
	// isServing says whether a generation is the one that serves. That may change at once
	// after the answer.
	isServing(g *generation) bool
	// generations is which there are, as far as this process acts on it. Before it knows of
	// any, Epoch is 0.
	generations() generations.Set
	// changeRecord replaces the record of the generations by what change makes of it, and
	// returns when this process acts on that, or will at once. change may be called
	// several times; its error is returned as it is. jetlog.ErrNoBucket: nobody has run on
	// this server yet.
	changeRecord(ctx context.Context, change func(generations.Set) (generations.Set, error)) (generations.Set, error)
	// inCluster says that the embedded server is a member of a NATS cluster: then a start
	// waits for the other servers, and has no time limit.
	inCluster() bool
	// Ready is nil when /readyz says ok.
	Ready() error
	// stats are all figures of the process, by name and labels.
	stats() map[string]any
	// fail says that the process cannot go on, and does not wait for its end. The first
	// error is the one that counts.
	fail(err error)
}

var _ host = (*Node)(nil)

// generation is all that a process counts by one configuration, from EVENTS to
// what it answers, with a DELTAS, members and an assignment that are the
// generation's in all processes.
type generation struct {
	*process
	host     host
	number   generations.Number
	slot     jetlog.Slot
	config   *config.Config // counts as the record says, where it does
	differs  []string       // what the process' file counts differently, in words
	memory   atomic.Int64   // bytes that its shards may take
	countsBy string         // of the record, which tells it from another one with its number

	// In the order in which they are opened; close goes the other way.
	streams *jetlog.Streams
	store   *cold.Store
	sinks   *sinks.Node
	members *jetlog.Members // nil: a process that only answers has found none yet
	runs    *move.Server    // gives runs to other nodes; nil: this one holds nothing
	parts   *spread.Server  // answers other nodes; nil: this one holds nothing

	program   *operators.Program
	explainer *explain.Explainer         // nil: this one only answers
	explains  atomic.Pointer[func() int] // bytes that explanations take; nil: none yet
	guard     *pipeline.Guard
	follower  *pipeline.Follower
	router    *pipeline.Router
	letters   letters
	lease     *jetlog.Lease
	history   *history
	events    events
	deltas    *jetlog.DeltaLog
	reports   *jetlog.Checkpoints
	figures   *prometheus.Registry

	watched  atomic.Pointer[jetlog.Members] // members, for requests
	same     cluster.Member                 // what this process says of itself that never changes
	behind   atomic.Bool                    // the log, by more than ready.lag, or since the start
	open     atomic.Bool                    // shards, router and follower are there
	holdings holdings
	audits   audits
	backups  backups

	ctx     context.Context
	cancel  context.CancelFunc
	work    sync.WaitGroup
	duties  duties        // what goes on while it serves
	users   sync.RWMutex  // read-locked by who uses it although it may be closed meanwhile
	closed  bool          // guarded by users
	lost    chan struct{} // closed when it cannot go on, and does not serve
	losing  sync.Once
	state   atomic.Pointer[streamsState]       // as of the last look
	fresh   *pipeline.Freshness                // where EVENTS ended when
	ended   atomic.Pointer[jetlog.StreamState] // EVENTS, as fresh was told last; nil: not yet
	seen    sightings
	front   front
	trouble troubles

	decided   cluster.Assignment // the last one that this process followed while it decides; arrange's
	answered  answered           // arrange's
	reported  uint64             // the checkpoint that this node said last; keep's
	overruled time.Time          // when the log last had of reports that were not heeded; keep's
	tidied    time.Time          // when keys of members were last tidied; keep's
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
	steps, begin := []func() error{
		n.openHTTP, n.openData, n.openServer, n.awaitCluster, n.openGenerations, n.openServing, n.openJobs, n.openAnswers,
	}, n.begin
	if c.Thin() {
		steps, begin = []func() error{n.openHTTP, n.openName, n.openServer, n.openThin}, n.beginThin
	}
	for _, step := range steps {
		if err := step(); err != nil {
			n.undo()
			return nil, err
		}
	}
	begin()
	return n, nil
}

func newNode(c *config.Config, o Options) *Node {
	if o.Processors <= 0 {
		o.Processors = runtime.GOMAXPROCS(0)
	}
	if o.Clock == nil {
		o.Clock = sinceBoot
	}
	n := &Node{
		process: &process{o: o, log: o.Logger, lines: newShardLines(o.Logger), moveLimit: move.NewLimiter(int64(c.Cluster.MoveRate))},
		config:  c, registry: prometheus.NewRegistry(), failed: make(chan struct{}),
	}
	if c.Rebuild.Cores < o.Processors { // else nothing is held back
		n.turns = pipeline.NewTurns(c.Rebuild.Cores)
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.serving.Store(n.newGeneration(generations.First, 0, c))
	return n
}

// newGeneration is one that is not opened yet, which has all of the process' memory
// and processors.
func (n *Node) newGeneration(number generations.Number, slot jetlog.Slot, c *config.Config) *generation {
	g := &generation{
		process: n.process, host: n, number: number, slot: slot, config: c,
		holdings: newHoldings(), figures: prometheus.NewRegistry(), lost: make(chan struct{}),
		fresh: pipeline.NewFreshness(c.Freshness, n.o.Clock),
	}
	g.memory.Store(int64(c.ShardBytes()))
	g.behind.Store(true) // until it has looked
	g.ctx, g.cancel = context.WithCancel(n.ctx)
	return g
}

// gen is the generation that serves.
func (n *Node) gen() *generation { return n.serving.Load() }

// isServing says whether a generation is the one that serves.
func (n *Node) isServing(g *generation) bool { return n.gen() == g }

// openAll opens all of a generation, up to answering other nodes.
func (g *generation) openAll() error {
	for _, step := range []func() error{g.openStreams, g.openMembers, g.openState, g.openPipeline, g.openAudits, g.openEnds, g.openQueries} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// begin starts what runs for as long as the node does.
func (n *Node) begin() {
	n.gen().letters.on() // before anything is routed
	n.gen().begin()
	n.gen().beginServing()
	n.beginRebuilds()
	if n.server != nil {
		n.work.Go(func() { n.tend(n.server.Unwritable) })
	}
	n.log.Info("tidemark: running", "node", n.name, "nats", n.nc.ConnectedUrlRedacted(),
		"http", n.HTTPAddress(), "applied", n.gen().sinks.Applied())
}

// begin starts what runs for as long as the generation does.
func (g *generation) begin() {
	g.seen.see(time.Now(), g.state.Load().Events.Last, g.sinks.Applied().Sequence())
	g.open.Store(true)
	_ = g.self()     // whether it is behind
	g.members.Soon() // that it holds something
	g.work.Go(g.follow)
	if g.config.Has(config.RoleRoute) {
		g.work.Go(g.route)
	}
	g.work.Go(g.arrange)
	g.work.Go(g.obeyReads)
	g.work.Go(g.obeyWrites)
	g.work.Go(g.keep)
}

// retryAfter paces what failed and is tried again.
const retryAfter = time.Second

// repeat does something over and over until the node closes, and remembers
// what is wrong with it meanwhile.
func (g *generation) repeat(name string, do func() error) {
	for g.ctx.Err() == nil {
		err := do()
		if g.ctx.Err() != nil {
			return
		}
		if errors.Is(err, pipeline.ErrWindowVersion) { // it will not go better by itself
			g.fail(fmt.Errorf("this program does not read what the other nodes write (docs/nodes.md, Rolling upgrade): %w", err))
			return
		}
		if err != nil {
			g.trouble.set(name, err)
			g.log.Error("tidemark: "+name+" failed; trying again", "error", err)
		}
		select {
		case <-time.After(retryAfter):
		case <-g.ctx.Done():
		}
	}
}

// WaitApplied returns when every later answer reflects all events up to a
// position, or with ctx's error.
func (n *Node) WaitApplied(ctx context.Context, p pipeline.Position) error {
	for {
		g, done := n.use()
		wait := g.waitApplied
		if g.sinks == nil { // nothing is applied here: others are asked
			wait = n.answers.Load().reader.WaitApplied
		}
		err := wait(ctx, p)
		done()
		if err == nil || ctx.Err() != nil || n.gen() == g || n.ctx.Err() != nil {
			return err
		}
	}
}

func (g *generation) waitApplied(ctx context.Context, p pipeline.Position) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()
	return g.sinks.WaitApplied(ctx, p)
}
