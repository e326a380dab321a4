package spread_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
	"github.com/tidemark-io/tidemark/query/spread"
)

// "Nodes ask each other by subjects of their generation, so every
// answer is of one generation." Both are answered by one node.
func TestGenerations(t *testing.T) {
	if got := spread.Subject("a", 1); got != "tidemark.hold.a.g1" || spread.Subject("a", 0) != got {
		t.Errorf("the first generation is asked at %s", got)
	}
	if got := spread.SchemaSubject("a", 3); got != "tidemark.hold.a.g3.schema" {
		t.Errorf("the third generation's schema is asked for at %s", got)
	}
	w1, w2 := community(t, rand.New(rand.NewPCG(1, 2)), 300), community(t, rand.New(rand.NewPCG(3, 4)), 300)
	c := newCluster(t, w1, &server.Options{})
	c.node("a", all)
	c.open()
	nc := querytest.Connect(t, c.server)
	generation2 := func() query.Reader {
		r, err := spread.New(nc, spread.Options{Schema: w2.Schema, Directory: c, Generation: 2})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		return r.Far(0, time.Now())
	}
	ids := []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9}
	if got, err := like(t, generation2(), within(t, 20*time.Second), ids...); err == nil && len(got.Missing) < len(ids) {
		t.Errorf("generation 2 is answered by a node that has only the first: %+v", got)
	}
	if _, err := spread.AskCounted(within(t, 10*time.Second), nc, "a", 2); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("what generation 2 counts, of a node that does not have it: %v", err)
	}
	s, err := spread.Serve(nc, querytest.NewHolder(w2, "a", all), spread.ServerOptions{
		Node: "a", Generation: 2, Schema: w2.Schema, Shards: w2.Shards, Logger: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop(context.Background())
	if _, err := spread.AskCounted(within(t, 10*time.Second), nc, "a", 2); err != nil {
		t.Error(err)
	}
	for generation, of := range []struct {
		reader query.Reader
		world  *querytest.World
	}{{c.far(0, 0), w1}, {generation2(), w2}} {
		got, err := like(t, of.reader, within(t, 20*time.Second), ids...)
		want, _ := like(t, of.world.Reader(), context.Background(), ids...)
		if err == nil {
			err = sameRows(ids, &got, &want, len(likeColumns))
		}
		if err != nil {
			t.Errorf("generation %d: %v", generation+1, err)
		}
	}
}
