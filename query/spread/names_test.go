package spread

import (
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/query/internal/querytest"
	"github.com/tidemark-io/tidemark/query/wire"
)

// Names that anybody may send are not remembered without end: neither how many, nor
// how long they are.
func TestNamesRemembered(t *testing.T) {
	n := &names{schema: querytest.Schema(t), known: map[string]*resolved{}}
	find := func(columns []string) {
		t.Helper()
		r, err := n.find(wire.AppendNames(nil, wire.Names{Counter: "post", Columns: columns}))
		if err != nil || len(r.columns) != len(columns) {
			t.Fatal(r, err)
		}
	}
	for i := range 200 {
		find(slices.Repeat([]string{"like"}, i%100))
		find(slices.Repeat([]string{"repost"}, i%100))
	}
	find(slices.Repeat([]string{"like"}, 2000))
	if len(n.known) == 0 || len(n.known) > knownMax {
		t.Errorf("%d are remembered", len(n.known))
	}
	for packed := range n.known {
		if len(packed) > knownBytes {
			t.Errorf("names of %d bytes are remembered", len(packed))
		}
	}
}
