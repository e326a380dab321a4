package move_test

import (
	"context"
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const worldShards = 4

var (
	bg    = context.Background()
	quiet = slog.New(slog.DiscardHandler)
)

// openStore is an empty store of "post.like".
func openStore(t testing.TB, shards int) *cold.Store { return openStoreOf(t, shards, "post", "like") }

func openStoreOf(t testing.TB, shards int, counter, column string) *cold.Store {
	t.Helper()
	schema, err := pipeline.NewSchema([]string{counter}, []pipeline.ColumnSpec{{Name: column, Bits: 16, Max: 63}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := cold.Open(t.TempDir(), schema, cold.Options{Shards: shards, Node: "n", MemTableBytes: 8 << 20, BlockCache: 1 << 20, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
