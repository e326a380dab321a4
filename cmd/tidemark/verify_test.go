package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/node/checks"
	"github.com/tidemark-io/tidemark/sinks/check"
)

// "`--json`: `{"ids":N,"differs":N,"examples":[{…}],"nodes":[…]}`"; docs/contract.md:
// "What differs is printed, with exit code 1"; "the same for these ids, now".
func TestVerify(t *testing.T) {
	n := shared(t)
	n.publish("like actor=7 post=2142 author=9", "follow actor=7 target=2109", "notice channel=system notice=2101")
	all := regexp.MustCompile(`^(\d+) ids compared, on 1 node: all as the log says\n$`).FindStringSubmatch(n.good("verify", "--all"))
	if all == nil {
		t.Fatal("not all is as the log says")
	}
	if out := n.good("verify"); !strings.Contains(out, "compared, on 1 node: ") {
		t.Error(out)
	}
	n.want("2 ids compared, on 1 node: all as the log says", "recount", "post", "2142", "2143")
	n.want("1 id compared, on 1 node: all as the log says", "recount", "user", "9", "--repair")
	var reply struct {
		IDs, Differs *int
		Examples     []any
		Nodes        []struct{ Shards []int }
	}
	out := n.good("verify", "--all", "--json")
	if err := json.Unmarshal([]byte(out), &reply); err != nil || reply.IDs == nil || fmt.Sprint(*reply.IDs) != all[1] ||
		reply.Differs == nil || *reply.Differs != 0 || reply.Examples == nil || len(reply.Nodes) != 1 || len(reply.Nodes[0].Shards) != 4 {
		t.Errorf("%v: %s", err, out)
	}
	if strings.Contains(out, "null") {
		t.Errorf("a list of nothing is not []: %s", out)
	}
	n.do("recount", "nope", "42").fails(t, 1, `counter "nope" is unknown; there are: `)
	n.do("recount", "post", "0").fails(t, 2, `"0" is not an id`)
	n.do("recount", "post").fails(t, 2, "<id>")
}

// What nodes have found is one table, and a verdict.
func TestVerifyTable(t *testing.T) {
	c := &checked{Failed: map[string]string{}}
	raw := `{"ids":200,"differs":2,
		"examples":[{"counter":"post","id":"42","column":"like","is":3,"should":2,"at":"53247","node":"a"},
			{"counter":"following","id":"7","column":"9","is":-1,"should":51200,"at":"53247","node":"b"}],
		"nodes":[{"node":"a","differs":1,"renewed":[5]},{"node":"b","differs":1,"mixed":true,"refused":"because"}]}`
	if err := json.Unmarshal([]byte(raw), c); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	want := `
COUNTER    ID  COLUMN  IS  SHOULD     AT  NODE
post       42  like     3       2  53247  a
following   7  9       -1   51200  53247  b
shard 5 of a is given up and taken again: 'tidemark shards' shows how far it is
nothing is repaired on b: because
what b has was not all counted by today's rules and limits: that may be why it differs
200 ids compared, on 2 nodes: 2 differ
`
	if err := c.print(&out); err != nil || "\n"+out.String() != want {
		t.Errorf("%v\n%s\nwant%s", err, out.String(), want)
	}
	if err := c.verdict(); err != errTold {
		t.Error(err)
	}
	// Once a shard was taken again and looked at, that decides.
	again := strings.Replace(raw, `"renewed":[5]`, `"renewed":[5],"after":{"ids":1,"shards":[5]}`, 1)
	repaired := &checked{Failed: map[string]string{}}
	if err := json.Unmarshal([]byte(again), repaired); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	want = strings.Replace(want, "shard 5 of a is given up and taken again: 'tidemark shards' shows how far it is", "shard 5 of a was given up and taken again", 1)
	if err := repaired.print(&out); err != nil || "\n"+out.String() != want+"1 id compared again, on 1 node: 1 differ still\n" {
		t.Errorf("%v\n%s", err, out.String())
	}
	if err := repaired.verdict(); err != errTold { // b
		t.Error(err)
	}
	repaired.Nodes = repaired.Nodes[:1]
	out.Reset()
	if err := repaired.print(&out); err != nil || !strings.HasSuffix(out.String(), "2 differ\n1 id compared again, on 1 node: all as the log says\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if err := repaired.verdict(); err != nil {
		t.Error(err)
	}
	after := repaired.Nodes[0].After
	after.Differs, after.Examples = 1, []check.Difference{{Counter: "post", ID: 42, Column: "like", Is: 3, Should: 2, At: 53247}}
	out.Reset()
	if err := repaired.print(&out); err != nil || !strings.HasSuffix(out.String(), "post     42  like     3       2  53247  a\n1 id compared again, on 1 node: 1 differ still\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if err := repaired.verdict(); err != errTold {
		t.Error(err)
	}
	after.Differs, after.Shards, after.Skipped = 0, nil, map[string]string{"5": "it has stopped"}
	if err := repaired.verdict(); err == nil || err.Error() != "not all was compared: shard 5 of a was not compared once it was taken again: it has stopped" {
		t.Error(err)
	}

	c.Failed["c"], c.Missing = "node c has told nothing for 5s", []int{3, 4}
	if err := c.verdict(); err == nil || err.Error() != "not all was compared: c: node c has told nothing for 5s; shards [3 4] were compared by no node" {
		t.Error(err)
	}
}

// With what nodes began is told once; that nothing was compared is not all being well.
func TestVerifyBase(t *testing.T) {
	c := &checked{IDs: 3, Nodes: []*checks.Checked{{Base: "backup x in /b, at position 7"}, {}, {Base: "backup x in /b, at position 7"}}}
	for want, c := range map[string]*checked{
		"EVENTS lacks its beginning: counted on from backup x in /b, at position 7; what was wrong there already is not found\n3 ids compared, on 3 nodes: all as the log says\n": c,
		"nothing was compared\n": {},
		"0 ids compared, on 1 node: none that is counted is in the sample; --all takes all\n": {Nodes: []*checks.Checked{{}}},
	} {
		var out strings.Builder
		if err := c.print(&out); err != nil || out.String() != want {
			t.Errorf("%v\n%s\nwant\n%s", err, out.String(), want)
		}
	}
}
