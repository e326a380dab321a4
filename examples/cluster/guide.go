package main

import (
	"fmt"
	"strings"
)

// guide says what runs, what to look at and what to kill.
func guide(f *fleet, routes string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `
Tidemark runs as four processes, with a demo: a small community of MADE-UP
users (1, 2, 3, …). All of it is synthetic, and kept in %s.

`, f.o.dir)
	thin := f.all[len(f.all)-1]
	for _, p := range f.all {
		does, nats := "routes, holds, answers", "nats://"+p.nats
		if p.thin {
			does, nats = "only answers", ""
		}
		line := fmt.Sprintf("  %-5s pid %-8d %-23s http://%s  %s", p.node, f.nodes[p.node].cmd.Process.Pid, does, p.http, nats)
		fmt.Fprintln(&b, strings.TrimRight(line, " "))
	}
	fmt.Fprintf(&b, `
Look at
  badges     http://%[1]s/demo/      in a browser: what is new for user 1, live
  figures    http://%[1]s/metrics
  ready?     http://%[1]s/readyz     the same paths on every node
  in another terminal, more than once:

    export NATS_URL=%[2]s TIDEMARK_NKEY=%[4]s
    %[3]s nodes
    %[3]s shards
    %[3]s unread 1 2 3
    %[3]s stats

Kill
`, thin.http, f.all.urls(), f.o.binary, f.all.key())
	for _, p := range f.all {
		fmt.Fprintf(&b, "  kill -9 %-8d %s\n", f.nodes[p.node].cmd.Process.Pid, f.effect(p, routes))
	}
	fmt.Fprintf(&b, `
Below is a line every five seconds; "asked" is what somebody got who asks all
the time. Logs: %s/*/log. Ctrl-C stops all in order.
`, f.o.dir)
	return b.String()
}

// effect is what is seen when a node is killed.
func (f *fleet) effect(p *place, routes string) string {
	switch p.node {
	case "thin":
		return "node thin: nothing is lost, it held nothing; the others answer"
	case routes:
		return "node " + p.node + ", which routes: answers stay whole and stand still, until another routes"
	}
	return "node " + p.node + ": its shards are answered by their other holders"
}
