package main

import (
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/query/client"
)

func TestNodesTable(t *testing.T) {
	nodes := client.Nodes{Epoch: 12, Nodes: []client.Node{
		{Node: "a", State: "up", Roles: []string{"route", "hold", "answer"}, Routes: true, Zone: "east", Weight: 1, Shards: 16, Applied: 7167, Lag: 3 * time.Millisecond, LagKnown: true, Version: "0.2.0"},
		{Node: "longer-name", State: "draining", Roles: []string{"hold"}, Weight: 100, Applied: 7168, LagKnown: true, Version: "0.2.0"},
		{Node: "c\x1b[2J", State: "away", Roles: []string{"answer"}, Weight: 1, Shards: 3, Silent: time.Hour, Version: "0.1.9"},
		{Node: "d", State: "up", Roles: []string{"hold"}, Weight: 1, Silent: 3400 * time.Millisecond, Version: "0.2.0"},
	}}
	want := `
NODE         STATE          ROLES              ROUTES  ZONE  WEIGHT  SHARDS  LOADING  APPLIED  LAG  VERSION
a            up             route,hold,answer  yes     east       1      16        0     7167  3ms  0.2.0
longer-name  draining       hold               -       -        100       0        2     7168    0  0.2.0
c [2J        away           answer             -       -          1       3        0        0    -  0.1.9
d            up, silent 3s  hold               -       -          1       0        0        0    -  0.2.0
`
	var out strings.Builder
	if err := printNodes(&out, nodes, map[string]int{"longer-name": 2}); err != nil || "\n"+out.String() != want {
		t.Errorf("%v\n%s\nwant%s", err, out.String(), want)
	}
	// An operator looks at it at night: what is old is said to be.
	out.Reset()
	nodes.Silent = 23_400 * time.Millisecond
	if err := printNodes(&out, nodes, map[string]int{"longer-name": 2}); err != nil || out.String() != silence23+want {
		t.Errorf("%v\n%s", err, out.String())
	}
	out.Reset()
	if err := printNodes(&out, client.Nodes{}, nil); err != nil || out.String() != "no nodes\n" {
		t.Errorf("%v\n%s", err, out.String())
	}
}

const silence23 = "For 23s the node that answers has heard of no node, not of itself either: it is cut off, or most of the NATS servers are gone. How the others are is not known.\n"

func TestShardsTable(t *testing.T) {
	shards := client.Shards{Epoch: 12, Shards: []client.Shard{
		{Shard: 9, Holders: []client.Holder{{Node: "a", State: "ready"}, {Node: "b", State: "loading", Loaded: 0.404}}},
		{Shard: 10, Holders: []client.Holder{{Node: "b", State: "failed"}, {Node: "c", State: "away"}}},
		{Shard: 11},
	}}
	want := `
SHARD  HOLDERS
    9  a ready, b loading 40%
   10  b failed, c away
   11  none

3 shards, 1 being loaded, 2 that nobody answers for: their ids are missing in answers (epoch 12)
`
	var out strings.Builder
	if err := printShards(&out, shards); err != nil || "\n"+out.String() != want {
		t.Errorf("%v\n%s\nwant%s", err, out.String(), want)
	}
	out.Reset()
	shards.Silent = 23_400 * time.Millisecond
	if err := printShards(&out, shards); err != nil || out.String() != silence23+want {
		t.Errorf("%v\n%s", err, out.String())
	}
	if n := loadingOf(shards); len(n) != 1 || n["b"] != 1 {
		t.Errorf("%v", n)
	}
	// Of which one copy is left is said where there should be more.
	shards.Silent, shards.Replicas = 0, 2
	if got := summary(shards); !strings.HasSuffix(got, "(epoch 12)\n1 of 3 shards has one copy left: 9\n") {
		t.Errorf("%s", got)
	}
	for s := range 40 {
		shards.Shards = append(shards.Shards, client.Shard{Shard: 100 + s, Holders: shards.Shards[0].Holders})
	}
	if got := summary(shards); !strings.Contains(got, "\n41 of 43 shards have one copy left: 9, 100, 101, ") || !strings.HasSuffix(got, "129, 130 and 9 more\n") {
		t.Errorf("%s", got)
	}
	out.Reset()
	if err := printShards(&out, client.Shards{}); err != nil || out.String() != "no shard has a holder yet\n" {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// `tidemark stats` says which nodes there are.
func TestStatsNodes(t *testing.T) {
	nodes := client.Nodes{Nodes: []client.Node{
		{Node: "a", State: "up", Shards: 16},
		{Node: "b", State: "away", Shards: 16},
		{Node: "c\x1b[2J", State: "up", Shards: 32},
		{Node: "d", State: "draining", Shards: 1},
		{Node: "thin", State: "up"},
	}}
	of := nodeOf(figuresOf(`tidemark_info{node="thin",version="1.2.3"} 1`))
	want := "nodes    up: a, c [2J, thin; draining: d; away: b\n" +
		"answers  come from the 3 of them that hold shards\n" +
		"figures  below are of node thin alone\n\n"
	if got := nodesLines(nodes, of); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	nodes.Silent = 3400 * time.Millisecond
	if got := nodesLines(nodes, of); !strings.Contains(got, "away: b; heard of no node for 3s\n") {
		t.Errorf("while nothing is heard: %s", got)
	}
	if got := nodesLines(client.Nodes{Nodes: nodes.Nodes[:1]}, of); got != "" {
		t.Errorf("of one node: %s", got)
	}
}
