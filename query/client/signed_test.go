package client_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/tidemark-io/tidemark/query/client"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
)

// docs/contract.md: "`signed: true`", "never negative in an answer" otherwise; "`\"raw\": true` …
// has sums as they are": in JSON, and in the binary form that the client goes over to.
func TestSignedColumns(t *testing.T) {
	r := start(t)
	schema := querytest.SetsSchema(t)
	for _, name := range []string{"item.balance", "item.plain"} {
		column, _ := schema.Find(name)
		r.reader.Set(schema.Columns[column].Counter, column, 7, -5)
		r.reader.Set(schema.Columns[column].Counter, column, 8, -1000)
	}
	r.reader.Apply(2048)
	for range 3 {
		for raw, want := range map[bool]string{false: "[{7 [-5 0] []} {8 [-255 0] []}]", true: "[{7 [-5 -5] []} {8 [-1000 -1000] []}]"} {
			got, err := r.client.Get(context.Background(), client.GetRequest{Counter: "item", IDs: []uint64{7, 8}, Columns: []string{"balance", "plain"}, Raw: raw})
			if err != nil || fmt.Sprint(got.Rows) != want {
				t.Errorf("raw %v: %v %v, want %s", raw, got.Rows, err, want)
			}
		}
	}
}
