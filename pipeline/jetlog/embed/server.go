package embed

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidemark-io/tidemark/internal/kit"
)

const (
	// serverReadyWithin bounds the wait for the listener once the streams
	// have been recovered, which itself takes as long as it takes.
	serverReadyWithin = 10 * time.Second
	// serverMemoryMax bounds streams in memory: we have none, consumers only.
	serverMemoryMax = 64 << 20
	// serverSubscriptionsMax bounds the subscriptions of one connection, each of which
	// the server keeps and looks through. A node has some hundred.
	serverSubscriptionsMax = 10_000
	// serverConnectionsMax bounds the connections.
	serverConnectionsMax = 10_000
	// routeReportsEvery is of how many tries to reach another server of the
	// cluster, one a second, the log has one.
	routeReportsEvery = 300
	// globalAccount is where a server without accounts keeps its streams.
	globalAccount = "$G"
)

// ServerOptions configure an embedded server.
type ServerOptions struct {
	Listen          string        // host:port; port 0 takes a free one
	StoreDir        string        // made when missing
	StoreBytesMax   int64         // all streams' BytesMax count against it (StreamOptions.BytesMax); 0 lets the server choose by free disk
	SyncInterval    time.Duration // how much a power cut may cost; 0 syncs every message
	PayloadBytesMax int           // default 1 MiB
	Name            string        // default "tidemark"; in a cluster no other server's, and the same for as long as StoreDir is
	Cluster         ClusterOptions
	Accounts        string       // who may do what, as text of a server's configuration; "": all may do all
	JetStream       string       // the account among these that has the streams
	Copied          bool         // other servers of the cluster have copies of all streams
	Logger          *slog.Logger // default: none
}

// Server is an embedded NATS server with JetStream, on its own or a member of a
// cluster of such servers. It handles no signals and
// never ends the process. One goroutine at a time calls Restart and Close.
type Server struct {
	options ServerOptions // Listen and Cluster.Listen have the ports that were taken
	ns      atomic.Pointer[server.Server]
	log     atomic.Pointer[serverLog] // of ns
}

// StartServer starts a server and returns once clients can connect. When it
// fails it leaves nothing behind that was not there before.
//
// A stream whose directory is there but which the server could not recover is
// an error: going on would create an empty one over it (I10). Where others have
// copies of it (Copied) it is not. So is a StoreDir that a server on its own has
// used and that is to be one of a cluster, and the other way round.
//
// A member of a cluster is ready for clients before its cluster is: see
// WaitLeader.
func StartServer(o ServerOptions) (*Server, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	host, port, err := listenAddress(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("jetlog: start server: listen address %q: %w", o.Listen, err)
	}
	if err := checkPort(o.Listen); err != nil {
		return nil, fmt.Errorf("jetlog: start server: cannot listen on %s: %w", o.Listen, err)
	}
	if _, _, err := o.Cluster.options(); err != nil {
		return nil, err
	}
	if o.Cluster.on() {
		if err := checkPort(o.Cluster.Listen); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrClusterListen, o.Cluster.Listen, err)
		}
	}
	undo, err := prepareDir(o.StoreDir)
	if err != nil {
		return nil, fmt.Errorf("jetlog: start server: store directory %s: %w", o.StoreDir, err)
	}
	if err := moveStreams(&o); err != nil {
		return nil, fmt.Errorf("jetlog: start server: %w", err)
	}
	if err := checkAccounts(&o); err != nil {
		undo()
		return nil, err
	}
	stored := storedStreams(&o)
	if err := checkMember(&o, stored); err != nil {
		undo()
		return nil, err
	}

	s, err := start(o, host, port)
	if err != nil {
		undo()
		return nil, err
	}
	if err := s.checkRecovered(stored); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func start(o ServerOptions, host string, port int) (*Server, error) {
	cluster, routes, err := o.Cluster.options()
	if err != nil {
		return nil, err
	}
	options := &server.Options{
		ServerName:             cmp.Or(o.Name, "tidemark"),
		Host:                   host,
		Port:                   port,
		Cluster:                cluster,
		Routes:                 routes,
		JetStream:              true,
		StoreDir:               o.StoreDir,
		JetStreamMaxStore:      o.StoreBytesMax,
		JetStreamMaxMemory:     serverMemoryMax,
		MaxPayload:             int32(cmp.Or(o.PayloadBytesMax, server.MAX_PAYLOAD_SIZE)),
		MaxSubs:                serverSubscriptionsMax,
		MaxConn:                serverConnectionsMax,
		SyncInterval:           o.SyncInterval,
		SyncAlways:             o.SyncInterval == 0,
		NoSigs:                 true,
		DisableJetStreamBanner: true,
		// Without it the server holds up each sender to a client that does not read: the node's
		// answers to everybody. So that one client goes without.
		NoFastProducerStall: true,
		// Each try for a route is a line of the log otherwise, of several
		// connections to each server that is down.
		ReconnectErrorReports: routeReportsEvery,
	}
	if o.Accounts != "" {
		if err := options.ProcessConfigString(o.Accounts); err != nil {
			return nil, fmt.Errorf("jetlog: start server: accounts: %w", err)
		}
	}
	ns, err := server.NewServer(options)
	if err != nil {
		return nil, fmt.Errorf("jetlog: start server: %w", err)
	}
	log := &serverLog{to: o.Logger}
	ns.SetLoggerV2(log, false, false, false)
	ns.Start()
	if ns.ReadyForConnections(serverReadyWithin) && log.fatal.Load() == nil {
		o.Listen = ns.Addr().String()
		if o.Cluster.on() {
			o.Cluster.Listen = ns.ClusterAddr().String()
		}
		s := &Server{options: o}
		s.ns.Store(ns)
		s.log.Store(log)
		return s, nil
	}
	ns.Shutdown()
	ns.WaitForShutdown()
	if fatal := log.fatal.Load(); fatal != nil {
		return nil, fmt.Errorf("jetlog: start server: %s", *fatal)
	}
	return nil, fmt.Errorf("jetlog: start server: not ready within %v", serverReadyWithin)
}

