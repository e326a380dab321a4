package jetlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Parts reads parts of EVENTS that are there, many of them in a short time, and
// each by one consumer and one request: what OpenSource makes sure of at each
// opening is made sure of once. It may be used concurrently.
type Parts struct {
	streams *Streams
	stream  jetstream.Stream
	state   StreamState
}

// OpenParts looks what the stream has. It fails with ErrTail when the stream was recreated since OpenStreams.
func OpenParts(ctx context.Context, s *Streams) (*Parts, error) {
	p, err := &Parts{streams: s}, error(nil)
	if p.stream, err = s.js.Stream(ctx, EventsStream); err == nil {
		p.state = stateOf(p.stream.CachedInfo())
		err = p.state.same(s.created)
	}
	if err != nil {
		return nil, fmt.Errorf("jetlog: open %s: %w", EventsStream, err)
	}
	return p, nil
}

// State is what the stream had when the parts were opened.
func (p *Parts) State() StreamState { return p.state }

const (
	// partBytes bounds one request: a part of usual size comes in one or two.
	partBytes = 2 << 20
	// partRequests is in how many requests a part is asked for at least: two are
	// under way at a time.
	partRequests = 2
)

// Open is OpenSource for so many messages. The sources of one Parts that are open
// at a time hold no more than twice partBytes each, or four of the largest messages.
func (p *Parts) Open(ctx context.Context, from pipeline.Position, messages int, o RunOptions) (*Source, error) {
	after := from.Next() - 1
	if err := p.state.Joins(after); err != nil {
		return nil, fmt.Errorf("jetlog: open %s: %w", EventsStream, err)
	}
	o.Messages, o.Ahead, o.AheadBytes = messages, (messages+partRequests-1)/partRequests, partBytes
	source, err := new(Source), error(nil)
	ctx, cancel := context.WithTimeout(ctx, reopenTimeout)
	defer cancel()
	r := newReader(p.streams, EventsStream, p.streams.created, after, o, message)
	if source.reader, err = r.opened(r.begin(ctx)); err != nil {
		return nil, err
	}
	return source, nil
}

// Get is one message; false where there is none.
func (p *Parts) Get(ctx context.Context, sequence uint64) (m pipeline.Message, there bool, err error) {
	raw, err := GetStored(ctx, p.streams.nc, EventsStream, sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return m, false, nil
	}
	if err != nil {
		return m, false, fmt.Errorf("jetlog: read sequence %d of %s: %w", sequence, EventsStream, err)
	}
	return pipeline.Message{
		Sequence: raw.Sequence, Time: raw.Time.UnixMilli(), Subject: resentAs(raw.Subject, raw.Header), Header: raw.Header, Data: raw.Data,
	}, true, nil
}
