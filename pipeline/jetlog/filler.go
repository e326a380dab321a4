package jetlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// FillerSubject is where fillers stand in EVENTS. They mean nothing and
	// are passed over.
	FillerSubject = EventsSubject + "filler"
	// HeaderFiller marks them, too.
	HeaderFiller = "Tidemark-Filler"

	// FillersMax is the longest tail that FastForward makes up for: far more
	// than a power cut takes, well under a minute's work.
	FillersMax = 10_000_000

	fillersUnderWay = 4000
	fillerTimeout   = 10 * time.Second
)

// ErrFillers says that so much is missing that it was no power cut.
var ErrFillers = errors.New("jetlog: too far to fast-forward")

// FastForward implements pipeline.Events: it publishes fillers, so that no
// sequence is used twice after the stream lost its tail (I10). No other writer
// is harmed: sequences that events take during it count too. Those events would
// be missed, though, below past: stop producers first, or call Reclaim.
func (e *Events) FastForward(ctx context.Context, past uint64) error {
	if err := fastForward(ctx, e.streams, past); err != nil {
		return fmt.Errorf("jetlog: fast-forward %s to sequence %d: %w", EventsStream, past, err)
	}
	return nil
}

func fastForward(ctx context.Context, s *Streams, past uint64) error {
	js, err := jetstream.New(s.nc,
		jetstream.WithPublishAsyncMaxPending(fillersUnderWay+1),
		jetstream.WithPublishAsyncTimeout(fillerTimeout))
	if err != nil {
		return err
	}
	defer js.CleanupPublisher()
	for {
		state, err := s.State(ctx, EventsStream)
		if err != nil || state.Last >= past {
			return err
		}
		missing := past - state.Last
		if missing > FillersMax {
			return fmt.Errorf("%w: %d messages are missing after %d, more than %d: restore the stream from a backup, or rebuild",
				ErrFillers, missing, state.Last, uint64(FillersMax))
		}
		if err := s.letIn(ctx); err != nil {
			return err
		}
		if err := publishFillers(ctx, js, min(missing, fillersUnderWay)); err != nil {
			return err
		}
	}
}

func publishFillers(ctx context.Context, js jetstream.JetStream, n uint64) error {
	futures := make([]jetstream.PubAckFuture, n)
	for i := range futures {
		m := &nats.Msg{Subject: FillerSubject, Header: nats.Header{HeaderFiller: {"1"}}}
		var err error
		if futures[i], err = js.PublishMsgAsync(m, jetstream.WithExpectStream(EventsStream)); err != nil {
			return err
		}
	}
	for _, f := range futures {
		select {
		case <-f.Ok():
		case err := <-f.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
