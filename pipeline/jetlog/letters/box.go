package letters

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

const (
	// visitPatience is how long a server may send nothing though it has more.
	visitPatience = 10 * time.Second
	visitPause    = 50 * time.Millisecond
)

// ErrNoLetter: DEADLETTER has no such message.
var ErrNoLetter = errors.New("letters: no such dead letter")

// Letter is a dead letter as DEADLETTER holds it.
type Letter struct {
	Sequence uint64 // in DEADLETTER
	Time     time.Time
	Reason   string
	Position pipeline.Position // of the event; 0 when the headers do not say it
	Subject  string            // of the message in EVENTS; "" when the headers do not say it
	Error    string            // one sentence
	Header   nats.Header       // all of them
	Body     []byte            // nil where a visit gives it
}

// Event is which event was refused; false: the headers do not say it, as of a
// message that is no letter of a node's.
func (l *Letter) Event() (e EventID, ok bool) {
	e, ok = parseEventID(l.Header.Get(jetstream.MsgIDHeader))
	return e, ok && l.Position != 0 && e.Position == l.Position
}

// Carried is a header of the event that was refused.
func (l *Letter) Carried(name string) string { return l.Header.Get(carriedName(name)) }

// Box reads DEADLETTER, and deletes there. Safe for concurrent use.
type Box struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
}

// BoxState says what of DEADLETTER is there.
type BoxState struct {
	Created     time.Time
	First, Last uint64 // First is after Last when there are none
}

// OpenBox opens the stream; jetstream.ErrStreamNotFound when there is
// none.
func OpenBox(ctx context.Context, nc *nats.Conn) (*Box, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	stream, err := js.Stream(ctx, jetlog.DeadLetterStream)
	if err != nil {
		return nil, fmt.Errorf("letters: open %s: %w", jetlog.DeadLetterStream, err)
	}
	return &Box{nc, js, stream}, nil
}

// State asks the stream's leader.
func (b *Box) State(ctx context.Context) (BoxState, error) {
	i, err := b.stream.Info(ctx)
	if err != nil {
		return BoxState{}, fmt.Errorf("letters: look at %s: %w", jetlog.DeadLetterStream, err)
	}
	s := i.State
	if s.Msgs == 0 {
		s.FirstSeq = s.LastSeq + 1
	}
	return BoxState{i.Created, s.FirstSeq, s.LastSeq}, nil
}

// Get is one letter, whole.
func (b *Box) Get(ctx context.Context, sequence uint64) (Letter, error) {
	m, err := jetlog.GetStored(ctx, b.nc, jetlog.DeadLetterStream, sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return Letter{}, fmt.Errorf("%w: %d", ErrNoLetter, sequence)
	}
	if err != nil {
		return Letter{}, fmt.Errorf("letters: read dead letter %d: %w", sequence, err)
	}
	return letterOf(m), nil
}

func letterOf(m *jetlog.Stored) Letter {
	h := m.Header
	l := Letter{Sequence: m.Sequence, Time: m.Time, Header: h, Body: m.Data, Subject: h.Get(HeaderSubject), Error: h.Get(HeaderError)}
	l.Reason = m.Subject[min(len(jetlog.DeadLetterSubject), len(m.Subject)):]
	event, err := strconv.ParseUint(h.Get(HeaderSequence), 10, 53)
	line, other := strconv.ParseUint(h.Get(HeaderLine), 10, 10)
	if err == nil && other == nil {
		l.Position = pipeline.At(event, int(line))
	}
	return l
}

// Visit gives all letters from a sequence on that are there when it begins, in
// order and without bodies; with a reason, only those. An error of visit ends
// it.
func (b *Box) Visit(ctx context.Context, from uint64, reason string, visit func(*Letter) error) error {
	i, err := b.stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("letters: look at %s: %w", jetlog.DeadLetterStream, err)
	}
	heard := time.Now()
	for from <= i.State.LastSeq && i.State.Msgs > 0 {
		next, err := b.visitOnce(ctx, from, reason, visit)
		ended, isOurs := errors.AsType[visitError](err)
		switch {
		case isOurs:
			return ended.error
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && (reason != "" || i.Config.Replicas <= 1):
			return nil
		// In a cluster a consumer may live on a server that lags: without a
		// filter the last letter has to come.
		case next > from:
			heard = time.Now()
		case time.Since(heard) > visitPatience && err == nil:
			return nil // it was deleted
		case time.Since(heard) > visitPatience:
			return fmt.Errorf("letters: read %s from %d: %w", jetlog.DeadLetterStream, from, err)
		}
		from = next
		select {
		case <-time.After(visitPause):
		case <-ctx.Done():
		}
	}
	return nil
}

// visitError is visit's own.
type visitError struct{ error }

// visitOnce reads what one consumer has, and says where to go on. Letters may
// be discarded under it: what does not come in a moment is asked for again.
func (b *Box) visitOnce(ctx context.Context, from uint64, reason string, visit func(*Letter) error) (next uint64, err error) {
	next = from
	c := jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from}
	if reason != "" {
		c.FilterSubject = jetlog.DeadLetterSubject + reason
	}
	err = jetlog.VisitHeaders(ctx, b.js, jetlog.DeadLetterStream, c, func(m *jetlog.Stored) error {
		l := letterOf(m)
		if err := visit(&l); err != nil {
			return visitError{err}
		}
		next = l.Sequence + 1
		return nil
	})
	return next, err
}

// Newest are the newest letters, at most `most`, the newest first and without
// bodies, and whether there are more; with a reason, of those.
func (b *Box) Newest(ctx context.Context, reason string, most int) (newest []Letter, more bool, err error) {
	s, err := b.State(ctx)
	if err != nil {
		return nil, false, err
	}
	for width := uint64(most) + 1; ; width *= 8 {
		from := s.First
		if s.Last >= s.First && s.Last-s.First >= width {
			from = s.Last - width + 1
		}
		ring := make([]Letter, 0, most)
		count := 0
		err := b.Visit(ctx, from, reason, func(l *Letter) error {
			if count++; len(ring) < most {
				ring = append(ring, *l)
			} else {
				ring[(count-1)%most] = *l
			}
			return nil
		})
		if err != nil {
			return nil, false, err
		}
		if count <= most && from > s.First {
			continue // further back
		}
		for i := range ring {
			newest = append(newest, ring[(count-1-i)%len(ring)])
		}
		return newest, count > most, nil
	}
}
