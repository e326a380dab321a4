package shard_test

import (
	"maps"
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
		want := s.Wants(w, columns, func() {})
		if !want.Empty() && !s.Install(&want, &shard.Loaded{Members: make([]shard.Membership, len(want.Members))}) {
			t.Fatal("not installed")
		}
		if err := s.Apply(2+i, w, columns); err != nil {
			t.Fatalf("window %d: %v", i, err)
		}
	}
}

// docs/events.md: "With `keep` a member is forgotten once the log time of an event is more
// than `keep` after that of the event that put it in". Log time never goes back, whatever
// clock stamped an event; and neither how the log was cut into windows nor a start has
// a say.
func TestSetsLogTime(t *testing.T) {
	schema, err := pipeline.NewSchema([]string{"page"}, []pipeline.ColumnSpec{
		{Counter: 0, Name: "view", Bits: 8, Max: 63, Set: pipeline.SetSpec{Members: pipeline.MembersTokens, Keep: 10}},
	})
	if err != nil {
		t.Fatal(err)
	}
	// By position, from 1 on: when each event came, and which page it is a view of.
	events := []struct{ second, page int64 }{
		{100, 1}, {95, 2}, {108, 1}, {110, 1}, {110, 2}, {111, 1}, {99, 2}, {150, 3}, {120, 3}, {160, 3}, {161, 3}, {90, 3},
	}
	// 1 and 2 at 100; both again at 111, the second by an event of 99; 3 at 150 and 161.
	want := map[uint64]int64{1: 2, 2: 2, 3: 2}
	for _, cuts := range [][]int{{12}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {6, 7, 12}, {5, 10, 12}} {
		for _, starts := range []bool{false, true} {
			s := shard.New(0, schema, shard.Limits{}, shard.NewClock(100), shard.State{})
			from, sequence, counts := 0, uint64(0), map[uint64]int64{}
			members := map[uint64]shard.Membership{}
			for _, to := range cuts {
				w := &pipeline.Window{Header: pipeline.Header{From: pipeline.Position(from), To: pipeline.Position(to)}, Columns: []string{"page.view"}, Sections: [][]byte{nil, nil}}
				for i, e := range events[from:to] {
					at := w.From + pipeline.Position(i) + 1
					if 1000*e.second > w.Time { // as the operators do
						w.Time = 1000*e.second + 999
						w.Marks = append(w.Marks, pipeline.TimeMark{Second: e.second, Position: at})
					}
					w.Sections[0] = pipeline.AppendOperation(w.Sections[0], w.From, &pipeline.Operation{Op: pipeline.OpAdd, ID: uint64(e.page), Member: pipeline.Member{A: 7}, By: 1, Position: at})
				}
				if starts {
					s = shard.New(0, schema, shard.Limits{}, shard.NewClock(100), s.State())
					wants := s.Wants(w, []pipeline.Column{0}, func() {})
					found := make([]shard.Membership, len(wants.Members))
					for i, of := range wants.Members {
						found[i] = members[of.ID]
					}
					s.Install(&wants, &shard.Loaded{Members: found})
				}
				sequence++
				if err := s.Apply(sequence, w, []pipeline.Column{0}); err != nil {
					t.Fatal(err)
				}
				from = to
				if !starts {
					continue
				}
				s.HandOver()
				s.Write(&keptSink{members: members, counts: counts})
				s.Settle(true, func() {})
			}
			if !starts {
				var b shard.Batch
				if _, err := s.Read(0, []uint64{1, 2, 3}, &b, nil, func(i int, cells []int64) { counts[uint64(i)+1] = cells[0] }); err != nil {
					t.Fatal(err)
				}
			}
			if !maps.Equal(counts, want) {
				t.Errorf("cut at %v, started between: %v: views %v, want %v", cuts, starts, counts, want)
			}
		}
	}
}

// keptSink keeps sets of one member, and their numbers.
type keptSink struct {
	shard.Sink
	members map[uint64]shard.Membership
	counts  map[uint64]int64
}

func (k *keptSink) Row(_ int, id uint64, cells []int64) { k.counts[id] = cells[0] }

func (k *keptSink) Change(_ int, id uint64, deltas []pipeline.Delta) {
	v, _ := deltas[0].Amount()
	k.counts[id] += v
}

func (k *keptSink) Member(_ pipeline.Column, id uint64, _ pipeline.Member, second int64, there bool) {
	k.members[id] = shard.Membership{Second: second, There: there}
}

func (k *keptSink) State(shard.State) {}
