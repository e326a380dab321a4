package jetlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Publisher stores events for the doors of a node. It implements query.Publisher, for
// reads: a second read is not the same as a first, so it sends again only what nobody was
// there to take.
type Publisher struct{ streams *Streams }

// NewPublisher publishes to the EVENTS of s.
func NewPublisher(s *Streams) *Publisher { return &Publisher{s} }

// A stream without a leader, which moves from one server of a cluster to
// another, is waited for this often and this long.
const (
	leaderTries = 8
	leaderWait  = 250 * time.Millisecond
)

// Publish stores a read, and returns its position.
func (p *Publisher) Publish(ctx context.Context, event []byte) (pipeline.Position, error) {
	ack, err := p.store(ctx, "read", event)
	if err != nil {
		return 0, fmt.Errorf("jetlog: publish a read: %w", err)
	}
	return pipeline.At(ack.Sequence, 0), nil
}

// PublishPack stores a pack, and returns where it ends. The same pack with the same id is
// not stored again within DuplicateWindow: it ends where the first one does.
func (p *Publisher) PublishPack(ctx context.Context, lines []byte, id string) (pipeline.Position, error) {
	for range packTries {
		ack, err := p.store(ctx, "pack", lines, jetstream.WithMsgID(id))
		other := (*Stored)(nil)
		if err == nil && ack.Duplicate {
			other, err = OtherPack(ctx, p.streams.nc, ack.Sequence, lines)
		}
		if err != nil {
			return 0, fmt.Errorf("jetlog: publish a pack: %w", err)
		}
		if other == nil {
			return pipeline.EndOf(ack.Sequence), nil
		}
		id = other.FreeID(id)
	}
	return 0, fmt.Errorf("jetlog: publish a pack: other messages have had its Nats-Msg-Id %d times", packTries)
}

// packTries is how many ids PublishPack tries that other messages may have.
const packTries = 8

// PackSubject is the subject of packs.
const PackSubject = EventsSubject + "pack"

// OtherPack returns the message of EVENTS at a sequence if it is not the pack with these
// lines, and nil if it is. Any client may publish a message with the Nats-Msg-Id that a
// pack will have.
func OtherPack(ctx context.Context, nc *nats.Conn, sequence uint64, lines []byte) (*Stored, error) {
	m, err := GetStored(ctx, nc, EventsStream, sequence)
	if err != nil {
		return nil, fmt.Errorf("read message %d of %s, which has the pack's Nats-Msg-Id: %w", sequence, EventsStream, err)
	}
	if m.Subject == PackSubject && bytes.Equal(m.Data, lines) {
		return nil, nil
	}
	return m, nil
}

// FreeID returns the Nats-Msg-Id to use instead of id, which the message has. It is the
// same each time, and the message's sender, who cannot know the timestamp, cannot use it
// too.
func (m *Stored) FreeID(id string) string { return fmt.Sprintf("%s~%d", id, m.Time.UnixNano()) }

func (p *Publisher) store(ctx context.Context, kind string, body []byte, more ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	options := append(more, jetstream.WithExpectStream(EventsStream), jetstream.WithRetryAttempts(leaderTries), jetstream.WithRetryWait(leaderWait))
	ack, err := p.streams.js.Publish(ctx, EventsSubject+kind, body, options...)
	switch {
	case Full(err):
		return nil, fmt.Errorf("%w: %w", pipeline.ErrFull, err)
	case errors.Is(err, jetstream.ErrNoStreamResponse): // each time that it was tried
		err = fmt.Errorf("%w: %w", pipeline.ErrNoLog, err)
	}
	if err == nil || !errors.Is(err, context.Canceled) {
		p.streams.lastWrite.Store(&eventWrite{time.Now(), err})
	}
	return ack, err
}

// eventWrite is how a write of this process to EVENTS ended.
type eventWrite struct {
	at  time.Time
	err error
}

// WriteFault says that the last write of this process to EVENTS failed, if that was within
// a time. A write that the limits of EVENTS refuse has not failed.
func (s *Streams) WriteFault(within time.Duration) error {
	last := s.lastWrite.Load()
	if last == nil || last.err == nil || time.Since(last.at) > within {
		return nil
	}
	return fmt.Errorf("events: the last event that this node was given, %d s ago, is not known to be stored: %w", int(time.Since(last.at).Seconds()), last.err)
}

// storeFailed is the server's code for an event that it could not store. The
// description says whether that was for a limit of the stream, which it looks
// at before it writes ("maximum bytes exceeded"), or for the disk, which may
// have it all the same.
const storeFailed = 10077

// Full is true when the stream's limits refused a message.
func Full(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.ErrorCode == storeFailed && strings.HasPrefix(api.Description, "maximum ")
}
