package shard_test

import (
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// A list that is read from the disk while its user leaves memory has no floor: it is not
// taken in, and the window that wants it is prepared again.
func TestListWithoutItsUser(t *testing.T) {
	schema, err := pipeline.NewSchema([]string{"unread"}, []pipeline.ColumnSpec{
		{Name: "like", Bits: 8, Max: 63, Set: pipeline.SetSpec{Members: pipeline.MembersIDs, Keep: 1000, Items: 2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := shard.New(0, schema, shard.Limits{}, shard.NewClock(100), shard.State{Applied: 100, Sequence: 1})
	columns := []pipeline.Column{0}
	w := window(s, pipeline.Operation{Op: pipeline.OpWithdrawn, ID: 7, Member: pipeline.Member{A: 1}})
	item := func(identity uint64) shard.Item {
		return shard.Item{Position: pipeline.Position(10 * identity), Identity: pipeline.Member{A: identity}}
	}
	onDisk := [][]shard.Item{{item(3), item(1)}} // 2 was taken out when it was full, and 1 had left it
	want, at := s.Wants(w, columns, func() {})
	if len(want.Lists) != 1 || len(want.Marks) != 1 || s.Ready(at) {
		t.Fatalf("wanted: %+v, ready: %v", want, s.Ready(at))
	}
	if alone := (shard.Want{Lists: want.Lists, Published: want.Published}); !s.Install(&alone, &shard.Loaded{Lists: onDisk}) || s.Ready(at) {
		t.Fatal("a list is taken in without its user")
	}
	user := shard.User{ID: 7, Thin: true, Cursors: []shard.Cursor{{Channel: "floor.like", Position: 20}}}
	if !s.Install(&want, &shard.Loaded{Lists: onDisk, Users: []shard.User{user}}) || !s.Ready(at) {
		t.Fatal("not ready with all that is wanted")
	}
	if err := s.Apply(2, w, columns); err != nil {
		t.Fatal(err)
	}
	lists, err := s.Lists([]shard.Asked{{Column: 0, ID: 7}}, 9, nil)
	if err != nil {
		t.Fatal(err)
	}
	if lists[0].End(); len(lists[0].Items) != 1 || lists[0].Items[0] != item(3) {
		t.Errorf("the list is %+v", lists[0].Items)
	}
}
