package explain

import (
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// docs/contract.md: "`default` is answered for a row that does not exist", a user's too that
// is deleted before there is one.
func TestDeletionOfNoRow(t *testing.T) {
	n := number{spec: &pipeline.ColumnSpec{Default: 9}}
	c := count{number: n, state: rowGone, known: true}
	for i, s := range []struct {
		row  rowStep
		did  int64
		want int64
	}{{rowKept, 0, 9}, {rowMade, 5, 5}, {rowKept, 0, 0}, {rowGone, 0, 9}} {
		c.value = s.did
		change := query.NumberChange{Touched: true, Set: true, N: s.did}
		if c.withDefault(s.row, &change); change.N != s.want {
			t.Errorf("step %d: %+v, want %d", i, change, s.want)
		}
	}
}
