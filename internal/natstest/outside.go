package natstest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

// Outside is a server as an operator would run it, within the test's process.
// It may be stopped, and started again with what it has on disk.
type Outside struct {
	tb     testing.TB
	dir    string
	fixed  string
	config string
	ns     *server.Server // nil: it does not run
}

// NewOutside starts one with a configuration of nats-server's, to which a free
// port and JetStream are added.
func NewOutside(tb testing.TB, config string) *Outside {
	tb.Helper()
	dir := tb.TempDir()
	s := &Outside{tb: tb, dir: dir, fixed: fmt.Sprintf(
		"server_name: outside\nlisten: \"127.0.0.1:%d\"\nno_fast_producer_stall: true\njetstream {store_dir: %q, max_mem: 64MB, max_file: 1TB}\n",
		e2e.FreePort(tb), filepath.Join(dir, "store"))}
	s.Start(config)
	tb.Cleanup(s.Stop)
	return s
}

// Restart starts the server as it was.
func (s *Outside) Restart() {
	s.tb.Helper()
	s.Start(s.config)
}

// Start starts the server, perhaps with another configuration than before.
func (s *Outside) Start(config string) {
	s.tb.Helper()
	s.config = config
	file := filepath.Join(s.dir, "nats.conf")
	if err := os.WriteFile(file, []byte(s.fixed+config), 0o600); err != nil {
		s.tb.Fatal(err)
	}
	o, err := server.ProcessConfigFile(file)
	if err != nil {
		s.tb.Fatal(err)
	}
	o.NoSigs, o.NoLog = true, true
	if s.ns, err = server.NewServer(o); err != nil {
		s.tb.Fatal(err)
	}
	s.ns.Start()
	if !s.ns.ReadyForConnections(time.Minute) {
		s.tb.Fatal("the server is not ready within a minute")
	}
}

// Stop stops it in order.
func (s *Outside) Stop() {
	if s.ns != nil {
		s.ns.Shutdown()
		s.ns.WaitForShutdown()
		s.ns = nil
	}
}

// URL is what clients connect to.
func (s *Outside) URL() string { return s.ns.ClientURL() }
