package acceptance_test

import (
	"flag"
	"slices"
	"testing"
	"time"
)

var nodesFull = flag.Bool("nodes.full", false, "TestNodesEmbedded: all of Higgs under every fault; some five minutes")

// "Three `tidemark run` with embedded servers find each other, form a
// NATS cluster": whoever is killed has a third of the streams' copies, too, and may lead
// them.
//
// Real processes, real servers: three embedded servers in a cluster, four holders with
// two replicas, two that only answer. Higgs is imported (events and packs) while holders
// and the router are killed -9, started, drained, joined, cut off and stopped at random,
// twenty times or more. Then every column of every user and post equals the expected
// files, asked through a node that only answers. During all of it a checking client asks
// with min_position and holds each whole answer between the twin's at its as_of and at
// the newest position then. That is -nodes.full; without, it is a slice and three kills.
func TestNodesEmbedded(t *testing.T) {
	t.Parallel()
	faults, joins, packMost := embeddedFaults[:3], "", 60
	count, over := len(faults), time.Second
	if *nodesFull {
		faults, joins, packMost = slices.Concat(embeddedFaults, nodeFaults), "e", 300
		count, over = 2*len(faults), 5*time.Second
	}
	want, lines := "", [][]byte(nil)
	if *nodesFull {
		want, _ = higgs(t)
		_, lines = slice(t, 0, 1<<62)
	} else {
		var path string
		path, lines = slice(t, follows-3_000, follows+5_000)
		want = oracle(t, path)
	}
	r := newNodesRun(t, lines, packMost, func() *fleet {
		return newFleetEmbedded(t, "d")
	})
	r.check.lossy = true
	r.story(r.draw(faults, count), over, joins)
	r.ends(want)
}

// embeddedFaults are of nodes that have a server, or need none.
var embeddedFaults = []nodeFault{
	{"a holder with a server is killed", func(r *nodesRun) {
		p := r.holders[[]string{"a", "b", "c"}[r.random.IntN(3)]]
		p.Kill()
		r.pause(2 * time.Second)
		p.Start()
	}},
	routerKilled,
	{"one that only answers is killed", func(r *nodesRun) {
		r.another.Kill()
		r.pause(2 * time.Second)
		r.another.Start()
	}},
}
