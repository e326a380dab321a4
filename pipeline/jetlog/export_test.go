package jetlog

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// RenewAs does what a node does that has found DELTAS, as it was when made then,
// useless.
func (s *Streams) RenewAs(ctx context.Context, created time.Time, why error) error {
	return s.renew(ctx, edition{created: created}, why)
}

// CreateDeltas is createDeltas.
func (s *Streams) CreateDeltas(ctx context.Context) (made bool, err error) {
	return s.createDeltas(ctx)
}

// TellRemadeEvery sets how often the log has that a stream was recreated, and
// returns what it was.
func TellRemadeEvery(every time.Duration) (was time.Duration) {
	was, remadeLogEvery = remadeLogEvery, every
	return was
}

// WithJetStream has the streams use another client.
func (s *Streams) WithJetStream(wrap func(jetstream.JetStream) jetstream.JetStream) {
	s.js = wrap(s.js)
}
