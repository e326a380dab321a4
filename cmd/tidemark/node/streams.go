package node

import (
	"context"
	"fmt"
	"time"

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

// join brings the shards to where DELTAS can take over, and remembers of which
// streams they are.
func (n *Node) join() error {
	if err := n.follower.Join(n.ctx); err != nil {
		return err
	}
	if err := n.observeStreams(n.ctx); err != nil {
		return err
	}
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
