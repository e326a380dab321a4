package lookup

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/query"
)

// Every state of a node and of a holder, as tidemark.nodes and tidemark.shards
// tell it.
func TestClusterView(t *testing.T) {
	set := func(shards ...pipeline.Shard) (set cluster.ShardSet) {
		for _, s := range shards {
			set.Add(s)
		}
		return set
	}
	now := time.Now()
	state := func(status cluster.Status, m cluster.Member) cluster.State {
		return cluster.State{Member: &m, Status: status, Heard: now}
	}
	all := cluster.Route | cluster.Hold | cluster.Answer
	v := &cluster.View{
		Assignment: cluster.Assignment{Epoch: 7, Replicas: 2, ByShard: [][]string{{"a", "b"}, {"b", "c"}, {"d", "a"}, {}}},
		Members: []cluster.State{
			state(cluster.Up, cluster.Member{Node: "a", Roles: all, Zone: "z", Weight: 1, Version: "1", Routes: true, Applied: 50, LagMS: 3, Ready: set(0, 1), Failed: set(2)}),
			state(cluster.Draining, cluster.Member{Node: "b", Roles: cluster.Hold, Weight: 2, Applied: 40, Ready: set(1), Loading: map[pipeline.Shard]float64{0: 0.25}}),
			state(cluster.Away, cluster.Member{Node: "c", Roles: cluster.Hold, Weight: 1, Routes: true, Applied: 30, Ready: set(1)}),
		},
	}
	unheard := time.Duration(0)
	c := Overview{"a", func() *cluster.View { return v }, func() time.Duration { return unheard }}
	for _, test := range []struct {
		got  any
		want string
	}{
		{c.Nodes(), `{"epoch":7,"nodes":[` +
			`{"node":"a","roles":["route","hold","answer"],"zone":"z","weight":1,"version":"1","state":"up","routes":true,"shards":2,"applied":"50","lag_ms":3},` +
			`{"node":"b","roles":["hold"],"zone":"","weight":2,"version":"","state":"draining","routes":false,"shards":1,"applied":"40","lag_ms":0},` +
			`{"node":"c","roles":["hold"],"zone":"","weight":1,"version":"","state":"away","routes":false,"shards":1,"applied":"30","lag_ms":null}]}`},
		{c.Shards(), `{"epoch":7,"shards":[` +
			`{"shard":0,"holders":[{"node":"a","state":"ready","applied":"50"},{"node":"b","state":"loading","applied":"0","loaded":0.25}]},` +
			`{"shard":1,"holders":[{"node":"b","state":"ready","applied":"40"},{"node":"c","state":"away","applied":"30"},{"node":"a","state":"ready","applied":"50"}]},` +
			`{"shard":2,"holders":[{"node":"d","state":"away","applied":"0"},{"node":"a","state":"failed","applied":"50"}]},` +
			`{"shard":3,"holders":null}],"replicas":2}`},
	} {
		got, err := json.Marshal(test.got)
		if err != nil || string(got) != test.want {
			t.Errorf("%v\n%s\nwant\n%s", err, got, test.want)
		}
	}

	// One was not heard for 3 s: whether it routes, and how far it lags, is not known.
	v.Members[0].Heard = now.Add(-3 * time.Second)
	if n := c.Nodes().Nodes[0]; n.State != query.NodeUp || n.Routes || n.LagMS != nil || n.SilentMS < 3000 {
		t.Errorf("of one not heard for 3 s: %+v", n)
	}

	// None was: of the others nothing is known.
	unheard = 3 * time.Second
	for i := range v.Members {
		v.Members[i].Heard = now.Add(-unheard)
	}
	nodes := c.Nodes()
	for i, want := range []query.NodeState{query.NodeUp, query.NodeAway, query.NodeAway} {
		if n := nodes.Nodes[i]; n.State != want || n.Routes || n.LagMS != nil || n.SilentMS < 3000 {
			t.Errorf("while none is heard: %+v", n)
		}
	}
	shards := c.Shards()
	for s, want := range []string{"a ready, b away", "b away, c away, a ready", "d away, a failed", ""} {
		var holders []string
		for _, h := range shards.Shards[s].Holders {
			holders = append(holders, h.Node+" "+string(h.State))
		}
		if got := strings.Join(holders, ", "); got != want {
			t.Errorf("shard %d while none is heard: %s, want %s", s, got, want)
		}
	}
	if nodes.SilentMS != 3000 || shards.SilentMS != 3000 || v.Members[1].Status != cluster.Draining {
		t.Errorf("silent %d and %d ms; the view itself now says %v", nodes.SilentMS, shards.SilentMS, v.Members[1].Status)
	}
}
