package audit

import (
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

// A channel that a user has first read after it was asked what is served is not in the
// answer, whose position may be after that: it is no difference.
func TestCursorReadMeanwhile(t *testing.T) {
	schema, err := pipeline.NewSchema(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := newLedger(schema, Limits{}, []bool{true}, Sample{}, nil, false)
	read := func(at pipeline.Position, channel string) {
		l.operate(&pipeline.Operation{Op: pipeline.OpRead, ID: 7, Position: at, Mark: at, Channels: []string{channel}})
	}
	read(1, "games")
	read(2, "games")
	ask := &pipeline.FactsAsk{Part: pipeline.PartUser, IDs: []uint64{7}, Channels: []string{"games"}}
	read(3, "promo")
	e := l.facts(nil, ask, whole{})
	cursor := func(name string) (at int64) {
		for _, f := range e {
			if f.Kind == pipeline.FactCursor && f.ID == 7 && f.Name == name {
				at = f.Value
			}
		}
		return at
	}
	if cursor("games") != 2 || cursor("promo") != 0 {
		t.Errorf("cursors are %d in games and %d in promo", cursor("games"), cursor("promo"))
	}
}
