package audit

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
)

// docs/contract.md: "Such a rule adds for what is not yet in the key's set of those fields'
// values (1 or 2 ids, or a string token of up to 128 bytes) and puts it in; what is in the
// set adds nothing; `delete` takes away what is there and nothing else." And: "With `keep`
// (log time) a member is forgotten after that time, but what it counted stays". Any
// operations, in windows of any length, against a list of what was put in.
func TestSetsTwin(t *testing.T) {
	schema, err := pipeline.NewSchema([]string{"page"}, []pipeline.ColumnSpec{
		{Name: "fan", Set: pipeline.SetSpec{Members: pipeline.MembersPairs}, Default: 1},
		{Name: "view", Set: pipeline.SetSpec{Members: pipeline.MembersTokens, Keep: 30}},
		{Name: pipeline.ExistsColumn, Hidden: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"gone.column", "page.view", "page.fan", "page.exists"} // in an order of their own
	rapid.Check(t, func(t *rapid.T) {
		l := newLedger(schema, Limits{}, []bool{true}, Sample{}, nil, false)
		type key struct {
			column int
			id     uint64
			member pipeline.Member
		}
		since, cells := map[key]int64{}, map[[2]uint64]int64{}
		at, second := pipeline.Position(7), int64(0)
		for range rapid.IntRange(1, 6).Draw(t, "windows") {
			w := &pipeline.Window{Header: pipeline.Header{From: at}, Columns: names, Sections: [][]byte{nil, nil}}
			newest := int64(0) // of the marks, which know nothing of earlier windows
			for range rapid.IntRange(0, 8).Draw(t, "operations") {
				at += pipeline.Position(rapid.IntRange(1, 3).Draw(t, "later"))
				if now := 100 + rapid.Int64Range(0, 120).Draw(t, "second"); now > newest && rapid.Bool().Draw(t, "a mark") {
					w.Marks = append(w.Marks, pipeline.TimeMark{Second: now, Position: at})
					newest, second = now, max(second, now)
				}
				o := pipeline.Operation{
					Op: rapid.SampledFrom([]pipeline.Op{pipeline.OpAdd, pipeline.OpAdd, pipeline.OpTake, pipeline.OpEmpty}).Draw(t, "op"),
					ID: rapid.Uint64Range(1, 2).Draw(t, "id"), Column: rapid.IntRange(0, 2).Draw(t, "column"), Position: at,
					Member: pipeline.Member{A: rapid.Uint64Range(1, 3).Draw(t, "a"), B: 1}, By: rapid.Int64Range(-2, 3).Draw(t, "by"),
				}
				w.Sections[0] = pipeline.AppendOperation(w.Sections[0], w.From, &o)
				if o.Column == 0 {
					continue
				}
				k, by := key{o.Column, o.ID, o.Member}, o.By
				put, there := since[k]
				there = there && (o.Column == 2 || second-put <= 30)
				switch {
				case o.Op == pipeline.OpEmpty:
					for other := range since {
						if other.column == o.Column && other.id == o.ID {
							delete(since, other)
						}
					}
					continue
				case o.Op == pipeline.OpAdd && !there:
					since[k] = second
				case o.Op == pipeline.OpTake && there:
					delete(since, k)
					by = -by
				default:
					continue
				}
				cells[[2]uint64{uint64(o.Column), o.ID}] += by
				cells[[2]uint64{3, o.ID}] = 1
			}
			at++
			w.To = at
			decoded, err := pipeline.DecodeWindow(pipeline.AppendWindow(nil, w))
			if err != nil {
				t.Fatal(err)
			}
			if err := l.apply(decoded); err != nil {
				t.Fatal(err)
			}
		}
		for id := uint64(1); id <= 2; id++ {
			var row []int64
			if row = l.parts[0].rows[0].row(id); row == nil {
				row = make([]int64, 3)
			}
			want := []int64{cells[[2]uint64{2, id}], cells[[2]uint64{1, id}], cells[[2]uint64{3, id}]}
			if fmt.Sprint(row) != fmt.Sprint(want) {
				t.Fatalf("row %d is %v, want %v", id, row, want)
			}
		}
		if got := l.parts[0].bytes(); got != l.bytes {
			t.Fatalf("%d bytes, counted %d", got, l.bytes)
		}
	})
}

// A base says which members there were: what it has counted is not counted again. And
// what is forgotten goes, or a ledger of a year would hold every token of the year.
func TestSetsOfABase(t *testing.T) {
	schema, err := pipeline.NewSchema([]string{"page"}, []pipeline.ColumnSpec{{Name: "view", Set: pipeline.SetSpec{Members: pipeline.MembersIDs, Keep: 10}}})
	if err != nil {
		t.Fatal(err)
	}
	l := newLedger(schema, Limits{}, []bool{true}, Sample{}, nil, false)
	l.translate([]string{"page.view"})
	l.seed(pipeline.Fact{Kind: pipeline.FactCell, ID: 5, Value: 40})
	l.seed(pipeline.Fact{Kind: pipeline.FactMember, ID: 5, Member: pipeline.Member{A: 1}, Value: 100})
	l.seconds.before = 110
	for _, id := range []uint64{1, 2} {
		l.member(&pipeline.Operation{Op: pipeline.OpAdd, ID: 5, Member: pipeline.Member{A: id}, By: 1, Position: 9})
	}
	if row := l.parts[0].rows[0].row(5); row[0] != 41 {
		t.Errorf("the row is %v, want 41", row)
	}
	for i := range uint64(10_000) {
		l.seconds.before = 200 + int64(i)
		l.member(&pipeline.Operation{Op: pipeline.OpAdd, ID: 5, Member: pipeline.Member{A: i + 1}, By: 1, Position: 9})
	}
	if n := len(l.parts[0].sets[setOf{0, 5}].since); n > membersMany || l.parts[0].bytes() != l.bytes {
		t.Errorf("%d members are held, in %d bytes, counted %d", n, l.parts[0].bytes(), l.bytes)
	}
}
