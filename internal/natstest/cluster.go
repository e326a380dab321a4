package natstest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

// Cluster is three NATS servers that keep streams together, each a process of
// its own: it may be killed and started again with what it has on disk.
type Cluster struct {
	Servers []*Member
	links   []*link
	tb      testing.TB
	nc      *nats.Conn
	js      jetstream.JetStream
}

// Member is one server of a Cluster, or one of its own.
type Member struct {
	Name string
	URL  string

	tb     testing.TB
	config string
	log    *os.File
	cmd    *exec.Cmd // nil: it does not run
	done   chan struct{}
}

const clusterSize = 3

var natsdDir string // made with the first server in a process of its own

var natsd = sync.OnceValues(func() (binary string, err error) {
	if natsdDir, err = os.MkdirTemp("", "tidemark-natsd-"); err != nil {
		return "", err
	}
	binary = filepath.Join(natsdDir, "natsd")
	return binary, e2e.Build(binary, "./internal/natstest/natsd")
})

// Clean removes what NewCluster and Apart have built; for TestMain.
func Clean() {
	if natsdDir != "" {
		os.RemoveAll(natsdDir)
	}
}

// NewCluster starts one, and returns when streams can be made on all of its
// servers. They are gone when the test ends.
func NewCluster(tb testing.TB) *Cluster {
	tb.Helper()
	for try := 1; ; try++ {
		c := startCluster(tb)
		err := c.wait(firstWithin)
		if err == nil {
			err = c.placing()
		}
		switch {
		case err == nil:
			return c
		case try == 3:
			tb.Fatalf("the cluster does not start: %v", err)
		}
		// A port that was free may be somebody's by now.
		tb.Logf("the cluster does not start, another: %v", err)
		c.nc.Close()
		for _, m := range c.Servers {
			m.Kill()
		}
	}
}

func startCluster(tb testing.TB) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb}
	var routes []string
	for range clusterSize {
		routes = append(routes, fmt.Sprintf("127.0.0.1:%d", e2e.FreePort(tb)))
	}
	for i := range clusterSize {
		var links []string
		for j := range clusterSize {
			if j != i {
				l := newLink(tb, i, j, routes[j])
				c.links = append(c.links, l)
				links = append(links, l.address())
			}
		}
		c.Servers = append(c.Servers, newMember(tb, fmt.Sprintf("n%d", i+1), routes[i], links))
	}
	for _, m := range c.Servers {
		m.Start()
	}
	c.connect()
	return c
}

// Apart starts one server that is no cluster's, in a process of its own: unlike
// [Server]'s it is not slowed down by the race detector. It is gone when the test ends.
func Apart(tb testing.TB) *Member {
	tb.Helper()
	m := newMember(tb, "apart", "", nil)
	m.Start()
	var nc *nats.Conn
	var err error
	for deadline := time.Now().Add(firstWithin); nc == nil; time.Sleep(20 * time.Millisecond) {
		if nc, err = nats.Connect(m.URL); err != nil && (m.Ended() || time.Now().After(deadline)) {
			tb.Fatalf("the server does not start within %v: %v", firstWithin, err)
		}
	}
	nc.Close()
	return m
}

func newMember(tb testing.TB, name, route string, routes []string) *Member {
	tb.Helper()
	dir := tb.TempDir()
	listen := fmt.Sprintf("127.0.0.1:%d", e2e.FreePort(tb))
	m := &Member{Name: name, URL: "nats://" + listen, tb: tb, config: filepath.Join(dir, "nats.conf")}
	config := fmt.Sprintf(`server_name: %s
listen: %q
no_fast_producer_stall: true
jetstream {store_dir: %q, max_mem: 64MB, max_file: 1TB}
`, name, listen, filepath.Join(dir, "store"))
	if len(routes) > 0 {
		// Nobody listens where it says that it can be reached: servers know each other
		// by their links alone, which can be cut.
		config += fmt.Sprintf("cluster {name: c, listen: %q, advertise: \"127.0.0.1:1\", routes: [nats://%s]}\n", route, strings.Join(routes, ", nats://"))
	}
	if err := os.WriteFile(m.config, []byte(config), 0o644); err != nil {
		tb.Fatal(err)
	}
	var err error
	if m.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		m.Kill()
		m.log.Close()
	})
	return m
}

// Start starts the server and does not wait: it may need others to be ready.
func (m *Member) Start() {
	m.tb.Helper()
	binary, err := natsd()
	if err != nil {
		m.tb.Fatal(err)
	}
	m.cmd = exec.Command(binary, "-config", m.config)
	m.cmd.Stdout, m.cmd.Stderr = m.log, m.log
	if err := m.cmd.Start(); err != nil {
		m.tb.Fatal(err)
	}
	m.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		cmd.Wait()
		close(done)
	}(m.cmd, m.done)
}

