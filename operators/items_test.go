package operators_test

import (
	"testing"

	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
)

// An event is in a list once, whatever its rules: two of them may name the same user.
func TestAnEventIsOnceInAList(t *testing.T) {
	rules := operators.Rules{"reply": {{Add: "unread.reply", Key: "author"}, {Add: "unread.reply", Key: "target"}}}
	spec, err := rules.List("unread.reply", 5, 60)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := pipeline.NewSchema([]string{"unread"}, []pipeline.ColumnSpec{{Name: "reply", Bits: 8, Max: 63, Set: spec}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := operators.Compile(schema, rules, 1, operators.Limits{Events: 10, Bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]int{`{"actor":1,"author":7,"target":7}`: 1, `{"actor":1,"author":7,"target":8}`: 2} {
		derived, err := p.NewLane().Derive(0, pipeline.EndOf(1), []pipeline.Message{{Sequence: 1, Subject: "events.reply", Data: []byte(body), Time: 1}})
		if err != nil {
			t.Fatal(err)
		}
		w, err := pipeline.DecodeWindow(derived[0].Window)
		if err != nil {
			t.Fatal(err)
		}
		items := 0
		section := pipeline.ReadSection(w.Sections[0], w.From)
		for c, ok := section.Next(); ok; c, ok = section.Next() {
			if c.Op == pipeline.OpItem {
				items++
			}
		}
		if items != want {
			t.Errorf("%s makes %d items, want %d", body, items, want)
		}
	}
}
