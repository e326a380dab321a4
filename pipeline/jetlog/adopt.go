package jetlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// asideStream holds what stood in EVENTS while that is moved on.
const asideStream = "EVENTS_ASIDE"

// MoveOn has EVENTS go on from another one that is lost: what it holds moves behind what was
// counted of that, in its order. Nodes must be stopped; producers need not be. It may be run
// again after an interruption.
//
//	EVENTS ─► EVENTS_ASIDE, while EVENTS refuses ─► EVENTS is empty and begins after the sequence ─► EVENTS
func (s *Streams) MoveOn(ctx context.Context, of Continues) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("jetlog: move what %s holds behind sequence %d: %w", EventsStream, of.After, err)
		}
	}()
	is, err := s.State(ctx, EventsStream)
	if err != nil {
		return err
	}
	if is.Last < of.After || is.First <= of.After && is.Messages > 0 {
		if is.Messages > 0 {
			if err := s.setAside(ctx); err != nil {
				return err
			}
		}
		events, err := s.js.Stream(ctx, EventsStream)
		if err == nil {
			err = events.Purge(ctx, jetstream.WithPurgeSequence(of.After+1))
		}
		if err != nil {
			return err
		}
	}
	_, err = s.changeEvents(ctx, func(c *jetstream.StreamConfig, _ jetstream.StreamState) {
		c.Metadata[continuesKey] = of.text()
	})
	if err != nil {
		return err
	}
	if _, err := s.RefuseWrites(ctx, false); err != nil {
		return err
	}
	return s.putBack(ctx)
}

// setAside copies EVENTS, which takes nothing from then on.
func (s *Streams) setAside(ctx context.Context) error {
	if _, err := s.RefuseWrites(ctx, true); err != nil {
		return err
	}
	copying := jetstream.StreamConfig{
		Name: asideStream, Storage: jetstream.FileStorage, Replicas: s.configs[EventsStream].Replicas,
		Sources: []*jetstream.StreamSource{{Name: EventsStream}},
	}
	aside, err := s.js.CreateOrUpdateStream(ctx, copying)
	if err != nil {
		return err
	}
	for {
		events, err := s.State(ctx, EventsStream)
		if err != nil {
			return err
		}
		is, err := aside.Info(ctx)
		if err != nil {
			return err
		}
		if is.State.Msgs >= events.Messages { // what is put back is not to be copied again
			copying.Sources = nil
			_, err := s.js.UpdateStream(ctx, copying)
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// putBack publishes what was set aside, in its order, and removes it.
func (s *Streams) putBack(ctx context.Context) error {
	aside, err := s.js.Stream(ctx, asideStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	is := aside.CachedInfo().State
	for sequence := is.FirstSeq; sequence <= is.LastSeq; sequence++ {
		m, err := GetStored(ctx, s.nc, asideStream, sequence)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue // it was put back
		}
		if err != nil {
			return err
		}
		back := &nats.Msg{Subject: m.Subject, Header: nats.Header{}, Data: m.Data}
		for name, values := range m.Header {
			if !strings.HasPrefix(name, "Nats-") {
				back.Header[name] = values
			}
		}
		id := fmt.Sprintf("%s-%d-%d", asideStream, is.FirstSeq, m.Time.UnixNano())
		if _, err := s.js.PublishMsg(ctx, back, jetstream.WithMsgID(id), jetstream.WithExpectStream(EventsStream)); err != nil {
			return err
		}
		if err := aside.DeleteMsg(ctx, sequence); err != nil {
			return err
		}
	}
	return s.js.DeleteStream(ctx, asideStream)
}
