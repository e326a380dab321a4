package node

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/internal/twin"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

// site is a server with processes on it. Only they are looked at by the race detector: the
// server is a process of its own.
type site struct {
	t      testing.TB
	server *natstest.Member
	nc     *nats.Conn
}

func newSite(t testing.TB) *site {
	t.Helper()
	s := &site{t: t, server: natstest.Apart(t)}
	var err error
	if s.nc, err = nats.Connect(s.server.URL, nats.Timeout(untilMax), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.nc.Close)
	return s
}

// eachLikeCounts is the default configuration, but that no like is in a set: a test that
// counts likes sees what counts twice.
func eachLikeCounts() *config.Config { return twin.EveryTime(config.Default()) }

// config is a process's with some roles, separated by blanks.
func (s *site) config(name, roles string) *config.Config {
	c := eachLikeCounts()
	c.DataDir, c.NATS.URL, c.HTTP.Listen, c.Shards = filepath.Join(s.t.TempDir(), "data"), s.server.URL, "127.0.0.1:0", 4
	c.Node, c.Roles = name, strings.Fields(roles)
	c.Router.LeaseRenew, c.Router.LeaseExpiry = 100*time.Millisecond, 2*time.Second
	return c
}

// start starts a process, which is closed at the end if it was not before.
func (s *site) start(c *config.Config) *Node {
	s.t.Helper()
	n, err := Start(s.t.Context(), c, Options{Logger: slog.New(slog.DiscardHandler), Version: "1.2.3"})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = n.Close() })
	return n
}

func (s *site) stop(n *Node) {
	s.t.Helper()
	if err := n.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// until waits for something that comes by itself.
func (s *site) until(what string, done func() error) {
	s.t.Helper()
	var err error
	for end := time.Now().Add(untilMax); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = done(); err == nil {
			return
		}
	}
	s.t.Fatalf("%s: %v", what, err)
}

func (s *site) ready(n *Node) {
	s.t.Helper()
	s.until(n.name+" ready", n.Ready)
}

// publish stores events and returns the position after the last.
func (s *site) publish(lines ...string) (position string) {
	s.t.Helper()
	js, err := jetstream.New(s.nc)
	if err != nil {
		s.t.Fatal(err)
	}
	ack, err := js.Publish(s.t.Context(), "events.pack", []byte(strings.Join(lines, "\n")))
	if err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprint(ack.Sequence*1024 + uint64(len(lines)-1))
}

// ask returns the reply, with the error's code and words before it.
func (s *site) ask(subject, body string) string {
	reply, err := s.nc.Request("tidemark."+subject, []byte(body), 10*time.Second)
	if err != nil {
		return err.Error()
	}
	if code := reply.Header.Get("Nats-Service-Error-Code"); code != "" {
		return code + " " + reply.Header.Get("Nats-Service-Error") + " " + string(reply.Data)
	}
	return string(reply.Data)
}

func (s *site) asks(subject, body, want string) {
	s.t.Helper()
	s.until(subject+" "+body, func() error {
		if got := s.ask(subject, body); !strings.Contains(got, want) {
			return fmt.Errorf("got %s, want %s", got, want)
		}
		return nil
	})
}

// page is what the HTTP server says.
func (s *site) page(n *Node, path string) string {
	s.t.Helper()
	reply, err := http.Get("http://" + n.HTTPAddress() + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprint(reply.StatusCode) + " " + string(body)
}

// members are those there, by name.
func (s *site) members() map[string]cluster.Member {
	s.t.Helper()
	m, err := bucket.AttachMembers(s.t.Context(), s.nc, 0, bucket.MembersOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer m.Close()
	out := map[string]cluster.Member{}
	for _, state := range m.View().Members {
		out[state.Node] = *state.Member
	}
	return out
}
