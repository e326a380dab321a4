package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
)

// docs/contract.md: "`nodes drain NODE` · `nodes undrain NODE` · `nodes forget NODE`";
// "`degrade [reads=all|memory|off] [writes=on|refuse]` (without arguments: how it is)".
func TestTellNodes(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(t, "node: a\n")
	n := p.start(t)
	bucket, err := n.connect(t).KeyValue("TIDEMARK")
	if err != nil {
		t.Fatal(err)
	}
	key := func(name, want string) {
		t.Helper()
		e, err := bucket.Get(name)
		if (err == nil && string(e.Value()) != want) || (err != nil) != (want == "") {
			t.Errorf("key %s is %+v, %v; want %q", name, e, err, want)
		}
	}
	// A holder that was killed a while ago.
	b := cluster.Member{Node: "b", Session: "x", Roles: cluster.Hold, Weight: 1, Version: "1", Shards: 4}
	value, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bucket.Put("member.b", value); err != nil {
		t.Fatal(err)
	}

	n.do("nodes", "drain", "x").fails(t, 1, "no such node as \"x\"; there are:", "b")
	n.do("nodes", "undrain", "x").fails(t, 1, "no such node")
	n.do("nodes", "forget", "x").fails(t, 1, "no such node")
	n.want("b is to hold no shards: 'tidemark nodes' shows how many it has still, 'tidemark nodes undrain b' ends it", "nodes", "drain", "b")
	key("drain.b", "{}")
	n.want(`{"drained":true,"node":"b"}`, "nodes", "drain", "b", "--json")
	n.want("b may hold shards", "nodes", "undrain", "b")
	key("drain.b", "")
	n.want(`{"node":"b","undrained":true}`, "nodes", "undrain", "--json", "b")
	// Of one that could hold none anyway, and of the last that may.
	for name, m := range map[string]cluster.Member{
		"thin": {Session: "y", Roles: cluster.Answer, Weight: 1, Version: "1"},
		"none": {Session: "z", Roles: cluster.Hold, Version: "1", Shards: 4},
	} {
		m.Node = name
		value, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bucket.Put("member."+name, value); err != nil {
			t.Fatal(err)
		}
	}
	for _, do := range []string{"drain", "undrain"} {
		n.want("thin holds no shards, drained or not: it has not the role hold", "nodes", do, "thin")
		n.want("none holds no shards, drained or not: its weight is 0", "nodes", do, "none")
	}
	n.do("nodes", "drain", "b")
	n.want("a is to hold no shards, but keeps them until there is another node that may hold them; 'tidemark nodes undrain a' ends it", "nodes", "drain", "a")
	n.want("a may hold shards", "nodes", "undrain", "a")
	n.want("b is forgotten", "nodes", "forget", "b")
	key("member.b", "")
	n.do("nodes", "forget", "b").fails(t, 1, "no such node")
	// docs/nodes.md: "`tidemark nodes forget NODE` does it at once": for the server it is
	// still connected when its machine is gone without a word, or it is suspended.
	nc := n.inside(t)
	if _, err := nc.SubscribeSync("tidemark.internal.member.none"); err != nil {
		t.Fatal(err)
	}
	n.want("none is forgotten", "nodes", "forget", "none")

	n.want("reads=all writes=on", "degrade")
	n.want("reads=memory writes=on", "degrade", "reads=memory")
	n.want("reads=memory writes=refuse", "degrade", "writes=refuse")
	key("degrade", `{"reads":"memory","writes":"refuse"}`)
	n.want(`{"reads":"memory","writes":"refuse"}`, "degrade", "--json")
	n.want("reads=all writes=on", "degrade", "reads=all", "writes=on")
	key("degrade", `{"reads":"all","writes":"on"}`)
}

// A server that no node has run on is told from one that does not answer.
func TestTellNobody(t *testing.T) {
	n := newPlace(t).start(t)
	if err := n.connect(t).DeleteKeyValue("TIDEMARK"); err != nil {
		t.Fatal(err)
	}
	e2e.Until(t, "the node makes the bucket again", func() bool {
		r := n.do("degrade")
		return r.code == 0 && r.out == "reads=all writes=on\n"
	})
	r := command(t, []string{"NATS_URL=nats://127.0.0.1:1"}, "", "degrade")
	r.fails(t, 1, "no tidemark answers at nats://127.0.0.1:1")
}

// What the process that answers does not know, it says.
func TestNodesAsked(t *testing.T) {
	t.Parallel()
	n := newPlace(t).start(t)
	for _, name := range []string{"nodes", "shards"} {
		table, document := n.do(name), n.do(name, "--json")
		if table.code == 1 {
			table.fails(t, 1, "does not know which nodes there are")
			document.fails(t, 1, "does not know which nodes there are")
			continue
		}
		var reply map[string]any
		if table.code != 0 || document.code != 0 || json.Unmarshal([]byte(document.out), &reply) != nil || reply[name] == nil {
			t.Errorf("%s: %+v %+v", name, table, document)
		}
	}
}

// All shards that are more than a message are printed all the same.
func TestShardsOfManyMessages(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(t, "shards: 2500\nwindows: {bytes: 60KiB}\n"+
		"nats: {listen: '127.0.0.1:0', max_payload: 128KiB, streams: {events: {max_bytes: 1GiB}, deltas: {max_bytes: 1GiB}, deadletter: {max_bytes: 64MiB}}}\n")
	n := p.start(t)
	e2e.Until(t, "2500 shards", func() bool { return strings.Contains(n.do("shards").out, "\n2500 shards ") })
	document := n.do("shards", "--json")
	var reply struct {
		Epoch  int
		Shards []struct {
			Shard   int
			Holders []struct {
				Node, State, Applied string
				Loaded               *float64
			}
		}
	}
	if err := json.Unmarshal([]byte(document.out), &reply); err != nil || document.code != 0 || len(document.out) < 128<<10 || len(reply.Shards) != 2500 {
		t.Fatalf("%d shards in %d bytes, %v: %.200s", len(reply.Shards), len(document.out), err, document.err)
	}
	for i, s := range reply.Shards {
		if s.Shard != i || len(s.Holders) != 1 || s.Holders[0].State == "" || s.Holders[0].Applied == "" || s.Holders[0].Loaded != nil && *s.Holders[0].Loaded >= 1 {
			t.Fatalf("in place %d is %+v", i, s)
		}
	}
}
