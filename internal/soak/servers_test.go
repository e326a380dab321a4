package soak

import (
	"flag"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
)

var serversFlag = flag.Int("servers", 0, "NATS servers: 1, or 3 that form a cluster and keep three copies of each stream; 0 draws it in runs of a minute and more")

// serversPrefix begins the names of kinds for which a cluster of servers is needed.
const serversPrefix = "servers: "

// drawServers uses chance in any case, so that a seed stays the same run.
func (s *soak) drawServers() int {
	drawn := 1 + 2*s.random.IntN(2)
	switch {
	case *serversFlag > 0:
		return *serversFlag
	case *soakFlag < time.Minute:
		return 1
	}
	return drawn
}

// hasServersFor says whether the run has the servers that a kind of fault needs. A
// power cut takes the tail of a stream where there is one copy.
func (s *soak) hasServersFor(k kind) bool {
	if s.servers == 1 {
		return !strings.Contains(k.name, serversPrefix)
	}
	return !strings.Contains(k.name, "NATS server") && !strings.HasPrefix(k.name, "power cut")
}

func (s *soak) startServers() {
	s.Helper()
	if s.servers == 1 {
		s.server = natstest.Apart(s)
		return
	}
	s.cluster = natstest.NewCluster(s)
}

// endServer ends the only server.
func (s *soak) endServer(signal syscall.Signal) {
	s.held = true
	if signal == syscall.SIGKILL {
		s.server.Kill()
		return
	}
	s.server.Stop()
}

// startServer starts the only server again, and returns once clients are served.
func (s *soak) startServer() {
	s.Helper()
	s.server.Start()
	served := func() bool {
		ctx, cancel := soon()
		defer cancel()
		_, err := s.js.AccountInfo(ctx)
		return err == nil
	}
	if !s.wait(served, patience) {
		s.fail("the NATS server does not start within %v", patience)
	}
	s.held = false
}

func (s *soak) url() string {
	if s.cluster != nil {
		return s.cluster.URL()
	}
	return s.server.URL
}

// natsSettings are further keys of nats: in the nodes' configurations.
func (s *soak) natsSettings() string {
	if s.cluster != nil {
		return "replicas: 3"
	}
	return ""
}

// everyServer is each process of NATS.
func (s *soak) everyServer() []*natstest.Member {
	if s.cluster != nil {
		return s.cluster.Servers
	}
	return []*natstest.Member{s.server}
}

// noServer says that a fault has the only server in hand. Of a cluster two are there.
func (s *soak) noServer() bool { return s.held }

// serversAlive fails when a server has ended that nobody told to.
func (s *soak) serversAlive() {
	s.Helper()
	for _, m := range s.everyServer() {
		if m.Ended() {
			s.fail("NATS server %s ended by itself", m.Name)
		}
	}
}

// member takes a server of the cluster in hand; nil: another fault has one.
func (s *soak) member() *natstest.Member {
	if s.unwell != nil {
		return nil
	}
	s.unwell = s.cluster.Servers[s.random.IntN(len(s.cluster.Servers))]
	return s.unwell
}

// cutServer splits the cluster: one server, with the clients that it has, and the
// other two. Its clients hear nothing of what the majority stores.
func (s *soak) cutServer() *fault {
	m := s.member()
	if m == nil {
		return nil
	}
	s.cluster.Cut(m)
	return &fault{what: m.Name, hold: s.between(2*time.Second, s.longest(30*time.Second)), end: func() {
		s.cluster.Mend(m)
		s.unwell = nil
	}}
}

func (s *soak) killMember() *fault {
	m := s.member()
	if m == nil {
		return nil
	}
	m.Kill()
	return &fault{what: m.Name, hold: s.between(0, 5*time.Second), end: func() {
		m.Start()
		s.unwell = nil
	}}
}

func (s *soak) stallMember() *fault {
	m := s.member()
	if m == nil {
		return nil
	}
	m.Signal(syscall.SIGSTOP)
	return &fault{what: m.Name, hold: s.between(500*time.Millisecond, 12*time.Second), end: func() {
		m.Signal(syscall.SIGCONT)
		s.unwell = nil
	}}
}

// longest is how long a fault lasts at most in a run of this length.
func (s *soak) longest(most time.Duration) time.Duration {
	const least, share = 12 * time.Second, 8
	return max(least, min(most, *soakFlag/share))
}

func TestMain(m *testing.M) {
	code := m.Run()
	e2e.Clean()
	natstest.Clean()
	os.Exit(code)
}
