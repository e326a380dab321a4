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

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/internal/node/counting"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/node/door"
	"github.com/tidemark-io/tidemark/internal/node/fit"
	"github.com/tidemark-io/tidemark/internal/node/shardlog"
	"github.com/tidemark-io/tidemark/internal/walls"
	"github.com/tidemark-io/tidemark/pipeline"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
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
	o      Options
	config *config.Config
	log    *slog.Logger
	shared *counting.Process // what its generations use; it is filled in as the fields below are

	dir     *datadir.Dir // nil: this process only answers
	name    string       // among all nodes
	nc      *nats.Conn
	queries *nats.Conn // only for requests

	// In the order in which they are opened; Close goes the other way.
	listener net.Listener  // of the HTTP server; nil when it is off
	api      *door.Door    // for applications
	servers  *door.Servers // of http.listen
	apart    *door.Servers // of api.listen: whoever takes all of its connections keeps nobody from /readyz
	server   *embed.Server // nil with an external one
	serving  atomic.Pointer[counting.Generation]
	answers  atomic.Pointer[counting.Answers] // answers everybody; nil: this one does not
	rebuilds rebuilds                         // which generations there are, and the one beside that which serves
	thin     *thin                            // nil: this one does more than answer
	jobs     *job.Server
	http     *httpServer
	registry *prometheus.Registry

	failing sync.Once
	failed  chan struct{}
	failure error

	ctx      context.Context
	cancel   context.CancelFunc
	work     sync.WaitGroup
	trouble  kit.Troubles
	closing  sync.Once
	closeErr error
}

// Start opens everything in order and returns once queries are answered. If it fails, or
// ctx ends first, it takes away what it has made. The node lives on when ctx ends later.
func Start(ctx context.Context, c *config.Config, o Options) (*Node, error) {
	n := newNode(c, o)
	started := context.AfterFunc(ctx, n.cancel)
	defer started()
	steps, begin := []func() error{
		n.openHTTP, n.openAPI, n.openData, n.openServer, n.awaitCluster, n.openGenerations, n.openServing, n.openJobs, n.openAnswers,
	}, n.begin
	if c.Thin() {
		steps, begin = []func() error{n.openHTTP, n.openAPI, n.openName, n.openServer, n.openThin}, n.beginThin
	}
	for _, step := range steps {
		if err := step(); err != nil {
			n.undo()
			return nil, err
		}
	}
	begin()
	n.work.Go(func() { n.api.Watch(n.ctx) })
	return n, nil
}

// Reload reads again what may change while the node runs: the tokens of the HTTP door.
func (n *Node) Reload() { n.api.Reload() }

