package jetlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
)

// First implements pipeline.Log. A log that begins with what is no window is
// recreated, and the error wraps ErrNoWindow.
func (l *DeltaLog) First(ctx context.Context) (pipeline.Header, uint64, error) {
	h, first, err := l.first(ctx)
	if err != nil {
		return pipeline.Header{}, 0, fmt.Errorf("jetlog: read the first window of %s: %w", l.streams.deltas(), err)
	}
	return h, first, nil
}

func (l *DeltaLog) first(ctx context.Context) (pipeline.Header, uint64, error) {
	missing := uint64(0)
	for {
		e, state, err := l.streams.edition(ctx)
		if err != nil || state.Messages == 0 {
			return pipeline.Header{}, 0, err
		}
		h, err := l.at(ctx, e, state.First)
		if errors.Is(err, jetstream.ErrMsgNotFound) && state.First != missing {
			missing = state.First // purged since
			continue
		}
		if errors.Is(err, ErrNoWindow) {
			return pipeline.Header{}, 0, errors.Join(err, l.streams.renew(ctx, e, err))
		}
		return h, state.First, err
	}
}

// At implements pipeline.Log.
func (l *DeltaLog) At(ctx context.Context, sequence uint64) (pipeline.Header, error) {
	e, _, err := l.streams.edition(ctx)
	if err != nil {
		return pipeline.Header{}, err
	}
	return l.at(ctx, e, sequence)
}

// at is the header of a window of an edition.
func (l *DeltaLog) at(ctx context.Context, e edition, sequence uint64) (pipeline.Header, error) {
	m, err := GetStored(ctx, l.streams.nc, l.streams.deltas(), sequence)
	if err == nil {
		err = e.check(sequence, m.Subject, m.Data)
	}
	if err != nil {
		return pipeline.Header{}, fmt.Errorf("jetlog: read window %d of %s: %w", sequence, l.streams.deltas(), err)
	}
	h, err := pipeline.DecodeHeader(m.Data)
	if err != nil {
		return pipeline.Header{}, fmt.Errorf("jetlog: window %d of %s: %w", sequence, l.streams.deltas(), err)
	}
	return h, nil
}

// Delete removes a stream, but not another generation's DELTAS. The next OpenStreams
// recreates it.
func (s *Streams) Delete(ctx context.Context, stream string) error {
	if stream == s.deltas() {
		if _, _, err := s.edition(ctx); err != nil {
			return err
		}
	}
	if err := s.js.DeleteStream(ctx, stream); err != nil {
		return fmt.Errorf("jetlog: delete stream %s: %w", stream, err)
	}
	return nil
}
