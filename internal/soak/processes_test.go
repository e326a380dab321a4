package soak

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/pipeline"
)

// node is one tidemark.
type node struct {
	*e2e.Process
	name string
	zone string
	data string    // its data directory
	thin bool      // it only answers
	disk *e2e.Disk // nil: the machine's
	held bool      // a fault has it in hand
	down bool      // and it does not run
}

func (n *node) String() string { return "node " + n.name }

// running says whether it may be asked.
func (n *node) running() bool { return !n.held && n.Ended() == nil }

// asked bounds questions to a node's HTTP: a stopped process takes them and
// never answers.
var asked = http.Client{Timeout: 2 * time.Second}

// metric is one of the node's figures.
func (n *node) metric(name string) (float64, error) {
	r, err := asked.Get(n.HTTP + "/metrics")
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "tidemark_"+name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("%v has no metric %s", n, name)
}

func (n *node) routes() bool {
	active, err := n.metric("router_active")
	return err == nil && active == 1
}

// at is nil when the node's answers reach a message.
func (n *node) at(end uint64) error {
	at, err := n.metric("applied_position")
	if err != nil {
		return err
	}
	if p := pipeline.Position(at); p < pipeline.EndOf(end) {
		return fmt.Errorf("%v is at position %d, in message %d, and not at %d", n, p, p.Sequence(), end)
	}
	return nil
}

// healthy says that it serves HTTP.
func (n *node) healthy() bool {
	r, err := asked.Get(n.HTTP + "/healthz")
	if err != nil {
		return false
	}
	r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// readiness is what /readyz says.
func (n *node) readiness() string {
	r, err := asked.Get(n.HTTP + "/readyz")
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	text := make([]byte, 2000)
	m, _ := r.Body.Read(text)
	return strings.TrimSpace(string(text[:m]))
}

// readiness is what every node says.
func (s *soak) readiness() (text string) {
	for _, n := range s.everyone() {
		text += fmt.Sprintf("/readyz of %v: %s\n", n, n.readiness())
	}
	return text
}

// startPause is what a service manager waits before it starts again what has
// ended.
const startPause = 300 * time.Millisecond

// startWithin bounds a start, the tries that were refused included.
const startWithin = 90 * time.Second

// refusedFor is how long a node is started in vain while there is no server.
const refusedFor = 2 * time.Second

// up starts a node as a service manager does: again when it ends, as it does
// when the server is not there yet. It returns once the node answers. Where a
// fault has the server in hand the node stays down after a few tries.
func (s *soak) up(n *node) {
	s.Helper()
	within := startWithin
	if s.noServer() {
		within = refusedFor
	}
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(startPause) {
		n.Spawn()
		for n.Ended() == nil && time.Now().Before(deadline) {
			if n.healthy() {
				n.down = false
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		s.report.refused++
	}
	if !s.noServer() {
		s.fail("%v does not start within %v: it prints\n%s", n, startWithin, s.last(n))
	}
	n.Kill()
}

func (n *node) kill() {
	n.down = true
	n.Kill()
}

// stop is SIGTERM; the node must end in order.
func (s *soak) stop(n *node) {
	s.Helper()
	n.down = true
	if state := n.Stop(); s.inOrder(state) {
		return
	}
	s.fail("%v was told to stop and ended with %v:\n%s", n, n.Ended(), s.last(n))
}

// inOrder: a node that cannot reach its server, or write its last checkpoint,
// says so and ends with 1.
func (s *soak) inOrder(state *os.ProcessState) bool {
	return state.ExitCode() == 0 || state.ExitCode() == 1 && (s.noServer() || s.diskIsFull())
}

func (s *soak) diskIsFull() bool {
	for _, n := range s.nodes {
		if n.disk != nil && n.disk.Full() {
			return true
		}
	}
	return false
}

// alive fails when a process has ended that nobody told to.
func (s *soak) alive() {
	s.Helper()
	for _, n := range s.everyone() {
		if state := n.Ended(); state != nil && !n.down {
			s.fail("%v ended by itself, %v, and printed:\n%s", n, state, s.last(n))
		}
	}
	s.serversAlive()
}

// router is the node that routes, of those that can be asked, but for some; nil:
// none now.
func (s *soak) router(but ...*node) *node {
	for _, n := range s.nodes {
		if !slices.Contains(but, n) && n.running() && n.routes() {
			return n
		}
	}
	return nil
}
