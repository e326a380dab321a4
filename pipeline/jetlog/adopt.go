package jetlog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// asideStream holds what stood in EVENTS while that is moved on.
const asideStream = "EVENTS_ASIDE"

// MoveOn has EVENTS go on from another one that is lost: what it holds up to where that was
// counted moves behind it, in its order. Nodes and producers must be stopped: what is
// published meanwhile may be lost. It may be run again after an interruption; until it has
// come to its end the stream does not say that it goes on, and no node starts.
//
//	EVENTS ─► EVENTS_ASIDE ─► EVENTS begins after the sequence ─► EVENTS
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
	if is.Continues.Events.Equal(of.Events) { // another node, which may have counted further, has adopted it
		of.After = max(of.After, is.Continues.After)
	}
	if is.Last < of.After || is.First <= of.After && is.Messages > 0 {
		if is.Messages > 0 {
			if err := s.setAside(ctx, is.Messages); err != nil {
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
	if err := s.putBack(ctx, of.After); err != nil {
		return err
	}
	_, err = s.changeEvents(ctx, func(c *jetstream.StreamConfig, _ jetstream.StreamState) {
		c.Metadata[continuesKey] = of.text()
	})
	return err
}

// setAside copies EVENTS, which holds so many messages.
func (s *Streams) setAside(ctx context.Context, messages uint64) error {
	copying := jetstream.StreamConfig{
		Name: asideStream, Storage: jetstream.FileStorage, Replicas: s.configs[EventsStream].Replicas,
		Sources: []*jetstream.StreamSource{{Name: EventsStream}},
	}
	aside, err := s.js.CreateOrUpdateStream(ctx, copying)
	if err != nil {
		return err
	}
	for {
		is, err := aside.Info(ctx)
		if err != nil {
			return err
		}
		if is.State.Msgs >= messages { // what is put back is not to be copied again
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

// putBack publishes what was set aside of EVENTS up to a sequence, in its order, once, and
// removes what was aside.
func (s *Streams) putBack(ctx context.Context, upTo uint64) error {
	aside, err := s.js.Stream(ctx, asideStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	is := aside.CachedInfo()
	id := func(sequence uint64) string {
		return fmt.Sprintf("%s-%d-%d", asideStream, is.Created.UnixNano(), sequence)
	}
	there := map[string]bool{} // since an earlier run
	all := jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy}
	err = VisitHeaders(ctx, s.js, EventsStream, all, func(m *Stored) error {
		for _, id := range m.Header[nats.MsgIdHdr] {
			there[id] = strings.HasPrefix(id, asideStream)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for sequence := is.State.FirstSeq; sequence <= is.State.LastSeq; sequence++ {
		m, err := GetStored(ctx, s.nc, asideStream, sequence)
		if err != nil {
			return err
		}
		if was, err := sourceSequence(m); err != nil || was > upTo || there[id(sequence)] {
			if err != nil {
				return err
			}
			continue
		}
		back := &nats.Msg{Subject: m.Subject, Header: nats.Header{}, Data: m.Data}
		for name, values := range m.Header {
			if !strings.HasPrefix(name, "Nats-") {
				back.Header[name] = values
			}
		}
		if _, err := s.js.PublishMsg(ctx, back, jetstream.WithMsgID(id(sequence)), jetstream.WithExpectStream(EventsStream)); err != nil {
			return err
		}
	}
	return s.js.DeleteStream(ctx, asideStream)
}

// sourceSequence is the sequence that a message had where it was copied from.
func sourceSequence(m *Stored) (sequence uint64, err error) {
	const header = "Nats-Stream-Source" // "EVENTS 7 …"
	words := strings.Fields(strings.Join(m.Header[header], " "))
	if len(words) < 2 {
		return 0, fmt.Errorf("message %d of %s has no header %s", m.Sequence, asideStream, header)
	}
	return strconv.ParseUint(words[1], 10, 64)
}
