package snapshot

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a redis-server of the test's own, in memory alone.
type server struct {
	testing.TB
	*redis.Client
	port int
	cmd  *exec.Cmd
}

func newServer(t testing.TB) *server {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no redis-server in PATH: apt install redis-server")
		}
		t.Skip("no redis-server in PATH: apt install redis-server")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{TB: t, port: l.Addr().(*net.TCPAddr).Port}
	l.Close()
	s.start(path)
	s.Client = redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", s.port)})
	t.Cleanup(func() { s.Client.Close(); s.kill() })
	s.answers()
	return s
}

func (s *server) start(path string) {
	s.cmd = exec.Command(path, "--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.TempDir(), "--save", "", "--appendonly", "no")
	if err := s.cmd.Start(); err != nil {
		s.Fatal(err)
	}
}

// restart is another process at the same address, empty.
func (s *server) restart() {
	s.kill()
	s.start(s.cmd.Path)
	s.answers()
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func (s *server) answers() {
	s.Helper()
	for end := time.Now().Add(10 * time.Second); s.Ping(context.Background()).Err() != nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatal("redis-server does not start")
		}
	}
}

func (s *server) url() string { return fmt.Sprintf("redis://127.0.0.1:%d/0", s.port) }

// fill sets keys, a pipeline of 1,000 at a time.
func (s *server) fill(from, to int, set func(p redis.Pipeliner, i int)) {
	s.Helper()
	for from < to {
		p := s.Pipeline()
		for end := min(from+1000, to); from < end; from++ {
			set(p, from)
		}
		if _, err := p.Exec(context.Background()); err != nil {
			s.Fatal(err)
		}
	}
}
