package jetlog

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline"
)

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
