package natstest

import (
	"fmt"
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

// Main runs the tests of a package whose tests have servers of their own, several side by
// side, and fails if they leave goroutines.
//
// A server that is shut down while it takes up a stream of its cluster may leave
// that stream's file store running: nats-server does not close what it has just
// made then.
func Main(m *testing.M) {
	const server = "github.com/nats-io/nats-server/v2/server"
	SideBySide(4)
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction(server+".(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction(server+"/ats.Register.func1"))
}

// Log shows what is logged beside a failing test.
func Log(tb testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// FreeAddress is one that nobody listens on.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	return fmt.Sprintf("127.0.0.1:%d", e2e.FreePort(tb))
}
