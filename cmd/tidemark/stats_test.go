package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

// docs/metrics.md: "`tidemark stats --node b` shows those of node b": whatever its roles
// are, whoever answers requests.
func TestStatsOfANode(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(t, "node: a\n")
	first := p.start(t)
	streams := "streams: {events: {max_bytes: 1GiB}, deltas: {max_bytes: 1GiB}, deadletter: {max_bytes: 64MiB}}"
	started := map[string]*process{"a": first}
	for name, roles := range map[string]string{"routes": "route", "holds": "hold", "thin": "answer"} {
		p := newPlace(t)
		more := fmt.Sprintf("node: %s\nroles: [%s]\nnats: {url: '%s', nkey: %q, %s}\n", name, roles, first.nats, first.key, streams)
		p.configure(t, more)
		started[name] = p.start(t)
	}
	e2e.Until(t, "all nodes are listed", func() bool { return strings.Count(first.do("nodes").out, "  up  ") == len(started) })
	for name := range started {
		for range 2 { // others answer the requests in between
			figures := document(t, first.do("stats", "--json", "--node", name).out)
			if of := nodeOf(figures); of != name || figures["go_goroutines"] == nil {
				t.Errorf("the figures of %s are of %s", name, of)
			}
		}
		if r := first.do("stats", "--node", name); r.code != 0 || !strings.Contains(r.out, "figures  below are of node "+name+" alone\n") || strings.Contains(r.out, "go_goroutines") {
			t.Errorf("%+v", r)
		}
	}
	first.do("stats", "--node", "x").fails(t, 1, `there is no such node as "x"; there are: a, holds, routes, thin`)
	first.do("stats", "--node", "x y").fails(t, 2, "--node", "x y")
	started["holds"].stop(os.Kill)
	e2e.Until(t, "a node that is gone is said to be", func() bool {
		r := first.do("stats", "--node", "holds")
		return r.code == 1 && r.out == "" && strings.Contains(r.err, "node holds is away")
	})
}
