package check

import (
	"iter"
	"math"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

// A base's own events begin where its lowest shard stands, which need not be derived: whole
// runs of them may be before where a derivation begins.
func TestRunsBeforeTheBeginning(t *testing.T) {
	messages := make([]pipeline.Message, 9) // they come three at a time
	for i := range messages {
		messages[i].Sequence = uint64(i + 1)
	}
	d := &derivation{at: pipeline.EndOf(7), source: &source{messages}}
	if err := d.next(t.Context()); err != nil || d.run[0].Sequence != 8 {
		t.Errorf("it goes on with %v, %v", d.run, err)
	}
}

// The ids of two sides come once, ascending, whatever either has, up to the last id there is.
func TestBothSides(t *testing.T) {
	of := func(kinds tier.Kinds, ids ...uint64) iter.Seq2[tier.Stored, error] {
		return func(yield func(tier.Stored, error) bool) {
			for _, id := range ids {
				if !yield(tier.Stored{ID: id, Kinds: kinds}, nil) {
					return
				}
			}
		}
	}
	for _, c := range []struct {
		a, b []uint64
		want []tier.Stored
	}{
		{nil, nil, nil},
		{nil, []uint64{5, math.MaxUint64}, []tier.Stored{{ID: 5, Kinds: 2}, {ID: math.MaxUint64, Kinds: 2}}},
		{[]uint64{1, 5, 9}, []uint64{0, 5, 7}, []tier.Stored{{ID: 0, Kinds: 2}, {ID: 1, Kinds: 1}, {ID: 5, Kinds: 3}, {ID: 7, Kinds: 2}, {ID: 9, Kinds: 1}}},
		{[]uint64{math.MaxUint64}, []uint64{math.MaxUint64}, []tier.Stored{{ID: math.MaxUint64, Kinds: 3}}},
	} {
		var got []tier.Stored
		for s := range both(of(1, c.a...), of(2, c.b...)) {
			got = append(got, s)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v and %v are %v, want %v", c.a, c.b, got, c.want)
		}
		for range both(of(1, c.a...), of(2, c.b...)) { // a caller may end it
			break
		}
	}
}
