package jetlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
)

const (
	// appendTimeout bounds one append; what became of it is read from Tail. An
	// answer that a server took along when it stopped never comes, and as long
	// nothing is counted: less than the default of ready.lag.
	appendTimeout = 2 * time.Second

	// The server's two ways to say that the expected sequence is not the
	// last one; the second when the competing message is still on its way
	// through the cluster.
	wrongLastSequence         = jetstream.JSErrCodeStreamWrongLastSequence
	wrongLastSequenceInFlight = jetstream.JSErrCodeStreamWrongLastSequenceConstant
)

// DeltaLog is DELTAS. It implements pipeline.Log. Safe for concurrent use.
type DeltaLog struct {
	streams *Streams
}

var _ pipeline.Log = (*DeltaLog)(nil)

// NewDeltaLog appends to the DELTAS of s.
func NewDeltaLog(s *Streams) *DeltaLog { return &DeltaLog{streams: s} }

// Tail implements pipeline.Log. It asks the stream's leader (the stream has
// no direct get, which any replica may answer, behind the times).
//
// A log whose last window was deleted, or that was emptied, no longer says
// where to go on: an error that wraps pipeline.ErrGap. One that was made anew
// since OpenStreams: ErrTail.
func (l *DeltaLog) Tail(ctx context.Context) (pipeline.Header, uint64, error) {
	h, last, err := l.tail(ctx)
	if err != nil {
		return pipeline.Header{}, 0, fmt.Errorf("jetlog: read the tail of %s: %w", DeltasStream, err)
	}
	return h, last, nil
}

func (l *DeltaLog) tail(ctx context.Context) (pipeline.Header, uint64, error) {
	stream, err := l.streams.js.Stream(ctx, DeltasStream)
	if err != nil {
		return pipeline.Header{}, 0, err
	}
	missing := uint64(0)
	for {
		state, err := l.streams.sameState(ctx, DeltasStream)
		if err != nil || state.Last == 0 {
			return pipeline.Header{}, 0, err
		}
		if state.Last == missing {
			return pipeline.Header{}, 0, fmt.Errorf("%w: the last window, sequence %d, was deleted", pipeline.ErrGap, missing)
		}
		m, err := stream.GetMsg(ctx, state.Last)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			missing = state.Last // deleted, or purged behind a newer one
			continue
		}
		if err != nil {
			return pipeline.Header{}, 0, err
		}
		w, err := pipeline.DecodeWindow(m.Data)
		if err != nil {
			return pipeline.Header{}, 0, fmt.Errorf("sequence %d: %w", state.Last, err)
		}
		return w.Header, state.Last, nil
	}
}

// Append implements pipeline.Log. It sends once and never again by itself, and
// nothing without a connection: nats.go would keep it for the next one, where
// it may find another log that has come to the sequence it names.
func (l *DeltaLog) Append(ctx context.Context, last uint64, window []byte) (uint64, error) {
	if !l.streams.nc.IsConnected() {
		return 0, fmt.Errorf("jetlog: append to %s after sequence %d: %w", DeltasStream, last, nats.ErrDisconnected)
	}
	ctx, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	got, err := l.streams.js.PublishMsg(ctx, &nats.Msg{Subject: DeltasSubject, Data: window},
		jetstream.WithExpectLastSequence(last),
		jetstream.WithExpectStream(DeltasStream),
		jetstream.WithRetryAttempts(0))
	switch {
	case isWrongSequence(err):
		return 0, fmt.Errorf("jetlog: append to %s after sequence %d: %w (%w)", DeltasStream, last, pipeline.ErrFenced, err)
	case err != nil:
		return 0, fmt.Errorf("jetlog: append to %s after sequence %d: %w", DeltasStream, last, err)
	case got.Sequence != last+1:
		return 0, fmt.Errorf("jetlog: append to %s after sequence %d: stored as %d", DeltasStream, last, got.Sequence)
	}
	return got.Sequence, nil
}

func isWrongSequence(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) &&
		(api.ErrorCode == wrongLastSequence || api.ErrorCode == wrongLastSequenceInFlight)
}

// Purge removes the windows below the sequence `below`, except the last one,
// which says where to go on.
func (l *DeltaLog) Purge(ctx context.Context, below uint64) error {
	state, err := l.streams.sameState(ctx, DeltasStream)
	if err != nil {
		return fmt.Errorf("jetlog: purge %s below %d: %w", DeltasStream, below, err)
	}
	below = min(below, state.Last)
	if below <= state.First {
		return nil
	}
	stream, err := l.streams.js.Stream(ctx, DeltasStream)
	if err == nil {
		err = stream.Purge(ctx, jetstream.WithPurgeSequence(below))
	}
	if err != nil {
		return fmt.Errorf("jetlog: purge %s below %d: %w", DeltasStream, below, err)
	}
	return nil
}
