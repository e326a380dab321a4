package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
)

// member is a process whose embedded server is one of three.
type member struct {
	place
	http, nats string
}

func clusterMembers(t *testing.T) []member {
	t.Helper()
	listen := []string{freeAddress(t), freeAddress(t), freeAddress(t)}
	var all []member
	for i, own := range listen {
		m := member{newPlace(t), freeAddress(t), freeAddress(t)}
		var routes []string
		for _, other := range listen {
			if other != own {
				routes = append(routes, "'nats://"+other+"'")
			}
		}
		m.configure(t, fmt.Sprintf("node: n%d\nhttp: {listen: '%s'}\ncluster: {replicas: 3}\nnats:\n  listen: '%s'\n  replicas: 3\n"+
			"  cluster: {listen: '%s', routes: [%s]}\n  %s\n", i+1, m.http, m.nats, own, strings.Join(routes, ", "), smallStreams))
		all = append(all, m)
	}
	return all
}

func (m *member) look(path string) (status int, body string) {
	r, err := http.Get("http://" + m.http + path)
	if err != nil {
		return 0, ""
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(b)
}

// like stores a like of post 42, as a producer does who tries again.
func like(t *testing.T, n *process, actor int) {
	t.Helper()
	event := []string{"publish", "like", fmt.Sprintf("actor=%d", actor), "post=42", "author=9", "--id", fmt.Sprint("like", actor)}
	e2e.Until(t, "the like is stored", func() bool { return n.do(event...).code == 0 })
}

func likes(t *testing.T, n *process, want string) {
	t.Helper()
	e2e.Until(t, want+" likes are counted", func() bool { r := n.do("get", "42.cntan"); return r.code == 0 && r.out == want+"\n" })
}

// comesToRefuse waits for a command to fail with these words. A server that led EVENTS
// takes a while to see that it is alone, and says nothing until then.
func comesToRefuse(t *testing.T, n *process, words string, command ...string) {
	t.Helper()
	e2e.Until(t, strings.Join(command, " ")+" says "+words, func() bool {
		r := n.do(command...)
		return r.code == 1 && strings.Contains(r.out+r.err, words)
	})
}

// "Three `tidemark run` with embedded servers find each other, form a
// NATS cluster and keep streams with three copies." Without a majority the one that is left says so.
func TestThreeProcessesAreACluster(t *testing.T) {
	natstest.Long(t)
	t.Parallel()
	m := clusterMembers(t)
	// The first lives, is not ready, and says for whom it waits. Stopped meanwhile, it stops in
	// order, and starts again under the same name.
	waits := func() *process {
		t.Helper()
		a := m[0].spawn(t)
		e2e.Until(t, "the first says for whom it waits", func() bool {
			status, body := m[0].look("/readyz")
			return status == 503 && strings.Contains(body, "start: the NATS cluster has no leader: no other server is there")
		})
		return a
	}
	a := waits()
	if status, body := m[0].look("/healthz"); status != 200 || body != "ok\n" {
		t.Errorf("/healthz of one that waits: %d %s", status, body)
	}
	if code := a.stop(syscall.SIGTERM); code != 0 || !a.log.Has("stopped before it had started") ||
		!a.log.Has(`"msg":"tidemark: waiting for other servers of the NATS cluster"`) {
		t.Errorf("exit code %d:\n%s", code, a.log.String())
	}
	a = waits()
	n := []*process{a, m[1].spawn(t), m[2].spawn(t)}
	for _, n := range n {
		n.await()
	}
	like(t, n[0], 1)
	for _, n := range n {
		likes(t, n, "1")
		if n.log.Has(`"level":"ERROR"`) {
			t.Errorf("a first start that went well has an error in its log:\n%s", n.log.String())
		}
	}

	// One is killed, when all hold everything, and comes back with what it had.
	const shards = 4 // newPlace sets it
	e2e.Until(t, "every shard is with all three", func() bool {
		return strings.Count(strings.ReplaceAll(n[0].do("shards", "--json").out, " ", ""), `"state":"ready"`) == 3*shards
	})
	n[0].stop(os.Kill)
	like(t, n[1], 2)
	likes(t, n[2], "2")
	n[0] = m[0].spawn(t)
	n[0].await()
	likes(t, n[0], "2")
	e2e.Until(t, "ready again", func() bool { status, _ := m[0].look("/readyz"); return status == 200 })

	// Two are killed. The one that is left answers still, and says that it has heard of nobody.
	for i := 1; i < 3; i++ {
		n[i].stop(os.Kill)
	}
	comesToRefuse(t, n[0], "nothing was stored: EVENTS has no leader now", "publish", "like", "actor=3", "post=42", "author=9")
	comesToRefuse(t, n[0], "nothing was stored, ask again later", "read", "7", "feed")
	comesToRefuse(t, n[0], "the node that answers has heard of no node", "nodes")
	comesToRefuse(t, n[0], "the node that answers has heard of no node", "shards")
	e2e.Until(t, "/readyz says that nothing is stored", func() bool { // for ten seconds after an event was refused
		n[0].do("read", "7", "feed")
		_, body := m[0].look("/readyz")
		return strings.Contains(body, "the log takes no events now")
	})
	e2e.Until(t, "the log says that nobody hears of it", func() bool { return n[0].log.Has("the members do not hear of this node") })
	if n[0].log.Has("by another process") {
		t.Error("nobody else writes the key")
	}
	for i := 1; i < 3; i++ {
		n[i] = m[i].spawn(t)
	}
	for i := 1; i < 3; i++ {
		n[i].await()
	}
	e2e.Until(t, "the nodes are heard of again", func() bool { return strings.HasPrefix(n[0].do("nodes").out, "NODE") })

	// All stop, and start.
	for _, n := range n {
		if code := n.stop(syscall.SIGTERM); code != 0 {
			t.Errorf("exit code %d:\n%s", code, n.log.String())
		}
	}
	for i := range m {
		n[i] = m[i].spawn(t)
	}
	for _, n := range n {
		n.await()
		likes(t, n, "2")
	}
}
