package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// streamsState is what the streams looked like at the last look.
type streamsState struct {
	Events, Deltas, DeadLetters jetlog.StreamState
}

func (n *generation) observeStreams(ctx context.Context) error {
	events, err := n.streams.State(ctx, jetlog.EventsStream)
	if err != nil {
		return err
	}
	return n.observeWith(ctx, events)
}

// observeAgain is observeStreams where the state of EVENTS may be a moment old.
func (n *generation) observeAgain(ctx context.Context) error {
	if events := n.ended.Load(); events != nil && n.fresh.Left() > 0 {
		return n.observeWith(ctx, *events)
	}
	return n.observeStreams(ctx)
}

func (n *generation) observeWith(ctx context.Context, events jetlog.StreamState) (err error) {
	s := &streamsState{Events: events}
	for name, to := range map[string]*jetlog.StreamState{
		n.slot.Deltas():         &s.Deltas,
		jetlog.DeadLetterStream: &s.DeadLetters,
	} {
		if *to, err = n.streams.State(ctx, name); err != nil {
			return err
		}
	}
	n.state.Store(s)
	if lost := n.front.see(s.Events, n.config.NATS.Streams.Events.MaxAge); lost > 0 {
		n.log.Error("stream EVENTS has lost its beginning, and neither by max_age nor by 'tidemark events trim': what is counted stands, but cannot be counted again",
			"messages", lost, "begins_at", s.Events.First,
			"remedy", "deny everybody but operators to publish to $JS.API.> (docs/security.md, Who may do what)")
	}
	return nil
}

// front watches where EVENTS begins: it moves by max_age, and by what says so
// before (jetlog.Streams.Trim), alone. Safe for concurrent use.
type front struct {
	mu    sync.Mutex
	first uint64    // sequence, as of the last look
	at    time.Time // its timestamp
	lost  uint64
}

// see returns how many messages went since the last look before their time. At
// the first look nothing may have gone if nothing ever ages. What goes together
// with a message that has aged is taken to have aged: it cannot be asked any more.
func (f *front) see(now jetlog.StreamState, ageMax time.Duration) (lost uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was, at := f.first, f.at
	if was == 0 && ageMax == 0 {
		was = 1
	}
	if was > 0 {
		was = max(was, min(now.Begins(), now.First)) // what was meant to go is not lost
	}
	f.first, f.at = now.First, now.FirstTime
	aged := ageMax > 0 && now.Now.Sub(at) >= ageMax
	if was == 0 || now.First <= was || aged {
		return 0
	}
	f.lost += now.First - was
	return now.First - was
}

// gone is how many messages are gone before their time.
func (f *front) gone() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

// checkStreams makes sure that the streams are those that the stored state
// counts positions in (I10).
func (n *generation) checkStreams() error {
	now, known := n.state.Load(), n.store.Meta().Streams
	if known.Events.IsZero() {
		return n.store.SetStreams(cold.Streams{Events: now.Events.Created, Deltas: now.Deltas.Created})
	}
	if !known.Events.Equal(now.Events.Created) && n.goesOn(now.Events.Continues, known.Events) {
		n.log.Info("stream EVENTS goes on from the one that the backup was made of", "after", now.Events.Continues.After)
		if err := n.store.SetStreams(cold.Streams{Events: now.Events.Created}); err != nil {
			return err
		}
		known = n.store.Meta().Streams
	}
	if !known.Events.Equal(now.Events.Created) {
		return fmt.Errorf("stream EVENTS was recreated at %s, and what is counted here came from one made at %s: "+
			"'tidemark repair --adopt' keeps the counts and goes on with the new stream; 'tidemark repair --replay' counts the new stream alone, from its first event",
			now.Events.Created.Format(time.RFC3339), known.Events.Format(time.RFC3339))
	}
	return n.dir.settle()
}

// goesOn says whether an EVENTS goes on from the one that was counted here, after all of
// it that was: what is counted of a message behind that is of another one, unless the
// EVENTS was made by who stood there (I10).
func (n *generation) goesOn(c jetlog.Continues, counted time.Time) bool {
	if c.Events.IsZero() || !c.Events.Equal(counted) {
		return false
	}
	for s := range n.config.Shards + 1 {
		if state, err := n.store.Stack(pipeline.Shard(s)).State(); err != nil || state.Applied > max(c.Position, pipeline.EndOf(c.After)) {
			return false
		}
	}
	return true
}

// beyond says of an error what to do where EVENTS begins after where shards stand.
func (n *generation) beyond(err error) error {
	events := n.state.Load().Events
	if !errors.Is(err, pipeline.ErrGap) || events.First <= 1 {
		return err
	}
	why := "its beginning is gone"
	if t := events.Trimmed; t.Below > 0 {
		why = fmt.Sprintf("it was trimmed below %d", t.Below)
	}
	return fmt.Errorf("%w: EVENTS begins with message %d, %s: %s", err, events.First, why, n.toRestore(events))
}

// toRestore says what to type to have a backup in the place of what is counted here.
func (n *generation) toRestore(events jetlog.StreamState) string {
	return fmt.Sprintf("stop this node, move %s away, and run 'tidemark restore %s --data-dir %s'",
		n.dir.of(n.number, badgerDir), cmp.Or(events.Trimmed.Place, n.config.Backup.To, "BACKUP"), n.dir.path)
}

// sequenceMax is the last window in DELTAS, if it is the stream that the
// stored states refer to. A new DELTAS is no harm: windows can be derived
// again.
func (n *generation) sequenceMax() uint64 {
	now, known := n.state.Load().Deltas, n.store.Meta().Streams
	if known.Deltas.IsZero() { // restored
		return 0
	}
	if !known.Deltas.Equal(now.Created) {
		n.log.Warn("stream DELTAS was recreated; its windows are derived again from EVENTS", "created", now.Created)
		return 0
	}
	return now.Last
}

// joinTries bounds how often one join begins again because DELTAS was recreated.
const joinTries = 5

// join brings the shards to where DELTAS can take over, and remembers of which
// streams they are. What it has found out about one DELTAS is not true of the
// next one.
func (n *generation) join() error {
	for range joinTries {
		if err := n.streams.Restore(n.ctx); err != nil {
			return err
		}
		before, err := n.streams.State(n.ctx, n.slot.Deltas())
		if err != nil {
			return err
		}
		if err := n.follower.Join(n.ctx); err != nil {
			return n.beyond(err)
		}
		if err := n.observeStreams(n.ctx); err != nil {
			return err
		}
		if n.state.Load().Deltas.Created.Equal(before.Created) {
			return n.recordStreams()
		}
	}
	return fmt.Errorf("stream DELTAS was recreated %d times while its beginning was looked for", joinTries)
}

func (n *generation) recordStreams() error {
	now := n.state.Load()
	want := cold.Streams{Events: now.Events.Created, Deltas: now.Deltas.Created}
	if n.store.Meta().Streams == want {
		return nil
	}
	return n.store.SetStreams(want)
}
