package client_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

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
	loaded := 0.4
	serve("tidemark.nodes", query.Nodes{Epoch: 12, Nodes: []query.Node{
		{Node: "a", Roles: []string{"hold"}, Zone: "z", Weight: 2, Version: "1", State: query.NodeDraining, Routes: true, Shards: 3, Applied: 1<<64 - 1, LagMS: 1500},
	}, SilentMS: 7001})
	serve("tidemark.shards", query.Shards{Epoch: 12, Shards: []query.ShardHolders{
		{Shard: 4095, Holders: []query.ShardHolder{{Node: "a", State: query.HolderReady, Applied: 7}, {Node: "b", State: query.HolderLoading, Loaded: &loaded}}},
	}, SilentMS: 7002})
	c := client.New(nc)
	nodes, err := c.Nodes(t.Context())
	if want := (client.Nodes{Epoch: 12, Nodes: []client.Node{{
		Node: "a", Roles: []string{"hold"}, Zone: "z", Weight: 2, Version: "1", State: "draining", Routes: true, Shards: 3, Applied: 1<<64 - 1, Lag: 1500 * time.Millisecond,
	}}, Silent: 7001 * time.Millisecond}); err != nil || !reflect.DeepEqual(nodes, want) {
		t.Errorf("%+v %v", nodes, err)
	}
	shards, err := c.Shards(t.Context())
	if want := (client.Shards{Epoch: 12, Shards: []client.Shard{{
		Shard: 4095, Holders: []client.Holder{{Node: "a", State: "ready", Applied: 7, Loaded: 1}, {Node: "b", State: "loading", Loaded: 0.4}},
	}}, Silent: 7002 * time.Millisecond}); err != nil || !reflect.DeepEqual(shards, want) {
		t.Errorf("%+v %v", shards, err)
	}
}

func isCode(err error, code int) bool {
	e, ok := errors.AsType[*client.Error](err)
	return ok && e.Code == code
}
