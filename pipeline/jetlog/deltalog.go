package jetlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
)

// ErrUnknownWindow says that DELTAS ends with a router's window that this version
// cannot read.
var ErrUnknownWindow = errors.New("jetlog: a router of a version that this program cannot read wrote to DELTAS: use a newer program (docs/nodes.md, Rolling upgrade)")

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

// DeltaLog is DELTAS. It implements pipeline.Log. Safe for concurrent use; a router has
// one of its own.
type DeltaLog struct {
	streams *Streams

	mu      sync.Mutex
	edition edition // that Append appends to
}

var _ pipeline.Log = (*DeltaLog)(nil)

// NewDeltaLog appends to the DELTAS of s.
func NewDeltaLog(s *Streams) *DeltaLog { return &DeltaLog{streams: s} }

// missingTries and lookPause distinguish a last window that is gone from one that a new
// leader does not have yet.
const (
	missingTries = 3
	lookPause    = 100 * time.Millisecond
	// renewTries bounds how often one Tail recreates DELTAS: a server that has not yet
	// removed the files of the last one gives what is made its messages.
	renewTries = 5
)

// Tail implements pipeline.Log. It asks the stream's leader (the stream has
// no direct get, which any replica may answer, behind the times). A DELTAS that
// was deleted, whose last window was, or whose last message is no window
// (ErrNoWindow), is recreated.
func (l *DeltaLog) Tail(ctx context.Context) (pipeline.Header, uint64, error) {
	for tries := 1; ; tries++ {
		h, last, e, err := l.tail(ctx)
		if err == nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.edition = e
			return h, last, nil
		}
		useless := errors.Is(err, ErrNoWindow) || errors.Is(err, pipeline.ErrGap) || errors.Is(err, jetstream.ErrStreamNotFound)
		if !useless || tries == renewTries {
			return pipeline.Header{}, 0, fmt.Errorf("jetlog: read the tail of %s: %w", l.streams.deltas(), err)
		}
		if tries > 1 {
			time.Sleep(lookPause)
		}
		if err := l.streams.renew(ctx, e, err); err != nil {
			return pipeline.Header{}, 0, err
		}
	}
}

func (l *DeltaLog) tail(ctx context.Context) (pipeline.Header, uint64, edition, error) {
	fail := func(e edition, err error) (pipeline.Header, uint64, edition, error) {
		return pipeline.Header{}, 0, e, err
	}
	missing, tries := uint64(0), 0
	for {
		e, state, err := l.streams.edition(ctx)
		if err != nil || state.Last == 0 {
			return fail(e, err)
		}
		if state.Last != missing {
			tries = 0
		}
		m, err := GetStored(ctx, l.streams.nc, l.streams.deltas(), state.Last)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			missing, tries = state.Last, tries+1 // deleted, or purged behind a newer one
			if tries == missingTries {
				return fail(e, fmt.Errorf("%w: the last window, sequence %d, was deleted", pipeline.ErrGap, missing))
			}
			time.Sleep(lookPause)
			continue
		}
		if err == nil {
			err = e.check(state.Last, m.Subject, m.Data)
		}
		if err != nil {
			return fail(e, err)
		}
		w, err := pipeline.DecodeWindow(m.Data)
		if err != nil {
			// Its checksum is right: to delete it would be to delete the log of a newer
			// version, which does the same with this one's.
			return fail(e, fmt.Errorf("%w: sequence %d: %w", ErrUnknownWindow, state.Last, err))
		}
		return w.Header, state.Last, e, nil
	}
}

// Append implements pipeline.Log. It appends to the DELTAS that Tail has seen,
// and to no other: one recreated has another subject. It sends once and never
// again by itself, and nothing without a connection: nats.go would keep it for
// the next one, where it may find another log that has come to the sequence it
// names.
func (l *DeltaLog) Append(ctx context.Context, last uint64, window []byte) (uint64, error) {
	if !l.streams.nc.IsConnected() {
		return 0, fmt.Errorf("jetlog: append to %s after sequence %d: %w", l.streams.deltas(), last, nats.ErrDisconnected)
	}
	ctx, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	e, err := l.seen(ctx)
	if err != nil {
		return 0, err
	}
	got, err := l.streams.js.Publish(ctx, e.subject, window,
		jetstream.WithExpectLastSequence(last),
		jetstream.WithExpectStream(l.streams.deltas()),
		jetstream.WithRetryAttempts(0))
	switch {
	case WrongSequence(err):
		return 0, fmt.Errorf("jetlog: append to %s after sequence %d: %w (%w)", l.streams.deltas(), last, pipeline.ErrFenced, err)
	case err != nil:
		return 0, fmt.Errorf("jetlog: append to %s after sequence %d: %w", l.streams.deltas(), last, err)
	case got.Sequence != last+1:
		return 0, fmt.Errorf("jetlog: append to %s after sequence %d: stored as %d", l.streams.deltas(), last, got.Sequence)
	}
	return got.Sequence, nil
}

// seen is the edition that Tail has seen, or, before the first Tail, the one
// there is.
func (l *DeltaLog) seen(ctx context.Context) (edition, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	if l.edition.subject == "" {
		l.edition, _, err = l.streams.edition(ctx)
	}
	return l.edition, err
}

// WrongSequence says of a write on condition that another one came before it.
func WrongSequence(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) &&
		(api.ErrorCode == wrongLastSequence || api.ErrorCode == wrongLastSequenceInFlight)
}

// Purge removes the windows below the sequence `below`, except the last one,
// which says where to go on.
func (l *DeltaLog) Purge(ctx context.Context, below uint64) error {
	_, state, err := l.streams.edition(ctx)
	if err != nil {
		return fmt.Errorf("jetlog: purge %s below %d: %w", l.streams.deltas(), below, err)
	}
	if below <= state.First || below > state.Last {
		return nil // behind its end: what was reported is of an earlier edition, or a lost tail
	}
	stream, err := l.streams.js.Stream(ctx, l.streams.deltas())
	if err == nil {
		err = stream.Purge(ctx, jetstream.WithPurgeSequence(below))
	}
	if err != nil {
		return fmt.Errorf("jetlog: purge %s below %d: %w", l.streams.deltas(), below, err)
	}
	return nil
}
