package shard_test

import (
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// A profile goes from one request to the next, and from a shard to one of
// another configuration: what it was used for before has no say.
func TestProfileIsUsedAgain(t *testing.T) {
	several, none := schemaOf(t), new(pipeline.Schema)
	if len(several.Counters) < 2 {
		t.Fatalf("%d counters", len(several.Counters))
	}
	open := func(schema *pipeline.Schema) *shard.Shard {
		return shard.New(0, schema, shard.Limits{PostsMax: 10, Retention: 100, Inactive: 100}, shard.NewClock(100), shard.State{Applied: 10, Sequence: 1})
	}
	var p shard.Profile
	for _, test := range []struct {
		schema  *pipeline.Schema
		counter int
	}{{several, len(several.Counters) - 1}, {none, -1}} {
		pinned := 0
		if _, err := open(test.schema).Profile(7, test.counter, nil, &p, func() { pinned++ }); err != nil {
			t.Fatal(err)
		}
		user, row := p.Missing()
		if !user || pinned != 1 || (row != nil) != (test.counter >= 0) {
			t.Errorf("counter %d: pinned %d times, user missing: %v, row missing: %v", test.counter, pinned, user, row != nil)
		}
	}
}
