package node

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/cmd/tidemark/config"
)

// A node that nobody can ask is not ready.
func TestReadyWithoutQueries(t *testing.T) {
	c := config.Default()
	c.DataDir, c.NATS.Listen, c.HTTP.Listen, c.Shards = t.TempDir(), "127.0.0.1:0", "", 4
	n, err := Start(t.Context(), c, Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() }) // its queries cannot be drained
	for tries := 0; n.Ready() != nil; tries++ {
		if tries == 1000 {
			t.Fatal(n.Ready())
		}
		time.Sleep(10 * time.Millisecond)
	}
	n.queries.Close()
	if err := n.Ready(); err == nil || !strings.Contains(err.Error(), "queries: their connection to the NATS server is lost") {
		t.Errorf("without the queries' connection: %v", err)
	}
}
