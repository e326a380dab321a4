package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/query"
)

// member is a process whose embedded server is one of three.
type member struct {
	place
	http, nats string
}

func clusterMembers(t *testing.T, settings ...string) []member {
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
		m.configure(t, fmt.Sprintf("node: n%d\nhttp: {listen: '%s'}\nnats:\n  listen: '%s'\n  replicas: 3\n  cluster: {listen: '%s', routes: [%s]}\n"+
			"  streams: {events: {max_bytes: 1GiB}, deltas: {max_bytes: 1GiB}, deadletter: {max_bytes: 64MiB}}\n%s",
			i+1, m.http, m.nats, own, strings.Join(routes, ", "), strings.Join(settings, "")))
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
	var r result
	for end := time.Now().Add(e2e.Patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if r = n.do("publish", "like", fmt.Sprintf("actor=%d", actor), "post=42", "author=9", "--id", fmt.Sprint("like", actor)); r.code == 0 {
			return
		}
	}
	t.Fatalf("not stored: %+v", r)
}

func likes(t *testing.T, n *process, want string) {
	t.Helper()
	var r result
	for end := time.Now().Add(e2e.Patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if r = n.do("get", "42.cntan"); r.code == 0 && r.out == want+"\n" {
			return
		}
	}
	t.Fatalf("the likes are %+v, want %s", r, want)
}

// comesToRefuse waits for a command to fail with these words. A server that led EVENTS
// takes a while to see that it is alone, and says nothing until then.
func comesToRefuse(t *testing.T, n *process, words string, command ...string) {
	t.Helper()
	var r result
	for end := time.Now().Add(e2e.Patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if r = n.do(command...); r.code == 1 && strings.Contains(r.err, words) {
			return
		}
	}
	t.Errorf("%v did not come to say %q: %+v", command, words, r)
}

// "Three `tidemark run` with embedded servers find each other, form a
// NATS cluster and keep streams with three copies."
func TestThreeProcessesAreACluster(t *testing.T) {
	t.Parallel()
	m := clusterMembers(t, "cluster: {replicas: 3}\n")
	a := m[0].spawn(t)
	// The first lives, is not ready, and says for whom it waits.
	e2e.Until(t, "the first says for whom it waits", func() bool {
		status, body := m[0].look("/readyz")
		return status == 503 && strings.Contains(body, "start: the NATS cluster has no leader: no other server is there")
	})
	if status, body := m[0].look("/healthz"); status != 200 || body != "ok\n" {
		t.Errorf("/healthz of one that waits: %d %s", status, body)
	}
	if log := a.log.String(); !strings.Contains(log, `"msg":"tidemark: waiting for other servers of the NATS cluster"`) {
		t.Errorf("the log of one that waits:\n%s", log)
	}
	b, c := m[1].spawn(t), m[2].spawn(t)
	for _, n := range []*process{a, b, c} {
		n.await()
	}
	like(t, a, 1)
	for _, n := range []*process{a, b, c} {
		likes(t, n, "1")
	}

	// One is killed, when all hold everything, and comes back with what it had.
	const shards = 4 // newPlace sets it
	var held string
	for end := time.Now().Add(e2e.Patience); strings.Count(held, `"state":"ready"`) != 3*shards; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not every shard is with all three: %s", held)
		}
		held = strings.ReplaceAll(a.do("shards", "--json").out, `"state": "`, `"state":"`)
	}
	a.stop(os.Kill)
	like(t, b, 2)
	likes(t, c, "2")
	a = m[0].spawn(t)
	a.await()
	likes(t, a, "2")
	e2e.Until(t, "ready again", func() bool { status, _ := m[0].look("/readyz"); return status == 200 })

	// All stop, and start.
	for _, n := range []*process{a, b, c} {
		if code := n.stop(syscall.SIGTERM); code != 0 {
			t.Errorf("exit code %d:\n%s", code, n.log.String())
		}
	}
	var again []*process
	for i := range m {
		again = append(again, m[i].spawn(t))
	}
	for _, n := range again {
		n.await()
		likes(t, n, "2")
	}
}

