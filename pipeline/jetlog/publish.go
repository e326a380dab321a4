package jetlog

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Reads publishes read events. It implements query.Publisher: it sends once,
// since a second read is not the same as a first.
type Reads struct{ streams *Streams }

// NewReads publishes to the EVENTS of s.
func NewReads(s *Streams) *Reads { return &Reads{s} }

// Publish returns when the event is stored, with its position.
func (r *Reads) Publish(ctx context.Context, event []byte) (pipeline.Position, error) {
	ack, err := r.streams.js.Publish(ctx, EventsSubject+"read", event,
		jetstream.WithExpectStream(EventsStream), jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, fmt.Errorf("jetlog: publish a read: %w", err)
	}
	return pipeline.At(ack.Sequence, 0), nil
}
