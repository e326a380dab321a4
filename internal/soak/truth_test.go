package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/twin"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/letters"
)

// truth is EVENTS as it was read back.
type truth struct {
	book *book
	next uint64 // the sequence to go on with
	ends ends   // by when messages were stored
	seen int    // records up to here are accounted for

	events   int                 // that count
	refused  []pipeline.Position // lines for DEADLETTER
	lost     int                 // events that were acknowledged and gone before they were counted
	messages int
}

// span are sequences from first to last.
type span struct{ first, last uint64 }

// readWithin bounds the reading of what came since.
const readWithin = 2 * time.Minute

// read takes in everything that EVENTS has behind what was read before, and
// gives the end of EVENTS. Nobody publishes meanwhile.
func (tr *truth) read(js jetstream.JetStream) (end uint64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), readWithin)
	defer cancel()
	end, err = endOf(ctx, js)
	if err != nil {
		return 0, err
	}
	if err := each(ctx, js, jetlog.EventsStream, span{tr.next, end}, tr.take); err != nil {
		return 0, err
	}
	tr.next = max(tr.next, end+1)
	return end, tr.account()
}

func endOf(ctx context.Context, js jetstream.JetStream) (uint64, error) {
	stream, err := js.Stream(ctx, jetlog.EventsStream)
	if err != nil {
		return 0, err
	}
	return stream.CachedInfo().State.LastSeq, nil
}

// stored is a message of EVENTS.
type stored struct {
	jetstream.Msg
	sequence uint64
	at       time.Time
}

// each visits the messages that a stream has of a span.
func each(ctx context.Context, js jetstream.JetStream, stream string, s span, visit func(*stored) error) error {
	if s.first > s.last {
		return nil
	}
	var consumer jetstream.Consumer
	err := tries(ctx, func(ctx context.Context) (err error) {
		consumer, err = js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: s.first,
		})
		return err
	})
	if err != nil {
		return err
	}
	if consumer.CachedInfo().NumPending == 0 {
		return nil
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return fmt.Errorf("read %s from %d to %d: %w", stream, s.first, s.last, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if meta.Sequence.Stream > s.last {
			return nil
		}
		if err := visit(&stored{m, meta.Sequence.Stream, meta.Timestamp}); err != nil {
			return err
		}
		if meta.Sequence.Stream == s.last || meta.NumPending == 0 {
			return nil
		}
	}
}

// tryWithin bounds one try: a cluster of servers that was just whole again may lose a
// request to create a consumer, and never answers it.
const tryWithin = 10 * time.Second

// tries does something again while it is not answered in time, until ctx ends.
func tries(ctx context.Context, do func(context.Context) error) error {
	for {
		try, cancel := context.WithTimeout(ctx, tryWithin)
		err := do(try)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
	}
}

func (tr *truth) take(m *stored) error {
	tr.messages++
	tr.ends.note(m.at, m.sequence)
	tr.book.board.Pass(m.at.UnixMilli())
	lines := [][]byte{m.Data()}
	if m.Subject() == "events.pack" {
		lines = bytes.Split(bytes.TrimSuffix(m.Data(), []byte("\n")), []byte("\n"))
	}
	number := pipeline.Position(twin.NumberOf(lines[0])).Sequence()
	tr.book.mu.Lock()
	defer tr.book.mu.Unlock()
	if number == 0 || number >= uint64(len(tr.book.records)) {
		return fmt.Errorf("sequence %d of EVENTS is nobody's: %s %s", m.sequence, m.Subject(), m.Data())
	}
	r := tr.book.records[number]
	id := m.Headers().Get("Nats-Msg-Id")
	switch {
	case r.found != 0:
		return fmt.Errorf("doubled: message %d stands in EVENTS at %d and (%s) at %d", number, r.found, id, m.sequence)
	case r.lost:
		return fmt.Errorf("message %d, lost in a power cut, stands in EVENTS at %d (%s)", number, m.sequence, id)
	case r.acked != m.sequence:
		return fmt.Errorf("message %d was acknowledged at %d and stands in EVENTS at %d (%s)", number, r.acked, m.sequence, id)
	case len(lines) != len(r.lines):
		return fmt.Errorf("message %d had %d lines and has %d in EVENTS, at %d", number, len(r.lines), len(lines), m.sequence)
	}
	r.found = m.sequence
	for i, l := range r.lines {
		if l.event.Number() != twin.NumberOf(lines[i]) {
			return fmt.Errorf("line %d of message %d is not what was published: %s", i, number, lines[i])
		}
		if l.event.Refused() {
			tr.refused = append(tr.refused, pipeline.At(m.sequence, i))
			continue
		}
		tr.events++
		l.about.Log(l.event, pipeline.At(m.sequence, i))
	}
	r.lines = nil // the communities have them
	return nil
}

// account makes sure that everything acknowledged was read back.
func (tr *truth) account() error {
	tr.book.mu.Lock()
	defer tr.book.mu.Unlock()
	for ; tr.seen < len(tr.book.records); tr.seen++ {
		if r := tr.book.records[tr.seen]; tr.seen > 0 && r.found == 0 && !r.lost {
			return fmt.Errorf("lost: message %d was acknowledged at %d and is not in EVENTS", tr.seen, r.acked)
		}
	}
	return nil
}

// letters makes sure that everything refused is kept (I9). A power cut takes
// letters of its last moment, too: they are in lost. A router that is killed
// between a letter and its window may keep it twice.
func (tr *truth) letters(js jetstream.JetStream, lost []span) (count, twice int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), readWithin)
	defer cancel()
	kept := map[pipeline.Position]int{}
	err = each(ctx, js, jetlog.DeadLetterStream, span{1, math.MaxUint64}, func(m *stored) error {
		sequence, err := strconv.ParseUint(m.Headers().Get(letters.HeaderSequence), 10, 64)
		if err != nil {
			return err
		}
		line, err := strconv.Atoi(m.Headers().Get(letters.HeaderLine))
		if err != nil {
			return err
		}
		kept[pipeline.At(sequence, line)]++
		count++
		return nil
	})
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) { // deleted, and nothing was refused since
		return 0, 0, err
	}
	for _, p := range tr.refused {
		in := func(s span) bool { return s.first <= p.Sequence() && p.Sequence() <= s.last }
		if kept[p] == 0 && !slices.ContainsFunc(lost, in) {
			return 0, 0, fmt.Errorf("line %d of message %d of EVENTS was refused and is not in DEADLETTER", p.Line(), p.Sequence())
		}
		twice += max(kept[p]-1, 0)
		delete(kept, p)
	}
	for p := range kept {
		if in := func(s span) bool { return s.first <= p.Sequence() && p.Sequence() <= s.last }; !slices.ContainsFunc(lost, in) {
			return 0, 0, fmt.Errorf("DEADLETTER has line %d of message %d of EVENTS, which is not one to refuse", p.Line(), p.Sequence())
		}
	}
	return count, twice, nil
}

// forget notes that everything published since the last read is gone.
func (tr *truth) forget() (messages int) {
	tr.book.mu.Lock()
	defer tr.book.mu.Unlock()
	for ; tr.seen < len(tr.book.records); tr.seen++ {
		r := tr.book.records[tr.seen]
		r.lost = true
		tr.lost += len(r.lines)
		r.lines = nil
		messages++
	}
	return messages
}
