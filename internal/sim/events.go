package sim

import (
	"context"
	"fmt"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// Events is EVENTS. It implements pipeline.Events: every message that is looked
// at or stored is a call of its own, which may fail.
type Events struct {
	c *Client
	o jetlog.RunOptions
}

var _ pipeline.Events = Events{}

// movedSubject begins the subjects of copies.
const movedSubject = jetlog.MovedSubject + "sim."

// Events is EVENTS as this client uses it.
func (c *Client) Events(o jetlog.RunOptions) Events { return Events{c, o} }

// Open implements pipeline.Events.
func (e Events) Open(ctx context.Context, from pipeline.Position) (pipeline.Source, error) {
	return e.c.Source(ctx, from, e.o)
}

// Last implements pipeline.Events.
func (e Events) Last(ctx context.Context) (last uint64, err error) {
	err = e.c.look(ctx, jetlog.EventsStream, func(of *stream) error {
		last = of.last
		return nil
	})
	return last, err
}

// FastForward implements pipeline.Events.
func (e Events) FastForward(ctx context.Context, past uint64) error {
	for {
		last, err := e.Last(ctx)
		if err != nil || last >= past {
			return err
		}
		if err := e.publish(ctx, Stored{Subject: jetlog.FillerSubject, Header: map[string][]string{jetlog.HeaderFiller: {"1"}}}); err != nil {
			return err
		}
	}
}

// Reclaim implements pipeline.Events.
func (e Events) Reclaim(ctx context.Context, counted uint64, at int64) (moved int, err error) {
	first := counted + 1
	for seq := counted; seq > 0; seq-- {
		m, err := e.message(ctx, seq)
		if err != nil {
			return moved, err
		}
		if m == nil {
			continue
		}
		if m.Time.UnixMilli() <= at {
			break
		}
		first = seq
	}
	moves := movesOf(e.c.s.Held(jetlog.EventsStream))
	for seq := first; seq <= counted; seq++ {
		m, err := e.message(ctx, seq)
		if err != nil {
			return moved, err
		}
		if m == nil || m.Subject == jetlog.FillerSubject {
			continue
		}
		of := jetlog.Original{Sequence: m.Sequence, Nanos: m.Time.UnixNano()}
		if _, has := moves[of]; has {
			continue
		}
		copied := Stored{Data: m.Data, Tag: m.Tag, Header: map[string][]string{
			msgID: {fmt.Sprintf("reclaimed-%d-%d", of.Sequence, of.Nanos)},
		}}
		copied.Subject = jetlog.MarkAsCopy(movedSubject, m.Subject, copied.Header, of)
		if err := e.publish(ctx, copied); err != nil {
			return moved, err
		}
		moved++
	}
	return moved, nil
}

// message is one message; nil for none.
func (e Events) message(ctx context.Context, sequence uint64) (m *Stored, err error) {
	err = e.c.look(ctx, jetlog.EventsStream, func(of *stream) error {
		m = of.held[sequence]
		return nil
	})
	return m, err
}

func (e Events) publish(ctx context.Context, m Stored) error {
	return e.write(ctx, func() { e.c.s.Store(m) })
}

// write does what a call lands, unless it is not to be.
func (e Events) write(ctx context.Context, land func()) error {
	fate, err := e.c.pass(ctx, Call{Kind: Write, Land: land})
	if err != nil {
		return err
	}
	if fate.Err == nil || fate.Done {
		land()
	}
	return fate.Err
}
