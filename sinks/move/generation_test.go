package move_test

import (
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/sinks/move"
)

// A node gives the runs of the generation that it is asked for, and nobody answers for
// one that it does not have.
func TestGenerations(t *testing.T) {
	t.Parallel()
	if got := move.Subject("a", 1); got != "tidemark.hold.a.g1.runs" || move.Subject("a", 0) != got {
		t.Errorf("the first generation is asked at %s", got)
	}
	if got := move.Subject("a", 2); got != "tidemark.hold.a.g2.runs" {
		t.Errorf("the second generation is asked at %s", got)
	}
	nc, from, _, _ := trouble(t, move.ServeOptions{})
	fill(t, from, 1, 2, 50)
	if m, err := move.Describe(bg, nc, "a", move.Options{Generation: 2}); err == nil || !strings.Contains(err.Error(), "nobody answers") {
		t.Errorf("a node that has only the first generation describes the second: %+v, %v", m, err)
	}
	second := openStore(t, worldShards)
	fill(t, second, 1, 5, 80)
	serve(t, nc, "a", second, move.ServeOptions{Generation: 2})
	if _, err := move.Describe(bg, nc, "a", move.Options{Generation: 2}); err != nil {
		t.Error(err)
	}
	for n, rows := range map[int]int{1: 50, 2: 80} {
		to := openStore(t, worldShards)
		o := move.Options{}
		source := from
		if n == 2 {
			o.Generation, source = 2, second
		}
		state, err := move.Fetch(bg, nc, "a", to, 1, o)
		if err != nil {
			t.Fatal(err)
		}
		there, err := source.Stack(1).State()
		if err != nil || state.Applied != there.Applied {
			t.Errorf("generation %d: %+v was fetched, and %+v is there: %v", n, state, there, err)
		}
		sameRows(t, source, to, 1, rows)
	}
}
