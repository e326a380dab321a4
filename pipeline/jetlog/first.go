package jetlog

import (
	"context"
	"fmt"

	"github.com/tidemark-io/tidemark/pipeline"
)

// First is the header of the oldest window still in the log; a zero header
// for a log that holds none. Its From is where the log takes over from what
// has been purged.
func (l *DeltaLog) First(ctx context.Context) (pipeline.Header, error) {
	fail := func(err error) (pipeline.Header, error) {
		return pipeline.Header{}, fmt.Errorf("jetlog: read the first window of %s: %w", DeltasStream, err)
	}
	state, err := l.streams.sameState(ctx, DeltasStream)
	if err != nil {
		return fail(err)
	}
	if state.Messages == 0 {
		return pipeline.Header{}, nil
	}
	h, err := l.At(ctx, state.First)
	if err != nil {
		return fail(err)
	}
	return h, nil
}

// At is the header of the window with a sequence.
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
