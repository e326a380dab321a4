package nodetest

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
	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

// Site is a server with processes on it. Only they are looked at by the race detector: the
// server is a process of its own.
type Site[N Process] struct {
	T      testing.TB
	Server *natstest.Member
	NC     *nats.Conn

	begin Begin[N]
}

// NewSite is a site without processes.
func NewSite[N Process](t testing.TB, begin Begin[N]) *Site[N] {
	t.Helper()
	s := &Site[N]{T: t, Server: natstest.Apart(t), begin: begin}
	var err error
	if s.NC, err = nats.Connect(s.Server.URL, nats.Timeout(e2e.Patience), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.NC.Close)
	return s
}

// SiteOn is one of a server that is there, by a connection alone: only what goes by that can
// be used.
func SiteOn[N Process](t testing.TB, nc *nats.Conn, begin Begin[N]) *Site[N] {
	return &Site[N]{T: t, NC: nc, begin: begin}
}

// Config is a process's with some roles, separated by blanks.
func (s *Site[N]) Config(name, roles string) *config.Config {
	c := EachLikeCounts()
	c.DataDir, c.NATS.URL, c.HTTP.Listen, c.Shards = filepath.Join(s.T.TempDir(), "data"), s.Server.URL, "127.0.0.1:0", 4
	c.Node, c.Roles = name, strings.Fields(roles)
	c.Router.LeaseRenew, c.Router.LeaseExpiry = 100*time.Millisecond, 2*time.Second
	return c
}

// Start starts a process, which is closed at the end if it was not before.
func (s *Site[N]) Start(c *config.Config) N {
	s.T.Helper()
	n, err := s.begin(s.T.Context(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() { _ = n.Close() })
	return n
}

// Stop closes a process.
func (s *Site[N]) Stop(n N) {
	s.T.Helper()
	if err := n.Close(); err != nil {
		s.T.Fatal(err)
	}
}

// Until waits for something that comes by itself.
func (s *Site[N]) Until(what string, done func() error) {
	s.T.Helper()
	var err error
	for end := time.Now().Add(e2e.Patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = done(); err == nil {
			return
		}
	}
	s.T.Fatalf("%s: %v", what, err)
}

// Ready waits until a process is.
func (s *Site[N]) Ready(n N) {
	s.T.Helper()
	s.Until("ready", n.Ready)
}

// Publish stores events and returns the position after the last.
func (s *Site[N]) Publish(lines ...string) (position string) {
	s.T.Helper()
	js, err := jetstream.New(s.NC)
	if err != nil {
		s.T.Fatal(err)
	}
	ack, err := js.Publish(s.T.Context(), "events.pack", []byte(strings.Join(lines, "\n")))
	if err != nil {
		s.T.Fatal(err)
	}
	return fmt.Sprint(ack.Sequence*1024 + uint64(len(lines)-1))
}

// Ask returns the reply, with the error's code and words before it.
func (s *Site[N]) Ask(subject, body string) string {
	reply, err := s.NC.Request("tidemark."+subject, []byte(body), 10*time.Second)
	if err != nil {
		return err.Error()
	}
	if code := reply.Header.Get("Nats-Service-Error-Code"); code != "" {
		return code + " " + reply.Header.Get("Nats-Service-Error") + " " + string(reply.Data)
	}
	return string(reply.Data)
}

// Asks waits until the reply has a text.
func (s *Site[N]) Asks(subject, body, want string) {
	s.T.Helper()
	s.Until(subject+" "+body, func() error {
		if got := s.Ask(subject, body); !strings.Contains(got, want) {
			return fmt.Errorf("got %s, want %s", got, want)
		}
		return nil
	})
}

// Page is what the HTTP server says.
func (s *Site[N]) Page(n N, path string) string {
	s.T.Helper()
	reply, err := http.Get("http://" + n.HTTPAddress() + path)
	if err != nil {
		s.T.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		s.T.Fatal(err)
	}
	return fmt.Sprint(reply.StatusCode) + " " + string(body)
}

// Members are those there, by name.
func (s *Site[N]) Members() map[string]cluster.Member {
	s.T.Helper()
	m, err := bucket.AttachMembers(s.T.Context(), s.NC, 0, bucket.MembersOptions{})
	if err != nil {
		s.T.Fatal(err)
	}
	defer m.Close()
	out := map[string]cluster.Member{}
	for _, state := range m.View().Members {
		out[state.Node] = *state.Member
	}
	return out
}
