package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// Guard finds out what a power cut has done to the streams under shards that have counted
// what is lost (I10). A node has one, which its router and its follower ask before they read.
type Guard struct {
	Shards Shards
	Events Events
	Log    Log
	Logger *slog.Logger

	turn   chan struct{} // held while checking: one at a time
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

// Open opens EVENTS between two looks at its tail. The second is the one that counts: what
// has happened before the source noted where it begins, that look finds; what happens later,
// the source does. A router must have read the end of DELTAS before: a router that appends
// after that fences it.
//
// held ends with the lease, ctx with the process.
func (g *Guard) Open(ctx, held context.Context, from Position) (Source, error) {
	if err := g.Check(ctx); err != nil {
		return nil, err
	}
	source, err := g.Events.Open(held, from)
	if err != nil {
		return nil, err
	}
	if err := g.Check(ctx); err != nil {
		_ = source.Close()
		return nil, err
	}
	return source, nil
}

// Check is an error that wraps ErrLostTail if EVENTS has lost events that are counted (a power
// cut): it ends before them, or others stand in their places, and would be counted by nobody.
func (g *Guard) Check(ctx context.Context) error {
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := g.settle(ctx); err != nil {
		return err
	}
	// What is counted first, the stream's end after it: in the other order an event counted
	// in between would look lost. Each on its own: another node may have counted on past what
	// is lost here.
	type end struct {
		counted Position
		at      int64
	}
	var ends []end
	for of := g; of != nil; of = of.beside {
		counted, at := of.Shards.Furthest()
		ends = append(ends, end{counted, at})
	}
	tail, _, err := g.Log.Tail(ctx)
	if err != nil {
		return err
	}
	if tail.To > ends[0].counted {
		ends = append(ends, end{tail.To, tail.Time})
	}
	for _, e := range ends {
		if err := g.Events.Holds(ctx, e.counted.Sequence(), e.at); err != nil {
			return err
		}
	}
	return nil
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
