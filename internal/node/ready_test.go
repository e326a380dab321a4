package node

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/nodetest"
)

// A node that nobody can ask is not ready.
func TestReadyWithoutQueries(t *testing.T) {
	c := nodetest.EachLikeCounts()
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

// A process that answers for everything never says that nobody does, also before the others
// have heard of it: when it starts again, they have it as stopped.
func TestOwnShardsAreAnswered(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.Config("a", "route hold answer")
	for range 2 {
		n := s.Start(c)
		for deadline := time.Now().Add(e2e.Patience); len(n.Serving().View().Answering(0)) == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("it does not say that it is ready")
			}
			if is := n.remarks(); strings.Contains(is, "no node answers") {
				t.Fatalf("it holds all, and says: %s", is)
			}
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