// Ended says that it runs no more although it was not stopped.
func (m *Member) Ended() bool {
	if m.cmd == nil {
		return false
	}
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// Kill is kill -9: the others find out by themselves.
func (m *Member) Kill() { m.end(syscall.SIGKILL) }

// Stop is SIGTERM: it informs the others, which lead at once what it led.
func (m *Member) Stop() { m.end(syscall.SIGTERM) }

func (m *Member) end(s syscall.Signal) {
	if m.cmd == nil {
		return
	}
	m.Signal(s)
	<-m.done
	m.cmd = nil
}

// Signal sends a signal to the server, which runs, and does not wait.
func (m *Member) Signal(s syscall.Signal) { m.cmd.Process.Signal(s) }

// URL is the list of all servers.
func (c *Cluster) URL() string {
	var urls []string
	for _, m := range c.Servers {
		urls = append(urls, m.URL)
	}
	return strings.Join(urls, ",")
}

// Conn is a connection to whichever server is there.
func (c *Cluster) Conn() *nats.Conn { return c.nc }

func (c *Cluster) connect() {
	c.tb.Helper()
	nc, err := nats.Connect(c.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.RetryOnFailedConnect(true), nats.PingInterval(time.Second), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		c.tb.Fatal(err)
	}
	c.tb.Cleanup(nc.Close)
	c.nc = nc
	if c.js, err = jetstream.New(nc); err != nil {
		c.tb.Fatal(err)
	}
}

const (
	// firstWithin bounds the first election.
	firstWithin = 40 * time.Second
	// wholeWithin bounds an election after another, and a replica's catching up,
	// on a slow machine.
	wholeWithin = 2 * time.Minute
)

// WaitWhole returns when there is a leader of everything, and every replica of
// every stream has all of it.
func (c *Cluster) WaitWhole() {
	c.tb.Helper()
	if err := c.wait(wholeWithin); err != nil {
		c.tb.Fatal(err)
	}
}

func (c *Cluster) wait(within time.Duration) (err error) {
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		for _, m := range c.Servers {
			if m.Ended() {
				return fmt.Errorf("%s has ended by itself", m.Name)
			}
		}
		if err = c.whole(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("the cluster is not whole within %v: %w", within, err)
}

// placing waits until the leader has heard of all servers: before that it places no three
// copies.
func (c *Cluster) placing() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), firstWithin)
	defer cancel()
	probe := jetstream.StreamConfig{Name: "PROBE", Subjects: []string{"probe"}, Storage: jetstream.MemoryStorage, Replicas: clusterSize}
	for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		if _, err = c.js.CreateOrUpdateStream(ctx, probe); err == nil {
			return c.js.DeleteStream(ctx, probe.Name)
		}
	}
	return fmt.Errorf("three copies are placed nowhere: %w", err)
}

func (c *Cluster) whole() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if _, err := c.js.AccountInfo(ctx); err != nil {
		return err
	}
	streams := c.js.ListStreams(ctx)
	for s := range streams.Info() {
		if s.Cluster == nil || s.Cluster.Leader == "" {
			return fmt.Errorf("stream %s has no leader", s.Config.Name)
		}
		if n := len(s.Cluster.Replicas); n != s.Config.Replicas-1 {
			return fmt.Errorf("stream %s has %d replicas beside its leader", s.Config.Name, n)
		}
		for _, r := range s.Cluster.Replicas {
			if !r.Current || r.Offline {
				return fmt.Errorf("stream %s is behind on %s", s.Config.Name, r.Name)
			}
		}
	}
	return streams.Err()
}

// StoreDir is where the server keeps its streams.
func (m *Member) StoreDir() string { return filepath.Join(filepath.Dir(m.config), "store") }

// Leader is the server that leads a stream, once there is one.
func (c *Cluster) Leader(stream string) *Member {
	c.tb.Helper()
	var err error
	for deadline := time.Now().Add(wholeWithin); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		var s jetstream.Stream
		s, err = c.js.Stream(ctx, stream)
		cancel()
		if err != nil {
			continue
		}
		for _, m := range c.Servers {
			if cluster := s.CachedInfo().Cluster; cluster != nil && m.Name == cluster.Leader && m.cmd != nil {
				return m
			}
		}
	}
	c.tb.Fatalf("stream %s has no leader within %v: %v", stream, wholeWithin, err)
	return nil
}

// Lead makes a server the leader of a stream.
func (c *Cluster) Lead(m *Member, stream string) {
	c.tb.Helper()
	request := fmt.Appendf(nil, `{"placement": {"preferred": %q}}`, m.Name)
	for deadline := time.Now().Add(wholeWithin); c.Leader(stream) != m; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.tb.Fatalf("%s does not lead stream %s within %v", m.Name, stream, wholeWithin)
		}
		c.nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, request, 2*time.Second) // what became of it is looked at
	}
}
