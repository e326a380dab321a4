package service_test

import (
	"math"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/service"
)

// view is a cluster that stands still.
type view struct {
	nodes  query.Nodes
	shards query.Shards
}

func (v *view) Nodes() query.Nodes   { return v.nodes }
func (v *view) Shards() query.Shards { return v.shards }

func withCluster(v *view) func(*service.Options, *server.Options) {
	return func(o *service.Options, _ *server.Options) { o.Cluster = v }
}

// `{"epoch":12,"nodes":[{"node":"a","roles":["route","hold","answer"],"zone":"","weight":1,"version":"…","state":"up","routes":true,"shards":16,"applied":"…","lag_ms":3}]}`
func TestNodes(t *testing.T) {
	lag := int64(3)
	v := &view{nodes: query.Nodes{Epoch: 12, Nodes: []query.Node{
		{Node: "a", Roles: []string{"route", "hold", "answer"}, Weight: 1, Version: "1.2.3", State: query.NodeUp, Routes: true, Shards: 16, Applied: pipeline.Position(math.MaxUint64), LagMS: &lag},
		{Node: "b", Zone: "z", State: query.NodeAway, SilentMS: 7000},
	}}}
	r := start(t, withCluster(v))
	want := `{"epoch":12,"nodes":[` +
		`{"node":"a","roles":["route","hold","answer"],"zone":"","weight":1,"version":"1.2.3","state":"up","routes":true,"shards":16,"applied":"18446744073709551615","lag_ms":3},` +
		`{"node":"b","roles":[],"zone":"z","weight":0,"version":"","state":"away","routes":false,"shards":0,"applied":"0","lag_ms":null,"silent_ms":7000}]}`
	r.answers("nodes", `{}`, want)
	r.answers("nodes", ``, want)
	r.refuses("nodes", `[]`, "400")
	v.nodes = query.Nodes{}
	r.answers("nodes", `{}`, `{"epoch":0,"nodes":[]}`)
	v.nodes.SilentMS = 7001
	r.answers("nodes", `{}`, `{"epoch":0,"nodes":[],"silent_ms":7001}`)
}

// `{"epoch":12,"shards":[{"shard":0,"holders":[{"node":"a","state":"ready","applied":"…"}]}]}`; "`loading` (with `"loaded":0.4`)"
func TestShards(t *testing.T) {
	loaded, none := 0.4, 0.0
	v := &view{shards: query.Shards{Epoch: 12, Shards: []query.ShardHolders{
		{Shard: 0, Holders: []query.ShardHolder{{Node: "a", State: query.HolderReady, Applied: 5}, {Node: "b", State: query.HolderLoading, Loaded: &loaded}}},
		{Shard: 1, Holders: []query.ShardHolder{{Node: "b", State: query.HolderLoading, Loaded: &none}, {Node: "c", State: query.HolderFailed}}},
		{Shard: 2},
	}}}
	r := start(t, withCluster(v))
	r.answers("shards", `{}`, `{"epoch":12,"shards":[`+
		`{"shard":0,"holders":[{"node":"a","state":"ready","applied":"5"},{"node":"b","state":"loading","applied":"0","loaded":0.4}]},`+
		`{"shard":1,"holders":[{"node":"b","state":"loading","applied":"0","loaded":0},{"node":"c","state":"failed","applied":"0"}]},`+
		`{"shard":2,"holders":[]}]}`)
	v.shards = query.Shards{}
	r.answers("shards", `{}`, `{"epoch":0,"shards":[]}`)
	v.shards.SilentMS = 7001
	r.answers("shards", `{}`, `{"epoch":0,"shards":[],"silent_ms":7001}`)
}

// What does not fit a message is read page by page, like any list.
func TestShardsPage(t *testing.T) {
	v := &view{shards: query.Shards{Epoch: 12}}
	for i := range pipeline.Shard(5) {
		v.shards.Shards = append(v.shards.Shards, query.ShardHolders{Shard: i})
	}
	r := start(t, withCluster(v))
	r.answers("shards", `{"limit":2}`, `{"epoch":12,"shards":[{"shard":0,"holders":[]},{"shard":1,"holders":[]}],"next":2}`)
	r.answers("shards", `{"from":2,"limit":"2"}`, `{"epoch":12,"shards":[{"shard":2,"holders":[]},{"shard":3,"holders":[]}],"next":4}`)
	r.answers("shards", `{"from":4,"limit":2}`, `{"epoch":12,"shards":[{"shard":4,"holders":[]}]}`)
	r.answers("shards", `{"from":3,"limit":2,"other":[1]}`, `{"epoch":12,"shards":[{"shard":3,"holders":[]},{"shard":4,"holders":[]}]}`)
	r.answers("shards", `{"from":4095,"limit":null}`, `{"epoch":12,"shards":[]}`)
	r.refuses("shards", `{"from":4096}`, "400", "from: 4096 is not a number from 0 to 4095")
	r.refuses("shards", `{"from":-1}`, "400", "from: -1 is not")
	r.refuses("shards", `{"limit":0}`, "400", "limit: 0 is not a number from 1 to 4096")
	r.refuses("shards", `{"limit":4097}`, "413", "one page after the other")
	r.refuses("shards", `{"limit":`, "400", "not the JSON object")
}

// Whoever is not ready still says who is there; what does not fit a message is
// an error that says what to do.
func TestNodesInTrouble(t *testing.T) {
	v := &view{}
	for range 1000 {
		v.nodes.Nodes = append(v.nodes.Nodes, query.Node{Node: strings.Repeat("n", 64), State: query.NodeUp})
	}
	r := start(t, withCluster(v), func(o *service.Options, so *server.Options) {
		o.Ready = func() error { t.Error("asked whether it is ready"); return nil }
		so.MaxPayload = 64 << 10
	})
	r.refuses("nodes", `{}`, "413", "raise the server's max_payload")
	r.answers("shards", `{}`, `{"epoch":0,"shards":[]}`)

	r = start(t)
	r.refuses("nodes", `{}`, "503", "does not know which nodes there are")
	r.refuses("shards", `{}`, "503", "does not know which nodes there are")
}