func newNode(c *config.Config, o Options) *Node {
	if o.Processors <= 0 {
		o.Processors = runtime.GOMAXPROCS(0)
	}
	if o.Clock == nil {
		o.Clock = kit.SinceBoot
	}
	n := &Node{
		o: o, config: c, log: o.Logger, registry: prometheus.NewRegistry(), failed: make(chan struct{}),
		shared: &counting.Process{
			Version: o.Version, Processors: o.Processors, Clock: o.Clock, Log: o.Logger, Lines: shardlog.New(o.Logger),
			MoveLimit: move.NewLimiter(int64(c.Cluster.MoveRate)), Counting: pipeline.NewTurns(o.Processors),
		},
	}
	if c.Rebuild.Cores < o.Processors { // else nothing is held back
		n.shared.Turns = pipeline.NewTurns(c.Rebuild.Cores)
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.servers = door.NewServers(n.ctx, fit.Connections(c), c.Limits.TimeoutMax, n.log)
	n.apart = door.NewServers(n.ctx, fit.Connections(c), c.Limits.TimeoutMax, n.log)
	n.serving.Store(n.newGeneration(n.ctx, counting.Spec{Number: generations.First, Config: c}))
	return n
}

// newGeneration is one that is not opened yet, which has all of the process' memory
// and processors.
func (n *Node) newGeneration(ctx context.Context, of counting.Spec) *counting.Generation {
	return counting.New(ctx, n.shared, host{n}, of)
}

// Serving is the generation that serves.
func (n *Node) Serving() *counting.Generation { return n.serving.Load() }

// isServing says whether a generation is the one that serves.
func (n *Node) isServing(g *counting.Generation) bool { return n.Serving() == g }

// begin starts what runs for as long as the node does.
func (n *Node) begin() {
	n.Serving().KeepLetters(true) // before anything is routed
	n.Serving().Begin()
	n.Serving().BeginServing()
	n.beginRebuilds()
	if n.server != nil {
		n.work.Go(func() { n.tend(n.server.Unwritable) })
	}
	n.log.Info("tidemark: running", "node", n.name, "nats", jetlog.Address(n.nc),
		"http", n.HTTPAddress(), "api", n.APIAddress(), "applied", n.Serving().Applied())
}

// WaitApplied returns when every later answer reflects all events up to a
// position, or with ctx's error.
func (n *Node) WaitApplied(ctx context.Context, p pipeline.Position) error {
	for {
		g, done := n.use()
		wait := g.WaitApplied
		if n.dir == nil { // nothing is applied here: others are asked
			wait = n.answers.Load().Reader.WaitApplied
		}
		err := wait(ctx, p)
		done()
		if err == nil || ctx.Err() != nil || n.Serving() == g || n.ctx.Err() != nil {
			return err
		}
	}
}

// fail says that the process cannot go on.
func (n *Node) fail(err error) {
	n.log.Error("tidemark: cannot go on", "error", err)
	n.trouble.Set("node", err)
	n.failing.Do(func() {
		n.failure = err
		close(n.failed)
	})
}

// Failed is closed when the process cannot go on; Failure says why.
func (n *Node) Failed() <-chan struct{} { return n.failed }

// Failure is why the process cannot go on; nil until Failed is closed.
func (n *Node) Failure() error {
	select {
	case <-n.failed:
		return n.failure
	default:
		return nil
	}
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

// openAPI takes the port for applications.
func (n *Node) openAPI() (err error) {
	n.api, err = door.Open(n.config, n.log)
	return err
}

// APIAddress is the host and port of api.listen, "" when there is none.
func (n *Node) APIAddress() string { return n.api.Address() }

// lockData takes the data directory, and the name that it has.
func (n *Node) lockData() error {
	dir, err := datadir.Open(n.config.DataDir, n.config.Node, n.o.Demo)
	if err == nil {
		n.takeDir(dir)
	}
	return err
}

// lockDataToReplay is lockData where all that is counted is thrown away.
func (n *Node) lockDataToReplay() error {
	dir, err := datadir.OpenToReplay(n.config.DataDir, n.config.Node, n.o.Demo)
	if err == nil {
		n.takeDir(dir)
	}
	return err
}

// takeDir has this process and its generations use a data directory, and its name.
func (n *Node) takeDir(dir *datadir.Dir) {
	n.dir, n.name = dir, dir.Marker.Node
	n.shared.Dir, n.shared.Name = n.dir, n.name
}

// openData takes the data directory.
func (n *Node) openData() error {
	if err := n.lockData(); err != nil {
		return err
	}
	n.dir.NameAside(n.log)
	return datadir.CheckFree(n.dir.Path)
}

// storeBytesMin is what the embedded server may store at least: its limit is
// not the streams', which an operator may raise while it runs.
const storeBytesMin = 1 << 40

// openServer starts the embedded server, if there is to be one, and connects.
func (n *Node) openServer() (err error) {
	c := n.config.NATS
	url := c.URL
	if url == "" {
		accounts, err := walls.Accounts(n.KeyFile(), c.Auth)
		if err != nil {
			return err
		}
		n.server, err = embed.StartServer(embed.ServerOptions{
			Accounts:        accounts,
			JetStream:       walls.Inside,
			Listen:          c.Listen,
			StoreDir:        n.dir.Join(datadir.StreamsDir),
			StoreBytesMax:   max(2*n.Serving().StreamOptions().BytesMax(), storeBytesMin),
			SyncInterval:    c.SyncInterval,
			PayloadBytesMax: int(c.MaxPayload),
			Name:            "tidemark-" + n.name,
			Cluster:         n.clusterOptions(),
			Copied:          c.Replicas > 1,
			Logger:          n.log,
		})
		if errors.Is(err, embed.ErrClusterListen) {
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
	if n.nc, err = n.connectOnceThere(url); err != nil {
		return err
	}
	if err := n.checkInside(); err != nil {
		return err
	}
	n.queries, err = n.connect(url, "-queries")
	n.shared.NC, n.shared.Queries = n.nc, n.queries
	return err
}

// KeyFile is where the key is by which this process is inside; "": it has none.
func (n *Node) KeyFile() string {
	if n.config.NATS.URL != "" || n.config.NATS.NKey != "" {
		return n.config.NATS.NKey
	}
	return n.dir.Join(walls.KeyFile)
}
