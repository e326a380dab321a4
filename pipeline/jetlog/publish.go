package jetlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Reads publishes read events. It implements query.Publisher: a second read is
// not the same as a first, so it sends again only what nobody was there to take.
type Reads struct{ streams *Streams }

// NewReads publishes to the EVENTS of s.
func NewReads(s *Streams) *Reads { return &Reads{s} }

// A stream without a leader, which moves from one server of a cluster to
// another, is waited for this often and this long.
const (
	leaderTries = 8
	leaderWait  = 250 * time.Millisecond
)

// Publish returns when the event is stored, with its position.
func (r *Reads) Publish(ctx context.Context, event []byte) (pipeline.Position, error) {
	ack, err := r.streams.js.Publish(ctx, EventsSubject+"read", event,
		jetstream.WithExpectStream(EventsStream), jetstream.WithRetryAttempts(leaderTries), jetstream.WithRetryWait(leaderWait))
	if Full(err) {
		return 0, fmt.Errorf("jetlog: publish a read: %w: %w", pipeline.ErrFull, err)
	}
	if errors.Is(err, jetstream.ErrNoStreamResponse) { // each time that it was tried
		return 0, fmt.Errorf("jetlog: publish a read: %w: %w", pipeline.ErrNoLog, err)
	}
	if err != nil {
		return 0, fmt.Errorf("jetlog: publish a read: %w", err)
	}
	return pipeline.At(ack.Sequence, 0), nil
}

// storeFailed is the server's code for an event that it could not store. The
// description says whether that was for a limit of the stream, which it looks
// at before it writes ("maximum bytes exceeded"), or for the disk, which may
// have it all the same.
const storeFailed = 10077

// Full is true when the stream's limits refused a message.
func Full(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.ErrorCode == storeFailed && strings.HasPrefix(api.Description, "maximum ")
}
