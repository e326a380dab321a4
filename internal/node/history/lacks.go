package history

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/internal/node/led"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

const (
	// trimWithin bounds how long a rebuild waits for a trim: between its mark and its
	// purge that looks at the record once.
	trimWithin = 2 * time.Second
	// TrimEvery is how often it looks in that time.
	TrimEvery = 50 * time.Millisecond
)

// errTrimming: how much of EVENTS will be there is known in a moment.
var errTrimming = errors.New("is being trimmed")

// Lacks says that a generation cannot be derived from EVENTS: its beginning is gone. It
// waits for a trim that is under way, which may be given up.
func (h *History) Lacks(ctx context.Context) error {
	for end := time.Now().Add(trimWithin); ; {
		err := h.lacksNow(ctx)
		if !errors.Is(err, errTrimming) || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(TrimEvery):
		case <-ctx.Done():
			return err
		}
	}
}

func (h *History) lacksNow(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, led.LookWithin)
	defer cancel()
	events, err := h.Streams.MarkedEvents(ctx)
	if err != nil {
		return nil // it could not look now, and looks again
	}
	return h.LacksOf(events)
}

// LacksOf is Lacks of EVENTS in a state that was read before, and waits for nothing. What
// is marked to be trimmed counts as gone: the process that trims may have read the record
// before it named a rebuild.
func (h *History) LacksOf(events jetlog.StreamState) error {
	trimming := events.Trimmed.Below > max(events.First, 1)
	events.First = max(events.First, events.Trimmed.Below)
	for _, d := range events.Damaged {
		if err := h.Has(StreamOf(events), d.Last); err != nil {
			return fmt.Errorf("a rebuild needs all of EVENTS: %w: %w", &d, err)
		}
	}
	if events.First <= 1 {
		return nil
	}
	switch first, err := h.FirstOf(events); {
	case err != nil:
		return fmt.Errorf("a rebuild needs all of EVENTS: %w", err)
	case first <= 1:
		return nil
	case trimming:
		return fmt.Errorf("a rebuild needs all of EVENTS, which %w below %d: ask again in a moment; if that was interrupted, run 'tidemark events trim' again", errTrimming, events.First)
	}
	return lacksUpTo(events)
}

func lacksUpTo(events jetlog.StreamState) error {
	why := "nobody knows why: max_age, or somebody with the right to purge"
	switch t := events.Trimmed; {
	case t.Below > 0:
		why = fmt.Sprintf("it was trimmed below %d; backup %s has what those events counted", t.Below, t.Place)
	case !events.Continues.Events.IsZero():
		why = "it goes on from a backup that was restored"
	}
	return fmt.Errorf("a rebuild needs all of EVENTS, which begins with message %d, so that %d messages are missing (nats.streams.events.archive names where they are archived): %s", events.First, events.First-1, why)
}
