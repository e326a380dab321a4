package jetlog

import (
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
	fail := func(err error) (pipeline.Position, error) { return 0, fmt.Errorf("jetlog: publish a pack: %w", err) }
	prefix := p.streams.idPrefix.Load()
	if prefix == nil {
		events, err := p.streams.js.Stream(ctx, EventsStream)
		if err != nil { // and nothing was sent
			return fail(fmt.Errorf("%w: %w", pipeline.ErrNoLog, err))
		}
		prefix = new(IDPrefix(events.CachedInfo().Config))
		p.streams.idPrefix.Store(prefix)
	}
	ack, err := p.store(ctx, "pack", lines, jetstream.WithMsgID(*prefix+id))
	if err != nil {
		return fail(err)
	}
	return pipeline.EndOf(ack.Sequence), nil
}

// PackSubject is the subject of packs.
const PackSubject = EventsSubject + "pack"

// IDPrefix begins the Nats-Msg-Id of messages that nodes and commands store in an EVENTS with
// these settings. Clients cannot know it, as they cannot look at the settings: no message of
// theirs has such an id, to keep another one from being stored or to pass for it.
func IDPrefix(events jetstream.StreamConfig) string { return events.Metadata[idsKey] + "-" }

func (p *Publisher) store(ctx context.Context, kind string, body []byte, more ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	options := append(more, jetstream.WithExpectStream(EventsStream), jetstream.WithRetryAttempts(leaderTries), jetstream.WithRetryWait(leaderWait))
	ack, err := p.streams.js.Publish(ctx, EventsSubject+kind, body, options...)
	switch {
	case Full(err):
		return nil, fmt.Errorf("%w: %w", pipeline.ErrFull, err)
	case errors.Is(err, jetstream.ErrNoStreamResponse): // each time that it was tried
		err = fmt.Errorf("%w: %w", pipeline.ErrNoLog, err)
	}
	api, refused := errors.AsType[*jetstream.APIError](err)
	if refused = refused && api.Code < 500; !refused && !errors.Is(err, context.Canceled) && !errors.Is(err, nats.ErrMaxPayload) {
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
// a time. A write that EVENTS refuses, for its limits or the message's, has not failed.
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
