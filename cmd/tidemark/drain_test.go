package main

import (
	"testing"

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
	// Holders that were killed a while ago, and one that only answered.
	for name, m := range map[string]cluster.Member{
		"b":    {Session: "x", Roles: cluster.Hold, Weight: 1, Version: "1", Shards: 4},
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
