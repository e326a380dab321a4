package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// Guard makes good what a power cut does to the streams under shards that have
// counted what is lost (I10). A node has one, which its router and its follower
// ask before they read.
type Guard struct {
	Shards Shards
	Events Events
	Log    Log
	Logger *slog.Logger

	turn   chan struct{} // held while mending: one at a time
	beside *Guard        // over the shards that these are to come as far as; nil: these are all
}

// NewGuard makes a guard over what it is given.
func NewGuard(shards Shards, events Events, log Log, logger *slog.Logger) *Guard {
	return &Guard{Shards: shards, Events: events, Log: log, Logger: logger, turn: make(chan struct{}, 1)}
}

// Beside is a guard over other shards of the same node, which are on their way to
// where its own stand.
func (g *Guard) Beside(shards Shards) *Guard {
	return &Guard{Shards: shards, Events: g.Events, Log: g.Log, Logger: g.Logger, turn: g.turn, beside: g}
}

// Cuts are where the shards stand, will stand when they have applied what was
// handed to them, and would stand after a crash, ascending: a window that went
// over one of these could not be applied from there. There is at least one.
func (g *Guard) Cuts() []Position {
	cuts := append(g.Shards.Positions(), g.Shards.Handed())
	cuts = append(cuts, g.Shards.Kept()...)
	if g.beside != nil {
		cuts = append(cuts, g.beside.Cuts()...)
	}
	slices.Sort(cuts)
	return slices.Compact(cuts)
}

// Open opens EVENTS between two looks at its tail. The first mends what would
// keep it from being opened. The second is the one that counts: what has
// happened before the source noted where it begins, that look finds; what
// happens later, the source does. A router must have read the end of DELTAS
// before: a router that appends after that fences it.
//
// held ends with the lease; ctx, which the mending goes by, does not: what is
// half moved must not wait for another.
func (g *Guard) Open(ctx, held context.Context, from Position) (Source, error) {
	if err := g.Mend(ctx); err != nil {
		return nil, err
	}
	source, err := g.Events.Open(held, from)
	if err != nil {
		return nil, err
	}
	if err := g.Mend(ctx); err != nil {
		_ = source.Close()
		return nil, err
	}
	return source, nil
}

// Mend makes sure that no sequence of EVENTS means two events: when the stream
// has lost its tail (a power cut), it is moved past everything counted, and
// events that producers stored since then at used sequences are moved to the end.
func (g *Guard) Mend(ctx context.Context) error {
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := g.settle(ctx); err != nil {
		return err
	}
	// What is counted first, the stream's end after it: in the other order an
	// event counted in between would look lost.
	counted, at := g.Shards.Furthest()
	if g.beside != nil {
		if p, t := g.beside.Shards.Furthest(); p > counted {
			counted, at = p, t
		}
	}
	tail, _, err := g.Log.Tail(ctx)
	if err != nil {
		return err
	}
	if tail.To > counted {
		counted = tail.To
		if at = max(at, tail.Time); tail.Time == 0 {
			at = 0 // it does not tell: nothing can be said of timestamps
		}
	}
	sequence := counted.Sequence()
	last, err := g.Events.Last(ctx)
	if err != nil {
		return err
	}
	if last < sequence {
		g.Logger.Error("stream EVENTS has lost its tail: events were counted that it does not hold any more; "+
			"their sequences are passed over and the counts stand", "last", last, "counted", sequence)
		if err := g.Events.FastForward(ctx, sequence); err != nil {
			return fmt.Errorf("pass over the lost tail of EVENTS: %w", err)
		}
	}
	if at == 0 || sequence == 0 {
		return nil
	}
	moved, err := g.Events.Reclaim(ctx, sequence, at)
	if moved > 0 {
		g.Logger.Error("stream EVENTS had lost its tail, and events were stored at used sequences: they are published again behind the end", "events", moved)
	}
	return err
}

// settleWithin is how long a node that is to route waits for its own shards. With a
// full disk they may stand still for hours: then another node is to route.
const settleWithin = 10 * time.Second

// settle returns when what was handed to shards is counted, so that where they stand
// says what has been counted, or all have stopped.
func (g *Guard) settle(ctx context.Context) error {
	if g.Shards.Stopped() {
		return nil
	}
	within, end := context.WithTimeout(ctx, settleWithin)
	defer end()
	if err := g.Shards.Settle(within); err != nil && !g.Shards.Stopped() {
		return fmt.Errorf("shards have windows still to apply: %w", err)
	}
	return ctx.Err()
}