// URL is what clients connect to.
func (s *Server) URL() string { return s.ns.Load().ClientURL() }

// Unwritable says which streams can no longer be written, and why: they could not
// be written once, mostly because the disk was full. The server does not try
// again by itself, however much room there is later; Restart does. nil: all is
// well.
func (s *Server) Unwritable() error {
	var faults []error
	// Healthz finds streams by their directories: it is silent where one is gone.
	if line := s.log.Load().unwritable.Load(); line != nil {
		faults = append(faults, errors.New(*line))
	}
	for _, e := range s.ns.Load().Healthz(&server.HealthzOptions{Account: s.options.account(), Details: true}).Errors {
		switch {
		case e.Type == server.HealthzErrorStream && strings.Contains(e.Error, "write error"):
			faults = append(faults, errors.New(e.Error))
		case s.options.Cluster.on() && !needsRestart(e.Error):
		case e.Type == server.HealthzErrorJetStream:
			faults = append(faults, errors.New(e.Error))
		}
	}
	return errors.Join(faults...)
}

// Restart stops the server and starts it anew on the same port and directory.
// Connections come back by themselves, as after any server's restart. When it
// fails the server is down, and Restart may be called again. It does nothing but
// return an error while the directory of a stream is gone: the server would go on
// without the stream.
func (s *Server) Restart() error {
	if account, err := s.ns.Load().JszAccount(&server.JSzOptions{Account: s.options.account(), Streams: true, Config: true}); err == nil {
		stored := storedStreams(&s.options)
		for _, stream := range account.Streams {
			if stream.Config.Storage == server.FileStorage && !slices.Contains(stored, stream.Name) {
				return fmt.Errorf("jetlog: the directory of stream %s is gone from %s: bring it back, and start the process again; what is written to the stream meanwhile is refused",
					stream.Name, s.options.streamsDir())
			}
		}
	}
	s.Close()
	anew, err := StartServer(s.options)
	if err != nil {
		return err
	}
	s.ns.Store(anew.ns.Load())
	s.log.Store(anew.log.Load())
	return nil
}

