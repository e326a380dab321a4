package spread_test

import (
	"errors"
	"strings"
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

// "only to inboxes"
func TestCountedGoesToInboxesOnly(t *testing.T) {
	w := querytest.NewWorld(querytest.Schema(t), shards, now)
	c := newCluster(t, w, &server.Options{})
	c.node("a", func(pipeline.Shard) bool { return true })
	nc := querytest.Connect(t, c.server)
	stored, err := nc.SubscribeSync("events.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(nc.PublishRequest(spread.SchemaSubject("a", 0), "events.like", nil), nc.Flush()); err != nil {
		t.Fatal(err)
	}
	if _, err := spread.AskCounted(within(t, 10*time.Second), nc, "a", 0); err != nil { // it has seen the one before
		t.Fatal(err)
	}
	if m, err := stored.NextMsg(50 * time.Millisecond); err == nil {
		t.Errorf("%s", m.Data)
	}
}

// Whoever answers in a node's name may send anything: it is refused, with what
// is wrong.
func TestCountedRefused(t *testing.T) {
	nc := querytest.Connect(t, querytest.Server(t, &server.Options{}))
	text := ""
	sub, err := nc.Subscribe(spread.SchemaSubject("liar", 0), func(m *nats.Msg) { _ = m.Respond([]byte(text)) })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	for _, test := range []struct{ text, want string }{
		{``, "unexpected end of JSON input"},
		{`[]`, "cannot unmarshal array"},
		{`{"counters":[]}`, "0 shards"},
		{`{"shards":4097}`, "4097 shards"},
		{`{"shards":8,"counters":[{"name":"post","columns":[{"name":"like","bits":0,"max":63}]}]}`, `"like" of counter "post" has 0 to 63 bits`},
		{`{"shards":8,"counters":[{"name":"post","columns":[{"name":"like","bits":8,"max":64}]}]}`, "8 to 64 bits"},
		{`{"shards":8,"counters":[{"name":"post","columns":[{"name":"","bits":8,"max":63}]}]}`, `column ""`},
		{`{"shards":8,"counters":[{"name":"post","columns":[]},{"name":"post","columns":[]}]}`, "defined twice"},
		{`{"error":"the schema has 9000000 bytes"}`, "the node says"},
	} {
		text = test.text
		_, err := spread.AskCounted(within(t, 10*time.Second), nc, "liar", 0)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.text, err, test.want)
		}
	}
}
