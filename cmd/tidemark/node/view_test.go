package node

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
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
	state := func(status cluster.Status, m cluster.Member) cluster.State {
		return cluster.State{Member: &m, Status: status}
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
	c := clusterView{func() *cluster.View { return v }, func() time.Duration { return 0 }}
	for _, test := range []struct {
		got  any
		want string
	}{
		{c.Nodes(), `{"epoch":7,"nodes":[` +
			`{"node":"a","roles":["route","hold","answer"],"zone":"z","weight":1,"version":"1","state":"up","routes":true,"shards":2,"applied":"50","lag_ms":3},` +
			`{"node":"b","roles":["hold"],"zone":"","weight":2,"version":"","state":"draining","routes":false,"shards":1,"applied":"40","lag_ms":0},` +
			`{"node":"c","roles":["hold"],"zone":"","weight":1,"version":"","state":"away","routes":false,"shards":1,"applied":"30","lag_ms":0}]}`},
		{c.Shards(), `{"epoch":7,"shards":[` +
			`{"shard":0,"holders":[{"node":"a","state":"ready","applied":"50"},{"node":"b","state":"loading","applied":"0","loaded":0.25}]},` +
			`{"shard":1,"holders":[{"node":"b","state":"ready","applied":"40"},{"node":"c","state":"away","applied":"30"},{"node":"a","state":"ready","applied":"50"}]},` +
			`{"shard":2,"holders":[{"node":"d","state":"away","applied":"0"},{"node":"a","state":"failed","applied":"50"}]},` +
			`{"shard":3,"holders":null}]}`},
	} {
		got, err := json.Marshal(test.got)
		if err != nil || string(got) != test.want {
			t.Errorf("%v\n%s\nwant\n%s", err, got, test.want)
		}
	}
}