// Close stops the server and returns when everything is on disk. Close
// connections and whatever uses them first; closing twice is fine.
func (s *Server) Close() {
	ns := s.ns.Load()
	ns.Shutdown()
	ns.WaitForShutdown()
}

// checkRecovered compares the streams found on disk with those that run.
func (s *Server) checkRecovered(stored []string) error {
	if len(stored) == 0 {
		return nil
	}
	account, err := s.ns.Load().JszAccount(&server.JSzOptions{Account: s.options.account(), Streams: true})
	if err != nil {
		return fmt.Errorf("jetlog: start server: list streams: %w", err)
	}
	var lost []string
	for _, name := range stored {
		if !slices.ContainsFunc(account.Streams, func(d server.StreamDetail) bool { return d.Name == name }) {
			lost = append(lost, name)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	if s.options.Cluster.on() && s.options.Copied {
		tellUnrecovered(s.options.Logger, lost)
		return nil
	}
	return fmt.Errorf("jetlog: start server: %s under %s cannot be recovered (the log says why): "+
		"restore the directory from a backup, or move it away to begin without it",
		strings.Join(lost, ", "), s.options.streamsDir())
}

// account has the streams.
func (o *ServerOptions) account() string { return cmp.Or(o.JetStream, globalAccount) }

func (o *ServerOptions) streamsDir() string {
	return filepath.Join(o.StoreDir, server.JetStreamStoreDir, o.account(), "streams")
}

// moveStreams gives the account of the streams what a server without accounts has stored.
// In a cluster the others would have to do so at the same moment.
func moveStreams(o *ServerOptions) error {
	all := *o
	all.JetStream = ""
	if o.account() == globalAccount || o.Cluster.on() || len(storedStreams(&all)) == 0 || len(storedStreams(o)) > 0 {
		return nil
	}
	return kit.Move(filepath.Dir(all.streamsDir()), filepath.Dir(o.streamsDir()))
}

// events is the stream that must not be there twice.
const events = "EVENTS"

// checkAccounts refuses a directory in which another account than that of the streams has
// events: new streams beside them would be empty, and nothing would say where the events are.
func checkAccounts(o *ServerOptions) error {
	accounts, _ := os.ReadDir(filepath.Join(o.StoreDir, server.JetStreamStoreDir))
	for _, account := range accounts {
		other := *o
		other.JetStream = account.Name()
		if other.JetStream == o.account() || !slices.Contains(storedStreams(&other), events) {
			continue
		}
		return fmt.Errorf("jetlog: start server: there are events in another account than %s, in %s: nothing was changed. "+
			"A build before this one wrote them there: with that build, back up ('tidemark backup'), and restore here into another data directory. "+
			"If %s has all of them too, move the other directory away",
			o.account(), filepath.Join(other.streamsDir(), events), filepath.Join(o.streamsDir(), events))
	}
	return nil
}

// storedStreams names the streams on disk. A leading dot marks one that is
// being deleted.
func storedStreams(o *ServerOptions) []string {
	entries, _ := os.ReadDir(o.streamsDir())
	var names []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names
}

func listenAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("port %q is not a number from 0 to 65535", text)
	}
	if n == 0 {
		return host, server.RANDOM_PORT, nil
	}
	return host, int(n), nil
}

// checkPort finds a taken port before anything is created.
func checkPort(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		if inner := new(net.OpError); errors.As(err, &inner) {
			return inner.Err
		}
		return err
	}
	return l.Close()
}

// prepareDir makes dir and proves that it can be written. undo takes away
// what was made.
func prepareDir(dir string) (undo func(), err error) {
	if dir == "" {
		return nil, errors.New("none is set")
	}
	made := firstMissing(dir)
	undo = func() {
		if made != "" {
			_ = os.RemoveAll(made)
		}
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		undo()
		return nil, err
	}
	probe, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		undo()
		return nil, err
	}
	return undo, errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// firstMissing is the topmost directory on the way to dir that is not there.
func firstMissing(dir string) string {
	missing := ""
	for {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			return missing
		}
		missing = dir
		parent := filepath.Dir(dir)
		if parent == dir {
			return missing
		}
		dir = parent
	}
}