// Two of three are killed at once and start at once, later: while the cluster and its
// streams have no leader, a start waits, wherever it has come.
func TestMajorityIsKilled(t *testing.T) {
	t.Parallel()
	m := clusterMembers(t)
	var n []*process
	for i := range m {
		n = append(n, m[i].spawn(t))
	}
	for i := range n {
		n[i].await()
	}
	e2e.Until(t, "it has heard of the holders", func() bool {
		r := n[0].do("shards")
		return r.code == 0 && !strings.Contains(r.out, "no shard has a holder yet")
	})
	for i := 1; i < 3; i++ {
		n[i].stop(os.Kill)
	}
	since := time.Now()
	n[0].showsOnlyWhatItHears(t, since)
	time.Sleep(time.Until(since.Add(11 * time.Second))) // by then what led sees no majority, and leads no more
	// The one that is left says so, whoever asks. It answers still.
	comesToRefuse(t, n[0], "nothing was stored: EVENTS has no leader now", "publish", "like", "actor=1", "post=42", "author=9")
	comesToRefuse(t, n[0], "nothing was stored, ask again later", "read", "7", "feed")
	for _, args := range [][]string{{"nodes"}, {"shards"}} {
		if r := n[0].do(args...); r.code != 1 || !strings.HasPrefix(r.out, "For ") || !strings.Contains(r.out, "the node that answers has heard of no node") {
			t.Errorf("%s without a majority: %+v", args, r)
		}
	}
	if _, body := m[0].look("/readyz"); !strings.Contains(body, "nothing has been heard of any of them") {
		t.Errorf("/readyz without a majority:\n%s", body)
	}
	told, most := 0, 3+int(time.Since(since)/(10*time.Second))
	for line := range strings.Lines(n[0].log.String()) {
		if !strings.Contains(line, "the members do not hear of this node") {
			continue
		}
		if told++; strings.Contains(line, "by another process") {
			t.Errorf("nobody else writes the key: %s", line)
		}
	}
	if told == 0 || told > most {
		t.Errorf("%d times the log says that nobody hears of this node; 1 to %d are enough", told, most)
	}
	for i := 1; i < 3; i++ {
		n[i] = m[i].spawn(t)
	}
	for i := 1; i < 3; i++ {
		n[i].await()
	}
	e2e.Until(t, "the nodes are heard of again", func() bool { return strings.HasPrefix(n[0].do("nodes").out, "NODE") })
}

// showsOnlyWhatItHears looks at what the one node that is left of three reports, for
// 8 s. What is shown 3 s after the others were killed was heard more than 2 s ago, if it
// is theirs.
func (p *process) showsOnlyWhatItHears(t *testing.T, killed time.Time) {
	t.Helper()
	silent := 0
	for time.Since(killed) < 8*time.Second {
		asked := time.Since(killed)
		nodes, shards := p.do("nodes", "--json"), p.do("shards", "--json")
		if asked < 3*time.Second {
			continue
		}
		var n query.Nodes
		if err := json.Unmarshal([]byte(nodes.out), &n); err != nil {
			t.Fatalf("%v: %+v", err, nodes)
		}
		for _, m := range n.Nodes {
			if m.Node != "n1" && (m.State != query.NodeAway || m.SilentMS < 2000) || m.Routes || m.LagMS != nil {
				t.Fatalf("%v after two of three were killed: %s", asked, nodes.out)
			}
		}
		if strings.Contains(shards.out, `"node":"n2","state":"ready"`) || strings.Contains(shards.out, `"node":"n3","state":"ready"`) {
			t.Fatalf("%v after two of three were killed: %s", asked, shards.out)
		}
		if nodes.code != 1 || shards.code != 1 || n.SilentMS < 2000 {
			t.Fatalf("%v after two of three were killed: exit codes %d and %d, silent_ms %d", asked, nodes.code, shards.code, n.SilentMS)
		}
		silent++
	}
	if silent == 0 {
		t.Error("the node has not answered for 5 s")
	}
}

// Who is stopped while it waits for others stops in order, and starts again
// under the same name.
func TestStopWhileWaitingForTheCluster(t *testing.T) {
	m := clusterMembers(t)[0]
	for range 2 {
		n := m.spawn(t)
		e2e.Until(t, "it waits", func() bool { status, _ := m.look("/readyz"); return status == 503 })
		if code := n.stop(syscall.SIGTERM); code != 0 || !strings.Contains(n.log.String(), "stopped before it had started") {
			t.Errorf("exit code %d:\n%s", code, n.log.String())
		}
	}
}

// A directory belongs to one name, and to one kind of server.
func TestDirectoryOfAnother(t *testing.T) {
	p := newPlace(t)
	p.configure(t, "node: a\n")
	p.start(t).stop(syscall.SIGTERM)
	p.configure(t, "node: b\n")
	tidemark(t, "run", "--config", p.config).fails(t, 1, "was made as node a", "set node: a")
	m := clusterMembers(t)[0]
	m.data = p.data
	text, err := os.ReadFile(m.config)
	if err != nil {
		t.Fatal(err)
	}
	joined := strings.ReplaceAll(strings.ReplaceAll(string(text), "node: n1", "node: a"), m.dir+"/data", p.data)
	if err := os.WriteFile(m.config, []byte(joined), 0o600); err != nil {
		t.Fatal(err)
	}
	tidemark(t, "run", "--config", m.config).fails(t, 1, "were stored by a server on its own", "start without nats.cluster")
	p.configure(t, "")
	n := p.start(t) // nothing is lost, and the name is the directory's
	if info := n.do("slowlog").out; !strings.HasPrefix(info, "a since ") {
		t.Errorf("%s", info)
	}
}
