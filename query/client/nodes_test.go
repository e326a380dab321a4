package client_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/client"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
)

// What the service writes is what the client reads; what it does not know is 503.
func TestNodes(t *testing.T) {
	r := start(t)
	if _, err := r.client.Nodes(t.Context()); !isCode(err, 503) {
		t.Errorf("got %v", err)
	}
	if _, err := r.client.Shards(t.Context()); !isCode(err, 503) {
		t.Errorf("got %v", err)
	}

	nc := querytest.Connect(t, querytest.Server(t, &server.Options{}))
	serve := func(subject string, reply any) {
		t.Helper()
		body, err := json.Marshal(reply)
		if err != nil {
			t.Fatal(err)
		}
		_, err = nc.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond(body) })
		if err := errors.Join(err, nc.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	loaded, lag := 0.4, int64(1500)
	serve("tidemark.nodes", query.Nodes{Epoch: 12, Nodes: []query.Node{
		{Node: "a", Roles: []string{"hold"}, Zone: "z", Weight: 2, Version: "1", State: query.NodeDraining, Routes: true, Shards: 3, Applied: 1<<64 - 1, LagMS: &lag, SilentMS: 2001},
		{Node: "b"},
	}, SilentMS: 7001})
	serve("tidemark.shards", query.Shards{Epoch: 12, Shards: []query.ShardHolders{
		{Shard: 4095, Holders: []query.ShardHolder{{Node: "a", State: query.HolderReady, Applied: 7}, {Node: "b", State: query.HolderLoading, Loaded: &loaded}}},
	}, SilentMS: 7002, Replicas: 2})
	c := client.New(nc)
	nodes, err := c.Nodes(t.Context())
	if want := (client.Nodes{Epoch: 12, Nodes: []client.Node{{
		Node: "a", Roles: []string{"hold"}, Zone: "z", Weight: 2, Version: "1", State: "draining", Routes: true, Shards: 3, Applied: 1<<64 - 1, Lag: 1500 * time.Millisecond, LagKnown: true, Silent: 2001 * time.Millisecond,
	}, {Node: "b"}}, Silent: 7001 * time.Millisecond}); err != nil || !reflect.DeepEqual(nodes, want) {
		t.Errorf("%+v %v", nodes, err)
	}
	shards, err := c.Shards(t.Context())
	if want := (client.Shards{Epoch: 12, Shards: []client.Shard{{
		Shard: 4095, Holders: []client.Holder{{Node: "a", State: "ready", Applied: 7, Loaded: 1}, {Node: "b", State: "loading", Loaded: 0.4}},
	}}, Silent: 7002 * time.Millisecond, Replicas: 2}); err != nil || !reflect.DeepEqual(shards, want) {
		t.Errorf("%+v %v", shards, err)
	}
}

// All shards are told where they do not fit into one message, and of one assignment.
func TestShardsThatDoNotFit(t *testing.T) {
	nc := querytest.Connect(t, querytest.Server(t, &server.Options{}))
	const shards = 200
	asked, epoch := 0, uint64(12)
	_, err := nc.Subscribe("tidemark.shards", func(m *nats.Msg) {
		var ask struct{ From, Limit int }
		if err := json.Unmarshal(m.Data, &ask); err != nil {
			t.Error(err)
		}
		if asked++; asked == 3 {
			epoch++ // they are assigned anew amid the reading
		}
		reply := query.Shards{Epoch: epoch}
		if ask.Limit == 0 || ask.Limit > 64 {
			_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Nats-Service-Error": {"the reply has 100000 bytes or more"}, "Nats-Service-Error-Code": {"413"}}})
			return
		}
		for s := ask.From; s < min(ask.From+ask.Limit, shards); s++ {
			reply.Shards = append(reply.Shards, query.ShardHolders{Shard: pipeline.Shard(s)})
		}
		if end := ask.From + ask.Limit; end < shards {
			reply.Next = end
		}
		body, err := json.Marshal(reply)
		if err != nil {
			t.Error(err)
		}
		_ = m.Respond(body)
	})
	if err := errors.Join(err, nc.Flush()); err != nil {
		t.Fatal(err)
	}
	all, err := client.New(nc).Shards(t.Context(), client.Wait(7))
	if err != nil || all.Epoch != 13 || len(all.Shards) != shards || asked != 1+2+4 {
		t.Fatalf("%d shards of epoch %d, asked %d times, %v", len(all.Shards), all.Epoch, asked, err)
	}
	for i, s := range all.Shards {
		if s.Shard != i {
			t.Fatalf("shard %d is in place %d", s.Shard, i)
		}
	}
}

func isCode(err error, code int) bool {
	e, ok := errors.AsType[*client.Error](err)
	return ok && e.Code == code
}
