package sim

import (
	"context"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// Events is EVENTS. It implements pipeline.Events: every message that is looked at is a call
// of its own, which may fail.
type Events struct {
	c *Client
	o jetlog.RunOptions
}

var _ pipeline.Events = Events{}

// Events is EVENTS as this client uses it.
func (c *Client) Events(o jetlog.RunOptions) Events { return Events{c, o} }

// Open implements pipeline.Events.
func (e Events) Open(ctx context.Context, from pipeline.Position) (pipeline.Source, error) {
	return e.c.Source(ctx, from, e.o)
}

// Last is the sequence of the newest event, 0 for none.
func (e Events) Last(ctx context.Context) (last uint64, err error) {
	err = e.c.look(ctx, jetlog.EventsStream, func(of *stream) error {
		last = of.last
		return nil
	})
	return last, err
}

// Holds implements pipeline.Events.
func (e Events) Holds(ctx context.Context, counted uint64, at int64) error {
	last, err := e.Last(ctx)
	if err != nil {
		return err
	}
	if last < counted {
		return pipeline.ErrLostTail
	}
	if counted == 0 || at == 0 {
		return nil
	}
	m, err := e.message(ctx, counted)
	if err == nil && m != nil && m.Time.UnixMilli() > at {
		return pipeline.ErrLostTail
	}
	return err
}

// message is one message; nil for none.
func (e Events) message(ctx context.Context, sequence uint64) (m *Stored, err error) {
	err = e.c.look(ctx, jetlog.EventsStream, func(of *stream) error {
		m = of.held[sequence]
		return nil
	})
	return m, err
}
