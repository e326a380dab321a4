package jetlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/internal/pull"
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
	source, err := OpenSource(ctx, e.streams, from, e.options)
	if err != nil { // not a nil *Source
		return nil, err
	}
	return source, nil
}

// Holds implements pipeline.Events. What a disk has lost, or was trimmed, does not tell. When
// the stream was recreated since OpenStreams, the error wraps ErrTail.
func (e *Events) Holds(ctx context.Context, counted uint64, at int64) error {
	state, err := e.streams.sameState(ctx, EventsStream, e.streams.created)
	switch {
	case err != nil:
		return err
	case state.Last < counted:
		return fmt.Errorf("%w: it ends with message %d, and %d is counted", pipeline.ErrLostTail, state.Last, counted)
	case counted == 0 || at == 0:
		return nil
	}
	m, err := GetStored(ctx, e.streams.nc, EventsStream, counted)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil
	case err == nil && m.Time.UnixMilli() > at:
		return fmt.Errorf("%w: message %d is of %v, and what was counted there of %v", pipeline.ErrLostTail, counted, m.Time, time.UnixMilli(at))
	}
	return err
}

// Source reads EVENTS. It implements pipeline.Source.
type Source struct {
	*reader[pipeline.Message]
}

var _ pipeline.Source = (*Source)(nil)

// OpenSource reads on after from: the message that from.Next names comes
// first, even if some of its lines have been read. It fails with an error
// that wraps pipeline.ErrGap when messages behind from are gone, and ErrTail
// when the stream ends before from or was recreated since OpenStreams.
func OpenSource(ctx context.Context, s *Streams, from pipeline.Position, o RunOptions) (*Source, error) {
	state, err := s.sameState(ctx, EventsStream, s.created)
	if err != nil {
		return nil, fmt.Errorf("jetlog: open %s: %w", EventsStream, err)
	}
	if from.Sequence() > state.Last {
		return nil, fmt.Errorf("jetlog: open %s: %w", EventsStream, state.Joins(from.Sequence()))
	}
	source := new(Source)
	source.reader, err = openReader(ctx, s, EventsStream, s.created, from.Next()-1, o, message)
	if err != nil {
		return nil, err
	}
	return source, nil
}

func message(m *nats.Msg, a pull.Ack) pipeline.Message {
	return pipeline.Message{
		Sequence: a.Stream, Time: a.Nanos / 1e6, Subject: resentAs(m.Subject, m.Header), Header: m.Header, Data: m.Data,
	}
}

// Tailer follows DELTAS. It implements pipeline.Tailer. A message that is no window
// ends it, with an error that wraps ErrNoWindow, and DELTAS is recreated.
type Tailer struct {
	*reader[delta]
	edition edition
}

var _ pipeline.Tailer = (*Tailer)(nil)

// delta is a message of DELTAS.
type delta struct {
	pipeline.Entry
	subject string
}

// OpenTailer reads the windows behind the sequence after, with OpenSource's
// errors.
func OpenTailer(ctx context.Context, s *Streams, after uint64, o RunOptions) (*Tailer, error) {
	e, _, err := s.edition(ctx)
	if err != nil {
		return nil, err
	}
	r, err := openReader(ctx, s, s.deltas(), e.created, after, o, entry)
	if err != nil {
		return nil, err
	}
	return &Tailer{r, e}, nil
}

func entry(m *nats.Msg, a pull.Ack) delta {
	return delta{pipeline.Entry{Sequence: a.Stream, Time: a.Nanos / 1e6, Window: m.Data}, m.Subject}
}

// Next implements pipeline.Tailer.
func (t *Tailer) Next(ctx context.Context) ([]pipeline.Entry, error) {
	run, err := t.reader.Next(ctx)
	if err != nil {
		return nil, err
	}
	entries := make([]pipeline.Entry, 0, len(run))
	for _, m := range run {
		if err := t.edition.check(m.Sequence, m.subject, m.Window); err != nil {
			// Windows may stand behind it: a router appends behind a sequence that
			// it knows, and after a lost tail another message may have that.
			t.err = errors.Join(fmt.Errorf("jetlog: read %s: %w", t.streams.deltas(), err), t.streams.renew(ctx, t.edition, err))
			break
		}
		entries = append(entries, m.Entry)
	}
	if len(entries) == 0 {
		return nil, t.err
	}
	return entries, nil
}

// Created is when the DELTAS was made that is followed.
func (t *Tailer) Created() time.Time { return t.edition.created }
