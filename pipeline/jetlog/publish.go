package jetlog

import (
	"context"
	"fmt"
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
	if err != nil {
		return 0, fmt.Errorf("jetlog: publish a read: %w", err)
	}
	return pipeline.At(ack.Sequence, 0), nil
}
