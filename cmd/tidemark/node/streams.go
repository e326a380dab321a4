package node

import (
	"context"
	"fmt"
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

// join brings the shards to where DELTAS can take over, and makes sure that
// EVENTS will not use a sequence twice. It changes nothing where all is well.
func (n *Node) join() error {
	if n.sinks.Failed() == n.config.Shards {
		return n.sinks.Err()
	}
	if err := n.sinks.Settle(n.ctx); err != nil {
		return err
	}
	positions := n.sinks.Positions()
	tail, last, err := n.deltas.Tail(n.ctx)
	if err != nil {
		return err
	}
	if err := n.observeStreams(n.ctx); err != nil {
		return err
	}
	if err := n.fastForward(max(tail.To, positions[len(positions)-1])); err != nil {
		return err
	}
	target, sequence := positions[len(positions)-1], uint64(0)
	switch first := n.state.Load().Deltas.First; {
	case last == 0: // all shards to where the furthest stands; there the log will begin
	case n.sinks.Sequence()+1 >= first:
		return n.recordStreams()
	default: // the windows in between have been purged
		header, err := n.deltas.First(n.ctx)
		if err != nil {
			return err
		}
		target, sequence = header.From, first-1
	}
	if err := n.catchUp(target, sequence, positions); err != nil {
		return err
	}
	n.sinks.Resume(sequence)
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

// fastForward moves EVENTS past everything counted, when it has lost its tail
// (a power cut): no sequence may mean two events (I10).
func (n *Node) fastForward(to pipeline.Position) error {
	counted := to.Sequence()
	events := n.state.Load().Events
	if events.Last >= counted {
		return nil
	}
	n.log.Error("stream EVENTS has lost its tail: events were counted that it does not hold any more; "+
		"their sequences are passed over and the counts stand", "last", events.Last, "counted", counted)
	if err := jetlog.FastForward(n.ctx, n.streams, counted); err != nil {
		return fmt.Errorf("pass over the lost tail of EVENTS: %w", err)
	}
	return n.observeStreams(n.ctx)
}

// catchUp derives from EVENTS, here and for this node alone, the windows that
// DELTAS does not hold (any more), up to a target position. Windows end
// wherever a shard stands, so that each goes on from its own place (I3).
func (n *Node) catchUp(target pipeline.Position, sequence uint64, positions []pipeline.Position) error {
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
	lane, cuts := n.program.NewLane(), append(positions, target)
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
			if err := n.sinks.Hand(n.ctx, pipeline.Entry{Sequence: sequence, Window: derived[i].Window}); err != nil {
				return err
			}
			from = derived[i].To
		}
	}
	return n.sinks.WaitApplied(n.ctx, target)
}
