package audit

import (
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

// docs/contract.md: "With `keep` (log time) a member is forgotten after that time, but what it
// counted stays." A base says which members there were: what it has counted is not counted again. And
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
