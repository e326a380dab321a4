package jetlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
)

// First implements pipeline.Log.
func (l *DeltaLog) First(ctx context.Context) (pipeline.Header, uint64, error) {
	h, first, err := l.first(ctx)
	if err != nil {
		return pipeline.Header{}, 0, fmt.Errorf("jetlog: read the first window of %s: %w", DeltasStream, err)
	}
	return h, first, nil
}

func (l *DeltaLog) first(ctx context.Context) (pipeline.Header, uint64, error) {
	missing := uint64(0)
	for {
		state, err := l.streams.sameState(ctx, DeltasStream)
		if err != nil || state.Messages == 0 {
			return pipeline.Header{}, 0, err
		}
		h, err := l.At(ctx, state.First)
		if errors.Is(err, jetstream.ErrMsgNotFound) && state.First != missing {
			missing = state.First // purged since
			continue
		}
		return h, state.First, err
	}
}

// At implements pipeline.Log.
func (l *DeltaLog) At(ctx context.Context, sequence uint64) (pipeline.Header, error) {
	stream, err := l.streams.js.Stream(ctx, DeltasStream)
	if err != nil {
		return pipeline.Header{}, err
	}
	m, err := stream.GetMsg(ctx, sequence)
	if err != nil {
		return pipeline.Header{}, fmt.Errorf("jetlog: read window %d of %s: %w", sequence, DeltasStream, err)
	}
	h, err := pipeline.DecodeHeader(m.Data)
	if err != nil {
		return pipeline.Header{}, fmt.Errorf("jetlog: window %d of %s: %w", sequence, DeltasStream, err)
	}
	return h, nil
}

// Delete removes a stream. The next OpenStreams makes it anew.
func (s *Streams) Delete(ctx context.Context, stream string) error {
	if err := s.js.DeleteStream(ctx, stream); err != nil {
		return fmt.Errorf("jetlog: delete stream %s: %w", stream, err)
	}
	return nil
}
