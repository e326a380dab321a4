package main

import (
	"os"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

// Two processes on one server: docs/degradation.md: "Each step of the degradation ladder can also be
// set by hand, for all nodes at once"; "It is stored in the bucket; all nodes follow within a second,
// and it is undone the same way". What is answered meanwhile is held by internal/node.
// docs/metrics.md: "`tidemark stats --node b` shows those of node b", whoever answers requests.
func TestTwoNodes(t *testing.T) {
	t.Parallel()
	a, b := newPlace(t), newPlace(t)
	a.configure(t, "node: a\n")
	n := a.start(t)
	b.configure(t, "node: b\nroles: [hold]\nnats: {url: '"+n.nats+"', nkey: '"+n.key+"', "+smallStreams+"}\n")
	nodes := []*process{n, b.start(t)}
	shows := func(step, ready string) {
		t.Helper()
		for _, n := range nodes {
			e2e.Until(t, "a node shows "+step, func() bool {
				_, figures := n.page("/metrics")
				return strings.Contains(figures, "\ntidemark_"+step+" 1\n")
			})
			e2e.Until(t, "a node says that "+ready, func() bool {
				status, body := n.page("/readyz")
				return status == 200 && strings.Contains(body, ready)
			})
		}
	}
	shows(`reads_step{step="all"}`, "ok")
	n.want("1", "incr", "42.cntan")

	e2e.Until(t, "both nodes are listed", func() bool { return strings.Count(n.do("nodes").out, "  up  ") == 2 })
	for _, name := range []string{"a", "b"} {
		figures := document(t, n.good("stats", "--json", "--node", name))
		if of := nodeOf(figures); of != name || figures["go_goroutines"] == nil {
			t.Errorf("the figures of %s are of %s", name, of)
		}
		out := n.good("stats", "--node", name)
		if !strings.Contains(out, "figures  below are of node "+name+" alone\n") || strings.Contains(out, "go_goroutines") {
			t.Error(out)
		}
	}
	n.do("stats", "--node", "x").fails(t, 1, `there is no such node as "x"; there are: a, b`)
	n.do("stats", "--node", "x y").fails(t, 2, "--node", "x y")

	n.want("reads=off writes=on", "degrade", "reads=off")
	shows(`reads_step{step="off"}`, "reads are off: switched off for all nodes, by hand")
	for _, args := range []string{"get post 1", "unread 7", "feed 7", "following 7", "followers 7"} {
		n.do(strings.Fields(args)...).fails(t, 1, "reads are off: switched off for all nodes, by hand; 'tidemark degrade reads=all' ends it")
	}
	for _, command := range []string{"nodes", "shards", "slowlog", "degrade"} {
		n.good(command)
	}
	if out := n.good("stats"); !strings.Contains(out, "step=off") {
		t.Errorf("stats do not show it:\n%s", out)
	}
	n.good("read", "7", "all") // a read writes

	// docs/degradation.md: "producers: an error instead of the acknowledgement". A node that starts
	// meanwhile obeys too.
	nodes[1].stop(os.Kill)
	e2e.Until(t, "a node that is gone is said to be", func() bool {
		r := n.do("stats", "--node", "b")
		return r.code == 1 && r.out == "" && strings.Contains(r.err, "node b is away")
	})
	n.want("reads=all writes=refuse", "degrade", "reads=all", "writes=refuse")
	nodes[1] = b.start(t)
	shows(`writes_step{step="refuse"}`, "writes are refused: for all nodes, by hand")
	why := "events are refused for all nodes, by hand"
	e2e.Until(t, "events are refused", func() bool { return n.do("incr", "42.cntan", "0").code == 1 })
	n.do("incr", "42.cntan").fails(t, 1, why, "nothing was stored")
	n.do("publish", "like", "actor=7", "post=43", "author=9").fails(t, 1, why, "'tidemark degrade writes=on' ends it")
	n.feed(aLike, "import", "-").fails(t, 1, why, "run it again to go on")
	n.do("read", "7", "all").fails(t, 1, "writes are refused: for all nodes, by hand; 'tidemark degrade writes=on' ends it; nothing was stored")
	n.want("1", "get", "42.cntan")

	n.want("reads=all writes=on", "degrade", "writes=on")
	shows(`writes_step{step="on"}`, "ok")
	e2e.Until(t, "events count again", func() bool { return n.do("incr", "42.cntan").code == 0 })
	n.want("2", "get", "42.cntan")
}
