package jetlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrNoBucket: no node has run on this server yet.
var ErrNoBucket = errors.New("jetlog: there is no bucket " + Bucket)

// Attach opens the streams of other nodes for a process that keeps none of them:
// to watch and join the members, to publish reads and to look how far EVENTS goes.
// Nothing is created, and Restore must not be called. ErrNoBucket says that no node
// has run yet. The owner is compared where DELTAS is used. A nil logger logs
// nothing. The connection stays the caller's.
func Attach(ctx context.Context, nc *nats.Conn, slot Slot, of Owner, logger *slog.Logger) (*Streams, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("jetlog: attach: %w", err)
	}
	bucket, err := js.KeyValue(ctx, Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, fmt.Errorf("%w (%w)", ErrNoBucket, err)
	}
	if err != nil {
		return nil, fmt.Errorf("jetlog: open bucket %s: %w", Bucket, orNoJetStream(err))
	}
	s := newStreams(nc, js, slot, of, logger)
	s.bucket = bucket
	return s, nil
}

// OpenBucket is Attach for a node that may be the first one on this server: it creates
// the bucket if that is missing, after it has compared all streams that are there with
// what it wants, as OpenStreams does.
func OpenBucket(ctx context.Context, nc *nats.Conn, o StreamOptions) (*Streams, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("jetlog: open the bucket: %w", err)
	}
	o = o.withDefaults()
	s := newStreams(nc, js, o.Slot, o.Generation, o.Logger)
	configs := o.configs(nc.MaxPayload())
	if err := s.refuseMisfits(ctx, configs); err != nil {
		return nil, err
	}
	for _, c := range configs {
		if c.Name != BucketStream {
			continue
		}
		if err := s.openStream(ctx, c); err != nil {
			return nil, err
		}
	}
	return Attach(ctx, nc, o.Slot, o.Generation, o.Logger)
}

// AttachEvents is Attach for a process that reads EVENTS as well.
func AttachEvents(ctx context.Context, nc *nats.Conn, slot Slot, logger *slog.Logger) (*Streams, error) {
	s, err := Attach(ctx, nc, slot, Owner{}, logger)
	if err != nil {
		return nil, err
	}
	state, err := s.State(ctx, EventsStream)
	s.created = state.Created
	return s, err
}
