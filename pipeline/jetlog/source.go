package jetlog

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Events is EVENTS. It implements pipeline.Events. Safe for concurrent use.
type Events struct {
	streams *Streams
	options RunOptions
}

var _ pipeline.Events = (*Events)(nil)

// NewEvents reads the EVENTS of s in runs within the options.
func NewEvents(s *Streams, o RunOptions) *Events { return &Events{s, o} }

// Open implements pipeline.Events. It is OpenSource.
func (e *Events) Open(ctx context.Context, from pipeline.Position) (pipeline.Source, error) {
	return OpenSource(ctx, e.streams, from, e.options)
}

// Last implements pipeline.Events. When the stream was made anew since
// OpenStreams, the error wraps ErrTail.
func (e *Events) Last(ctx context.Context) (uint64, error) {
	state, err := e.streams.sameState(ctx, EventsStream)
	return state.Last, err
}

// Source reads EVENTS. It implements pipeline.Source.
type Source struct {
	*reader[pipeline.Message]
}

var _ pipeline.Source = (*Source)(nil)

// OpenSource reads on after from: the message that from.Next names comes
// first, even if some of its lines have been read. It fails with an error
// that wraps pipeline.ErrGap when messages behind from are gone, and ErrTail
// when the stream ends before from or was made anew since OpenStreams.
func OpenSource(ctx context.Context, s *Streams, from pipeline.Position, o RunOptions) (*Source, error) {
	state, err := s.sameState(ctx, EventsStream)
	if err != nil {
		return nil, fmt.Errorf("jetlog: open %s: %w", EventsStream, err)
	}
	if from.Sequence() > state.Last {
		return nil, fmt.Errorf("jetlog: open %s: %w", EventsStream, state.Joins(from.Sequence()))
	}
	r, err := openReader(ctx, s, EventsStream, from.Next()-1, o, message)
	if err != nil {
		return nil, err
	}
	return &Source{r}, nil
}

func message(m *nats.Msg, a ack) pipeline.Message {
	return pipeline.Message{
		Sequence: a.stream, Time: a.nanos / 1e6, Subject: m.Subject, Header: m.Header, Data: m.Data,
	}
}

// Tailer follows DELTAS. It implements pipeline.Tailer.
type Tailer struct {
	*reader[pipeline.Entry]
}

var _ pipeline.Tailer = (*Tailer)(nil)

// OpenTailer reads the windows behind the sequence after, with OpenSource's
// errors.
func OpenTailer(ctx context.Context, s *Streams, after uint64, o RunOptions) (*Tailer, error) {
	r, err := openReader(ctx, s, DeltasStream, after, o, entry)
	if err != nil {
		return nil, err
	}
	return &Tailer{r}, nil
}

func entry(m *nats.Msg, a ack) pipeline.Entry {
	return pipeline.Entry{Sequence: a.stream, Time: a.nanos / 1e6, Window: m.Data}
}
