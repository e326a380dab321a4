package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Follower hands DELTAS to a node's shards. What DELTAS does not hold it
// derives from EVENTS, for this node alone.
//
//	Join ─► DELTAS goes on where the shards stand ────────► Follow
//	  └───► it begins behind them: EVENTS ─► lane ─► shards ──┘
type Follower struct {
	*Guard
	Tailer func(ctx context.Context, after uint64) (Tailer, error)
	Lane   func() Deriver
}

// Run joins and follows, for shards for which DELTAS is not kept while they join:
// the windows that they go on with may be purged before they are read. Then it
// joins again, and has less to derive each time. joined is called with the window
// after which DELTAS is followed, before it is: from then on DELTAS is to be kept.
func (f *Follower) Run(ctx context.Context, joined func(sequence uint64)) error {
	for {
		if err := f.Join(ctx); err != nil {
			return err
		}
		joined(f.Shards.Sequence())
		err := f.Follow(ctx)
		if !errors.Is(err, ErrGap) {
			return err
		}
		// A log that begins no later has a hole, which joining does not close.
		if _, oldest, unknown := f.Log.First(ctx); unknown != nil || oldest <= f.Shards.Sequence()+1 {
			return err
		}
	}
}

// Follow hands on the windows of DELTAS after Shards.Sequence, until ctx ends or
// something is wrong. Join must come before it, each time.
func (f *Follower) Follow(ctx context.Context) error {
	last := f.Shards.Sequence()
	tailer, err := f.Tailer(ctx, last)
	if err != nil {
		return err
	}
	defer tailer.Close()
	stands := f.Shards.Positions()
	for {
		entries, err := tailer.Next(ctx)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := f.hand(ctx, e, stands, e.Sequence > last+1); err != nil {
				return err
			}
			last = e.Sequence
		}
	}
}

// hand gives a window to the shards, which stood at some positions when the
// first one came. A log that was recreated begins, and one that lost its tail
// goes on, where the router's own shards stood: it does not know where this
// node's do. A window that goes over where one of them stands is of no use to
// that one (I3), nor is a log's first window to one that stands before it. Then
// this node derives for itself all up to the window's end, cut as it needs it.
//
// So it does where a window is gone that this node has not read (hole): somebody
// has deleted it.
//
// (One that leaves a gap behind the window next to it is a fault, I2: shards say so.)
func (f *Follower) hand(ctx context.Context, e Entry, stood []Position, hole bool) error {
	h, err := DecodeHeader(e.Window)
	if err != nil {
		return err
	}
	// A shard that stood in the middle of it still stands there: what came so far ends
	// before.
	over := slices.ContainsFunc(stood, func(p Position) bool { return h.From < p && p < h.To })
	begins := e.Sequence == 1 && len(stood) > 0 && stood[0] < h.From
	if (over || begins || hole) && !f.Shards.Stopped() {
		if err := f.Shards.Settle(ctx); err != nil {
			return err
		}
		stands := f.Shards.Positions()
		if len(stands) > 0 && (begins || hole && stands[0] < h.From || over && stands[0] >= h.From) {
			if err := f.catchUp(ctx, h.To, stands); err != nil {
				return err
			}
		}
	}
	return f.Shards.Hand(ctx, e)
}

// Join brings the shards to where DELTAS can take over. It changes nothing
// where all is well. What decides is positions, not sequences: a catch-up may
// have been interrupted, a log that was recreated begins anywhere, and one that
// lost its tail has other windows at the same sequences.
func (f *Follower) Join(ctx context.Context) error {
	if f.Shards.Stopped() {
		return f.Shards.Err()
	}
	if err := f.Shards.Settle(ctx); err != nil {
		return err
	}
	if err := f.Check(ctx); err != nil {
		return err
	}
	positions := f.Shards.Positions()
	if len(positions) == 0 { // all have stopped since
		return f.Shards.Err()
	}
	lowest := positions[0]
	first, oldest, err := f.Log.First(ctx)
	if err != nil {
		return err
	}
	if oldest == 0 {
		// All shards to where the furthest stands, or would after a crash if it
		// has stopped; there the log will begin (Router.Cuts).
		cuts := f.Cuts()
		if err := f.catchUp(ctx, cuts[len(cuts)-1], positions); err != nil {
			return err
		}
		f.Shards.Resume(0)
		return nil
	}
	if at := f.Shards.Sequence(); at >= oldest {
		// The sequence may be of a log that lost its tail and was filled again.
		if h, err := f.Log.At(ctx, at); err == nil && h.To <= lowest {
			return nil
		}
	}
	// The window after which this node would go on is gone, or lies behind the
	// end: from the oldest there is. Those applied already are passed over.
	if lowest < first.From {
		if err := f.catchUp(ctx, first.From, positions); err != nil {
			return err
		}
	}
	f.Shards.Resume(oldest - 1)
	return nil
}

// catchUp derives from EVENTS, here and for this node alone, the windows that DELTAS
// does not hold, or no longer holds, up to a target position. Windows end wherever a
// shard stands, so that each goes on from its own place (I3). They have no sequence in
// DELTAS: until it is done, nothing there is purged, and an interruption is found by
// positions.
func (f *Follower) catchUp(ctx context.Context, target Position, positions []Position) error {
	from := positions[0]
	if from >= target {
		return nil
	}
	f.Logger.Warn("tidemark: deriving windows again from EVENTS", "from", from, "to", target)
	source, err := f.Open(ctx, ctx, from)
	if err != nil {
		return fmt.Errorf("state up to position %d is missing here, DELTAS no longer has it, and EVENTS cannot give it: %w", target, err)
	}
	defer source.Close()
	return Replay(ctx, f.Shards, source, f.Lane(), positions, target)
}

// Replay hands to shards, which stand at some positions, ascending, what the
// messages of a source change up to a target, and returns when they have applied
// it. Windows end wherever one of them stands, and have no sequence in DELTAS. The
// source must go on after the lowest; it is not closed.
func Replay(ctx context.Context, shards Shards, source Source, lane Deriver, positions []Position, target Position) error {
	if len(positions) == 0 || positions[0] >= target {
		return nil
	}
	from := positions[0]
	below, _ := slices.BinarySearch(positions, target)
	cuts := append(slices.Clone(positions[:below]), target)
	for from < target {
		messages, err := source.Next(ctx)
		if err != nil {
			return err
		}
		derived, err := DeriveRun(lane, from, messages, cuts)
		if err != nil {
			return err
		}
		for i := range derived {
			if from >= target {
				break
			}
			if err := shards.Hand(ctx, Entry{Window: derived[i].Window}); err != nil {
				return err
			}
			from = derived[i].To
		}
	}
	if shards.Stopped() {
		return shards.Err()
	}
	return shards.Settle(ctx)
}

// Once is a source of some messages, at least one, in one piece; then io.EOF.
func Once(messages []Message) Source { return &onceSource{messages} }

type onceSource struct{ messages []Message }

func (s *onceSource) Next(context.Context) ([]Message, error) {
	if s.messages == nil {
		return nil, io.EOF
	}
	out := s.messages
	s.messages = nil
	return out, nil
}

func (s *onceSource) Close() error { return nil }
