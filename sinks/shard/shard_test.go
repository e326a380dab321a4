package shard_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// schemaOf is a schema of some columns, "post.like" and "user.post" if none
// are named; those of a counter are neighbours.
func schemaOf(t testing.TB, full ...string) *pipeline.Schema {
	t.Helper()
	if len(full) == 0 {
		full = []string{"post.like", "user.post"}
	}
	var counters []string
	var columns []pipeline.ColumnSpec
	for _, name := range full {
		counter, column, _ := strings.Cut(name, ".")
		if !slices.Contains(counters, counter) {
			counters = append(counters, counter)
		}
		columns = append(columns, pipeline.ColumnSpec{Counter: len(counters) - 1, Name: column, Bits: 16})
	}
	schema, err := pipeline.NewSchema(counters, columns)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func TestSaturationIsCounted(t *testing.T) {
	s := shard.New(0, schemaOf(t), shard.Limits{PostsMax: 10}, shard.NewClock(1), shard.State{})
	w := &pipeline.Window{Header: pipeline.Header{To: 1}, Sections: [][]byte{pipeline.AppendChange(nil, 0, 1, pipeline.Set(math.MaxInt64)), nil}}
	if err := s.Apply(1, w, []pipeline.Column{0}); err != nil {
		t.Fatal(err)
	}
	if stats := s.Stats(); stats.Columns[0].Saturated != 1 || stats.Counters[0].Rows != 1 || stats.Counters[1].Rows != 0 || stats.Dirty != 1 || stats.Bytes <= 0 {
		t.Errorf("%+v", stats)
	}
}
