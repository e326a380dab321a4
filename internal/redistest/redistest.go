// Package redistest gives tests a real redis-server: on a free port, in memory
// alone, gone when the test ends.
package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

// Server is one, with a client of it. It may be killed, and started again at the
// same address, empty.
type Server struct {
	*redis.Client
	tb      testing.TB
	path    string // of the program
	address string
	cmd     *exec.Cmd
}

// New starts one. Without the program the test is skipped, and fails where CI says
// that it must be there.
func New(tb testing.TB) *Server {
	tb.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		const missing = "no redis-server in PATH: apt install redis-server"
		if os.Getenv("CI") == "true" {
			tb.Fatal(missing)
		}
		tb.Skip(missing)
	}
	s := &Server{tb: tb, path: path, address: fmt.Sprintf("127.0.0.1:%d", e2e.FreePort(tb))}
	s.Client = redis.NewClient(&redis.Options{Addr: s.address})
	tb.Cleanup(func() {
		s.Client.Close()
		s.Kill()
	})
	s.Start()
	return s
}

// within bounds the start of an empty server.
const within = 10 * time.Second

// Start starts one that does not run, and returns once it answers.
func (s *Server) Start() {
	s.tb.Helper()
	_, port, err := net.SplitHostPort(s.address)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.cmd = exec.Command(s.path, "--port", port, "--bind", "127.0.0.1", "--dir", s.tb.TempDir(), "--save", "", "--appendonly", "no")
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		s.tb.Fatal(err)
	}
	for end := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		err := s.Ping(context.Background()).Err()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			s.tb.Fatalf("redis-server does not answer within %v: %v", within, err)
		}
	}
}

// Kill is kill -9, and waits for the end.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// URL is what "--from-redis" takes.
func (s *Server) URL() string { return fmt.Sprintf("redis://%s/0", s.address) }

// Fill sets the keys [from, to), a pipeline of 1,000 at a time.
func (s *Server) Fill(from, to int, set func(p redis.Pipeliner, i int)) {
	s.tb.Helper()
	for from < to {
		p := s.Pipeline()
		for end := min(from+1000, to); from < end; from++ {
			set(p, from)
		}
		if _, err := p.Exec(context.Background()); err != nil {
			s.tb.Fatal(err)
		}
	}
}
