package cluster

import (
	"maps"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

// What the members of a generation lack until it may serve: a holder that is away, one that
// has not a shard yet, one that lags, a shard without a holder.
func TestLacking(t *testing.T) {
	member := func(node string, status Status, behind bool, applied pipeline.Position, ready ...pipeline.Shard) State {
		m := &Member{Node: node, Roles: Hold, Behind: behind, Applied: applied}
		for _, s := range ready {
			m.Ready.Add(s)
		}
		return State{Member: m, Status: status}
	}
	assigned := Assignment{Replicas: 2, ByShard: [][]string{{"a", "b"}, {"b", "c"}, {}}}
	away := "node c, which is to hold 1 shards, is away: start it, or 'tidemark nodes forget' it"
	for name, test := range map[string]struct {
		view          View
		nobody        int
		lacks, behind map[string]int
		come          pipeline.Position
		atEnd, before string
	}{
		"nothing is assigned": {View{}, 3, nil, nil, 0, "3 of 3 shards are assigned to no node", ""},
		"one of each": {
			View{Assignment: assigned, Members: []State{member("a", Up, true, 50, 0), member("b", Up, false, 40, 1), member("c", Away, false, 60, 1)}},
			1,
			map[string]int{"b": 1, "c": 1},
			map[string]int{"a": 1},
			0,
			"1 of 3 shards are assigned to no node; node b does not answer for 1 of its shards yet; " + away + "; behind are a", away,
		},
		"all are there": {
			View{Assignment: Assignment{ByShard: [][]string{{"a", "b"}, {"b"}, {"a"}}}, Members: []State{member("a", Up, false, 50, 0, 2), member("b", Up, false, 40, 0, 1)}},
			0,
			map[string]int{},
			map[string]int{},
			40, "", "",
		},
	} {
		nobody, lacks, behind := test.view.Lacking(3)
		if nobody != test.nobody || !maps.Equal(lacks, test.lacks) || !maps.Equal(behind, test.behind) {
			t.Errorf("%s: %d %v %v", name, nobody, lacks, behind)
		}
		if come := test.view.Come(3); come != test.come {
			t.Errorf("%s: it has come to %d", name, come)
		}
		if atEnd, before := test.view.WaitsFor(3, true), test.view.WaitsFor(3, false); atEnd != test.atEnd || before != test.before {
			t.Errorf("%s: waits for %q, before the end for %q", name, atEnd, before)
		}
	}
	v := View{Assignment: assigned, Members: []State{member("a", Up, false, 50, 0), member("b", Away, false, 40, 1)}}
	for here, want := range map[bool]int{true: 1, false: 2} {
		if none, shards := v.Unanswered(func(s pipeline.Shard) bool { return here && s == 1 }); none != want || shards != 3 {
			t.Errorf("%d of %d shards are answered by nobody, want %d", none, shards, want)
		}
	}
}
