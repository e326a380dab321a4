// Package led asks a NATS server that may have no leader yet: its cluster is choosing one,
// or has just started.
//
// [Context] bounds what a start asks of it. [Asker.Until] repeats a request until the
// server is ready for it, and says why it waits among the troubles.
package led

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

const (
	// StartWithin bounds the requests to the server during the start.
	StartWithin = 30 * time.Second
	// LookWithin bounds requests to the server that usually take a moment. In a cluster
	// without a leader nobody answers, and a request that was sent then is never answered: a
	// caller that must ask again must not wait for long.
	LookWithin = 5 * time.Second
	// retryAfter paces what failed and is tried again.
	retryAfter = time.Second
)

// Part is what keeps a start from going on, among the troubles.
const Part = "start"

// Context bounds what a start asks of the server. In a cluster there is no limit: the
// start waits for the other servers.
func Context(ctx context.Context, cluster bool) (context.Context, context.CancelFunc) {
	if cluster {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, StartWithin)
}

// Asker asks a server, and says among the troubles and in the log why something waits for it.
type Asker struct {
	NC      *nats.Conn
	Trouble *kit.Troubles
	Log     *slog.Logger
}

// Until calls do, which asks the server, and repeats it while passing(err) holds: the
// server's cluster is choosing a leader or has just started. Each call has the time within.
func (a Asker) Until(ctx context.Context, within time.Duration, passing func(error) bool, do func(context.Context) error) error {
	var log kit.Paced
	for {
		before := a.NC.LastError()
		try, cancel := context.WithTimeout(ctx, within)
		err := do(try)
		cancel()
		denied := a.NC.LastError()
		switch {
		case err == nil || !passing(err):
			a.Trouble.Clear(Part)
			return err
		case denied != before && jetlog.Denial(denied) != "":
			return fmt.Errorf("the NATS server does not let this node do so: %s: %w", jetlog.Denial(denied), err)
		case ctx.Err() != nil:
			return fmt.Errorf("the NATS server did not have its streams ready within %v, has its cluster a leader, and are the files of bucket TIDEMARK whole (docs/failures.md, Damaged files)? %w: %w", StartWithin, err, ctx.Err())
		}
		a.Trouble.Set(Part, fmt.Errorf("the NATS server does not have its streams ready: %w", err))
		if log.Due(err.Error()) {
			a.Log.Warn("the NATS server does not have its streams ready; trying again", "error", err)
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
		}
	}
}
