package spread_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
	"github.com/tidemark-io/tidemark/query/spread"
)

var types = map[string][]string{"like": {"actor", "post"}}

// What a process learns from a node is what the node counts, hidden columns,
// sets and all.
func TestAskCounted(t *testing.T) {
	w := querytest.NewWorld(querytest.SetsSchema(t), shards, now)
	c := newCluster(t, w, &server.Options{})
	c.node("a", func(pipeline.Shard) bool { return true })
	nc := querytest.Connect(t, c.server)
	got, err := spread.AskCounted(within(t, 10*time.Second), nc, "a", 0)
	if err != nil {
		t.Fatal(err)
	}
	want := &spread.Counted{Schema: w.Schema, Shards: shards, Types: types}
	if !got.Equal(want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	hidden := false
	for i, column := range want.Schema.Columns {
		hidden = hidden || column.Hidden
		if at, ok := got.Schema.Find(want.Schema.FullName(pipeline.Column(i))); !ok || at != pipeline.Column(i) {
			t.Errorf("%+v is at %d, %v", column, at, ok)
		}
	}
	if !hidden {
		t.Error("no column is hidden: this test shows nothing")
	}
	if other := (&spread.Counted{Schema: w.Schema, Shards: shards + 1}); got.Equal(other) {
		t.Error("another number of shards is taken for the same")
	}
	if other := (&spread.Counted{Schema: w.Schema, Shards: shards}); got.Equal(other) {
		t.Error("other types of events are taken for the same")
	}

	c.stop("a")
	if _, err := spread.AskCounted(within(t, 10*time.Second), nc, "a", 0); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("of a node that has stopped: %v", err)
	}
}
