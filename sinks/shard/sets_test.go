package shard_test

import (
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// What a window needs is known before it is applied, and still is when an operation of
// the window empties a set for so many a time that eras begin again.
func TestSetsEmptiedOften(t *testing.T) {
	schema, err := pipeline.NewSchema([]string{"post"}, []pipeline.ColumnSpec{
		{Counter: 0, Name: "like", Bits: 8, Max: 63, Set: pipeline.SetSpec{Members: pipeline.MembersIDs}},
	})
	if err != nil {
		t.Fatal(err)
	}
	// Something is on disk: what memory does not know must be asked for.
	s := shard.New(0, schema, shard.Limits{}, shard.NewClock(100), shard.State{Applied: 10, Sequence: 1, Time: 1})
	columns := []pipeline.Column{0}
	for i := range uint64(300) {
		from := pipeline.Position(10 + 10*i)
		w := &pipeline.Window{Header: pipeline.Header{From: from, To: from + 10, Time: 1}, Columns: []string{"post.like"}, Sections: [][]byte{nil, nil}}
		for at, o := range []pipeline.Operation{
			{Op: pipeline.OpEmpty, ID: 5},
			{Op: pipeline.OpAdd, ID: 5, Member: pipeline.Member{A: 1 + i%100}, By: 1},
			{Op: pipeline.OpAdd, ID: 6, Member: pipeline.Member{A: 1}, By: 1},
			{Op: pipeline.OpEmpty, ID: 6},
		} {
			if o.Op == pipeline.OpAdd {
				o.Position = from + pipeline.Position(at) + 1
			}
			w.Sections[0] = pipeline.AppendOperation(w.Sections[0], from, &o)
		}
		want, _ := s.Wants(w, columns, func() {})
		if !want.Empty() && !s.Install(&want, &shard.Loaded{Members: make([]shard.Membership, len(want.Members))}) {
			t.Fatal("not installed")
		}
		if err := s.Apply(2+i, w, columns); err != nil {
			t.Fatalf("window %d: %v", i, err)
		}
	}
}
