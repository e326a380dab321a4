package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

// coldPosts is how many posts are liked: more rows than memory.budget holds.
const coldPosts = 600_000

// coldPost is the i-th of them.
func coldPost(i int) uint64 { return uint64(i+1) * 2654435761 }

// twoNodes are two processes on one server, each with all shards, of which most
// rows are on disk only.
func twoNodes(t *testing.T) (places []place, nodes []*process) {
	t.Helper()
	const budget = "memory: {budget: 34MiB}\ncluster: {replicas: 2}\n"
	a, b := newPlace(t), newPlace(t)
	a.configure(t, budget+"node: a\n")
	first := a.start(t)
	b.configure(t, budget+"node: b\nnats: {url: '"+first.nats+"', nkey: '"+first.key+"', streams: {events: {max_bytes: 1GiB}, deltas: {max_bytes: 1GiB}, deadletter: {max_bytes: 64MiB}}}\n")
	second := b.start(t)
	var text strings.Builder
	for i := range coldPosts {
		fmt.Fprintf(&text, `{"type":"like","actor":8,"post":%d,"author":9}`+"\n", coldPost(i))
	}
	if r := first.feed(text.String(), "import", "-", "--wait"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	// One of them has answered for the last line: where the other is as far, it
	// would too.
	e2e.Until(t, "both have counted all", func() bool { return first.applied() == second.applied() })
	return []place{a, b}, []*process{first, second}
}

// applied is up to where a node counts, as its metrics say it.
func (n *process) applied() string {
	_, text := n.page("/metrics")
	_, after, _ := strings.Cut(text, "\ntidemark_applied_position ")
	position, _, _ := strings.Cut(after, "\n")
	return position
}

// followed waits until every node shows a step that they were told just now, which must be
// within a second. On a machine that has other things to do they are told again, after
// another step, up to followsMax times.
func followed(t *testing.T, nodes []*process, step string) {
	t.Helper()
	took := follow(t, nodes, step)
	for try := 1; took > time.Second && try < followsMax; try++ {
		name, value, _ := strings.Cut(strings.TrimSuffix(step, `"}`), `_step{step="`)
		other := map[string]string{"all": "memory", "memory": "all", "off": "all", "on": "refuse", "refuse": "on"}[value]
		nodes[0].do("degrade", name+"="+other)
		follow(t, nodes, fmt.Sprintf("%s_step{step=%q}", name, other))
		nodes[0].do("degrade", name+"="+value)
		took = follow(t, nodes, step)
	}
	if took > time.Second {
		t.Errorf("%s took %v", step, took)
	}
}

const followsMax = 5

// follow is how long it takes until every node shows a step.
func follow(t *testing.T, nodes []*process, step string) time.Duration {
	t.Helper()
	told := time.Now()
	for _, n := range nodes {
		e2e.Until(t, "node shows "+step, func() bool {
			_, text := n.page("/metrics")
			return strings.Contains(text, "\ntidemark_"+step+" 1\n")
		})
	}
	return time.Since(told)
}

// asked gets posts of a node, which any of the two may answer.
type asked struct {
	Rows     []map[string]any
	Degraded bool
	Missing  []string
}

func ask(t *testing.T, n *process, ids ...string) (a asked, r result) {
	t.Helper()
	r = n.do(append([]string{"get", "post", "--columns", "like", "--json"}, ids...)...)
	if r.out != "" {
		if err := json.Unmarshal([]byte(r.out), &a); err != nil {
			t.Fatalf("%v: %+v", err, r)
		}
	}
	return a, r
}

// "Each step of the degradation ladder can also be set by hand, for all
// nodes at once"; "It is stored in the bucket; all nodes follow within a second, and it
// is undone the same way".
func TestDegrade(t *testing.T) {
	places, nodes := twoNodes(t)
	n := nodes[0]
	some := func(from int) (ids []string) {
		for i := from; i < coldPosts; i += coldPosts / 500 {
			ids = append(ids, fmt.Sprint(coldPost(i)))
		}
		return ids
	}
	whole := func(when string) {
		t.Helper()
		e2e.Until(t, "all is answered "+when, func() bool {
			ids := some(0)
			a, r := ask(t, n, ids...)
			if a.Degraded || r.code != 0 || len(a.Rows) != len(ids) {
				return false
			}
			for _, row := range a.Rows {
				if fmt.Sprint(row["like"]) != "1" {
					t.Fatalf("%s: %v", when, row)
				}
			}
			return true
		})
	}
	whole("at first")
	followed(t, nodes, `reads_step{step="all"}`)

	// docs/degradation.md: "what is only on disk is `missing`"
	n.want("reads=memory writes=on", "degrade", "reads=memory")
	followed(t, nodes, `reads_step{step="memory"}`)
	for _, n := range nodes {
		if status, body := n.page("/readyz"); status != 200 || !strings.Contains(body, "reads are from memory only: for all nodes, by hand") {
			t.Errorf("%d\n%s", status, body)
		}
	}
	missing := 0
	for from := range 10 { // of both; what was asked before is in memory
		ids := some(1 + from)
		a, r := ask(t, n, ids...)
		if !a.Degraded || len(a.Missing) == 0 || r.code != 1 {
			t.Fatalf("%d of %d rows are missing: code %d %s", len(a.Missing), len(ids), r.code, r.err)
		}
		missing += len(a.Missing)
		lacks := map[any]bool{}
		for _, id := range a.Missing {
			lacks[id] = true
		}
		for _, row := range a.Rows {
			if like, has := row["like"]; has == lacks[row["id"]] || has && fmt.Sprint(like) != "1" {
				t.Fatalf("missing %v: %v", lacks[row["id"]], row)
			}
		}
	}
	t.Logf("%d rows are missing", missing)

	// "reads off"
	n.want("reads=off writes=on", "degrade", "reads=off")
	followed(t, nodes, `reads_step{step="off"}`)
	for _, args := range [][]string{{"get", "post", "1"}, {"unread", "7"}, {"feed", "7"}, {"following", "7"}, {"followers", "7"}} {
		n.do(args...).fails(t, 1, "reads are off: switched off for all nodes, by hand; 'tidemark degrade reads=all' ends it")
	}
	for _, args := range [][]string{{"stats"}, {"nodes"}, {"shards"}, {"slowlog"}, {"degrade"}} {
		if r := n.do(args...); r.code != 0 {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if r := n.do("stats"); !strings.Contains(r.out, "step=off") {
		t.Errorf("stats do not show it:\n%s", r.out)
	}
	if r := n.do("read", "7", "all"); r.code != 0 {
		t.Errorf("a read writes: %+v", r)
	}

	// A node that starts meanwhile obeys too.
	if code := nodes[1].stop(os.Interrupt); code != 0 {
		t.Errorf("exit code %d", code)
	}
	nodes[1] = places[1].start(t)
	for range 10 {
		n.do("get", "post", "1").fails(t, 1, "reads are off")
	}
	n.want("reads=all writes=on", "degrade", "reads=all")
	followed(t, nodes, `reads_step{step="all"}`)
	whole("afterwards")
}

// docs/degradation.md: "producers: an error instead of the acknowledgement"
func TestDegradeWrites(t *testing.T) {
	a, b := newPlace(t), newPlace(t)
	a.configure(t, "node: a\nweight: 0\n") // what it held before would be taken back
	first := a.start(t)
	b.configure(t, "node: b\nnats: {url: '"+first.nats+"', nkey: '"+first.key+"', streams: {events: {max_bytes: 1GiB}, deltas: {max_bytes: 1GiB}, deadletter: {max_bytes: 64MiB}}}\n")
	nodes := []*process{first, b.start(t)}
	n := nodes[0]
	e2e.Until(t, "b holds shards", func() bool { return strings.Contains(n.do("shards").out, "b ready") })
	n.want("1", "incr", "42.cntan")

	n.want("reads=all writes=refuse", "degrade", "writes=refuse")
	followed(t, nodes, `writes_step{step="refuse"}`)
	refused := func() {
		t.Helper()
		begun := time.Now()
		e2e.Until(t, "events are refused", func() bool { return n.do("publish", "like", "actor=7", "post=43", "author=9").code == 1 })
		if took := time.Since(begun); took > 10*time.Second { // a publish that is tried again takes half a minute
			t.Errorf("producers are refused after %v", took)
		}
		why := "events are refused for all nodes, by hand"
		n.do("publish", "like", "actor=7", "post=43", "author=9").fails(t, 1, why, "'tidemark degrade writes=on' ends it")
		n.do("incr", "42.cntan").fails(t, 1, why, "nothing was stored")
		n.feed(`{"type":"like","actor":7,"post":42,"author":9}`+"\n", "import", "-").fails(t, 1, why, "run it again to go on")
		n.do("read", "7", "all").fails(t, 1, "writes are refused: for all nodes, by hand; 'tidemark degrade writes=on' ends it; nothing was stored")
		for _, n := range nodes {
			if status, body := n.page("/readyz"); status != 200 || !strings.Contains(body, "writes are refused: for all nodes, by hand") {
				t.Errorf("%d\n%s", status, body)
			}
		}
	}
	refused()
	likes := n.do("get", "43.cntan").out // what was stored before it was refused counts
	n.want("1", "get", "42.cntan")

	// "reads partial": by itself, when nobody answers for a shard any more.
	nodes[1].stop(os.Kill)
	e2e.Until(t, "reads are partial", func() bool {
		_, metrics := n.page("/metrics")
		_, ready := n.page("/readyz")
		return strings.Contains(metrics, `tidemark_reads_step{step="partial"} 1`) && strings.Contains(ready, "reads are partial: no node answers for")
	})

	// It stays while nodes and the server are killed and start again.
	n.stop(os.Kill)
	a.configure(t, "node: a\nweight: 0\nnats: {listen: '"+strings.TrimPrefix(n.nats, "nats://")+"', streams: {events: {max_bytes: 1GiB}, deltas: {max_bytes: 1GiB}, deadletter: {max_bytes: 64MiB}}}\n")
	n = a.start(t)
	nodes = []*process{n, b.start(t)}
	e2e.Until(t, "the nodes are ready", func() bool {
		status, _ := n.page("/readyz")
		other, _ := nodes[1].page("/readyz")
		return status == 200 && other == 200 && n.do("get", "42.cntan").out == "1\n" && n.do("get", "43.cntan").code == 0
	})
	refused()

	n.want("reads=all writes=on", "degrade", "writes=on")
	followed(t, nodes, `writes_step{step="on"}`)
	e2e.Until(t, "events count again", func() bool { return n.do("incr", "42.cntan").code == 0 })
	n.want("2", "get", "42.cntan")
	n.want(strings.TrimSpace(likes), "get", "43.cntan")
	if status, body := n.page("/readyz"); status != 200 || strings.Contains(body, "refused") {
		t.Errorf("%d\n%s", status, body)
	}
}
