package node

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// streamsState is what the streams looked like at the last look.
type streamsState struct {
	Events, Deltas, DeadLetters jetlog.StreamState
}

func (n *Node) observeStreams(ctx context.Context) (err error) {
	s := new(streamsState)
	for name, to := range map[string]*jetlog.StreamState{
		jetlog.EventsStream:     &s.Events,
		jetlog.DeltasStream:     &s.Deltas,
		jetlog.DeadLetterStream: &s.DeadLetters,
	} {
		if *to, err = n.streams.State(ctx, name); err != nil {
			return err
		}
	}
	n.state.Store(s)
	return nil
}

// checkStreams makes sure that the streams are those that the stored state
// counts positions in (I10).
func (n *Node) checkStreams() error {
	now, known := n.state.Load(), n.store.Meta().Streams
	if known.Events.IsZero() {
		return n.store.SetStreams(cold.Streams{Events: now.Events.Created, Deltas: now.Deltas.Created})
	}
	if !known.Events.Equal(now.Events.Created) {
		return fmt.Errorf("stream EVENTS was made anew at %s, and what is counted here came from one made at %s: "+
			"'tidemark repair --adopt' keeps the counts and goes on with the new stream; 'tidemark repair --replay' counts the new stream alone, from its first event",
			now.Events.Created.Format(time.RFC3339), known.Events.Format(time.RFC3339))
	}
	return nil
}

// sequenceMax is the last window in DELTAS, if it is the stream that the
// stored states refer to. A new DELTAS is no harm: windows can be derived
// again.
func (n *Node) sequenceMax() uint64 {
	now, known := n.state.Load().Deltas, n.store.Meta().Streams
	if !known.Deltas.Equal(now.Created) {
		n.log.Warn("stream DELTAS was made anew; its windows are derived again from EVENTS", "created", now.Created)
		return 0
	}
	return now.Last
}

// join brings the shards to where DELTAS can take over. It changes nothing
// where all is well. What decides is positions, not sequences: a catch-up may
// have been interrupted, and a log that was made anew begins anywhere.
func (n *Node) join() error {
	if n.sinks.Stopped() {
		return n.sinks.Err()
	}
	if err := n.sinks.Settle(n.ctx); err != nil {
		return err
	}
	if err := n.guardTail(); err != nil {
		return err
	}
	positions := n.sinks.Positions()
	lowest, highest := positions[0], positions[len(positions)-1]
	deltas := n.state.Load().Deltas
	if deltas.Messages == 0 {
		// All shards to where the furthest stands; there the log will begin.
		if err := n.catchUp(highest, positions); err != nil {
			return err
		}
		n.sinks.Resume(0)
		return n.recordStreams()
	}
	if at := n.sinks.Sequence(); at >= deltas.First && at <= deltas.Last {
		// The sequence may be of a log that lost its tail and was filled again.
		if h, err := n.deltas.At(n.ctx, at); err == nil && h.To <= lowest {
			return n.recordStreams()
		}
	}
	// The window after which this node would go on is gone, or lies behind the
	// end: from the oldest there is. Those applied already are passed over.
	first, err := n.deltas.First(n.ctx)
	if err != nil {
		return err
	}
	if lowest < first.From {
		if err := n.catchUp(first.From, positions); err != nil {
			return err
		}
	}
	n.sinks.Resume(deltas.First - 1)
	return n.recordStreams()
}

func (n *Node) recordStreams() error {
	now := n.state.Load()
	want := cold.Streams{Events: now.Events.Created, Deltas: now.Deltas.Created}
	if n.store.Meta().Streams == want {
		return nil
	}
	return n.store.SetStreams(want)
}

// settleWithin is how long whoever is to route waits for its own shards. With a
// full disk they may stand still for hours: then another node is to route.
const settleWithin = 10 * time.Second

// settle returns when what was handed to shards is counted, so that where they
// stand tells what has been, or all have stopped.
func (n *Node) settle() error {
	if n.sinks.Stopped() {
		return nil
	}
	ctx, end := context.WithTimeout(n.ctx, settleWithin)
	defer end()
	if err := n.sinks.Settle(ctx); err != nil && !n.sinks.Stopped() {
		return fmt.Errorf("shards have windows still to apply: %w", err)
	}
	return n.ctx.Err()
}

// guardTail makes sure that no sequence of EVENTS means two events (I10): when
// the stream has lost its tail (a power cut), it is moved past everything
// counted, and events that producers stored meanwhile at used sequences are
// moved behind.
func (n *Node) guardTail() error {
	n.guard.Lock()
	defer n.guard.Unlock()
	if err := n.settle(); err != nil {
		return err
	}
	// What is counted first, the stream's end after it: in the other order an
	// event counted in between would look lost.
	counted, at := n.sinks.Furthest()
	tail, _, err := n.deltas.Tail(n.ctx)
	if err != nil {
		return err
	}
	if tail.To > counted {
		counted = tail.To
		if at = max(at, tail.Time); tail.Time == 0 {
			at = 0 // it does not tell: nothing can be said of timestamps
		}
	}
	if err := n.observeStreams(n.ctx); err != nil {
		return err
	}
	sequence := counted.Sequence()
	if events := n.state.Load().Events; events.Last < sequence {
		n.log.Error("stream EVENTS has lost its tail: events were counted that it does not hold any more; "+
			"their sequences are passed over and the counts stand", "last", events.Last, "counted", sequence)
		if err := jetlog.FastForward(n.ctx, n.streams, sequence); err != nil {
			return fmt.Errorf("pass over the lost tail of EVENTS: %w", err)
		}
	}
	if at > 0 && sequence > 0 {
		moved, err := jetlog.Reclaim(n.ctx, n.streams, sequence, at)
		if moved > 0 {
			n.log.Error("stream EVENTS had lost its tail, and events were stored at used sequences: they are published again behind the end", "events", moved)
		}
		if err != nil {
			return err
		}
	}
	return n.observeStreams(n.ctx)
}

// catchUp derives from EVENTS, here and for this node alone, the windows that
// DELTAS does not hold (any more), up to a target position. Windows end
// wherever a shard stands, so that each goes on from its own place (I3). They
// have no sequence in DELTAS: until it is done, nothing there is purged, and
// an interruption is found by positions.
func (n *Node) catchUp(target pipeline.Position, positions []pipeline.Position) error {
	from := positions[0]
	if from >= target {
		return nil
	}
	n.log.Warn("tidemark: deriving windows again from EVENTS", "from", from, "to", target)
	source, err := n.openSource(n.ctx, from)
	if err != nil {
		return fmt.Errorf("state up to position %d is missing here, DELTAS no longer has it, and EVENTS cannot give it: %w", target, err)
	}
	defer source.Close()
	below, _ := slices.BinarySearch(positions, target)
	lane, cuts := n.program.NewLane(), append(slices.Clone(positions[:below]), target)
	for from < target {
		messages, err := source.Next(n.ctx)
		if err != nil {
			return err
		}
		derived, err := pipeline.DeriveRun(lane, from, messages, cuts)
		if err != nil {
			return err
		}
		for i := range derived {
			if from >= target {
				break
			}
			if err := n.sinks.Hand(n.ctx, pipeline.Entry{Window: derived[i].Window}); err != nil {
				return err
			}
			from = derived[i].To
		}
	}
	if n.sinks.Stopped() {
		return n.sinks.Err()
	}
	return n.sinks.Settle(n.ctx)
}
