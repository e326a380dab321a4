package counting

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/node/history"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// streamsState is what the streams looked like at the last look.
type streamsState struct {
	Events, Deltas, DeadLetters jetlog.StreamState
}

func (g *Generation) observeStreams(ctx context.Context) error {
	events, err := g.streams.State(ctx, jetlog.EventsStream)
	if err != nil {
		return err
	}
	return g.observeWith(ctx, events)
}

// observeAgain is observeStreams where the state of EVENTS may be a moment old.
func (g *Generation) observeAgain(ctx context.Context) error {
	if events := g.ended.Load(); events != nil && g.fresh.Left() > 0 {
		return g.observeWith(ctx, *events)
	}
	return g.observeStreams(ctx)
}

func (g *Generation) observeWith(ctx context.Context, events jetlog.StreamState) (err error) {
	s := &streamsState{Events: events}
	for name, to := range map[string]*jetlog.StreamState{
		g.Slot.Deltas():         &s.Deltas,
		jetlog.DeadLetterStream: &s.DeadLetters,
	} {
		if *to, err = g.streams.State(ctx, name); err != nil {
			return err
		}
	}
	g.state.Store(s)
	if lost := g.front.see(s.Events, g.Config.NATS.Streams.Events.MaxAge); lost > 0 {
		g.Log.Error("stream EVENTS has lost its beginning, and neither by max_age nor by 'tidemark events trim': what is counted stands, but cannot be counted again",
			"messages", lost, "begins_at", s.Events.First,
			"remedy", "deny everybody but operators to publish to $JS.API.> (docs/security.md, Who may do what)")
	}
	return nil
}

// front watches where EVENTS begins. Only max_age and a trim, which marks first how far it
// goes (jetlog.Streams.Trim), may move that. Safe for concurrent use.
type front struct {
	mu    sync.Mutex
	first uint64    // sequence, as of the last look
	at    time.Time // its timestamp
	lost  uint64
}

// see returns how many messages have gone before their time since the last look. If nothing
// ages, none may be missing at the first look. What goes together
// with a message that has aged is taken to have aged: its age can no longer be read.
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

// eventsIn reads EVENTS and its history in runs within the options.
func (g *Generation) eventsIn(o jetlog.RunOptions) history.Whole {
	return history.Whole{Events: jetlog.NewEvents(g.streams, o), History: g.history}
}

// checkStreams makes sure that the streams are those that the stored state
// counts positions in (I10).
func (g *Generation) checkStreams() error {
	now, known := g.state.Load(), g.store.Meta().Streams
	if known.Events.IsZero() {
		return g.store.SetStreams(cold.Streams{Events: now.Events.Created, Deltas: now.Deltas.Created})
	}
	if !known.Events.Equal(now.Events.Created) && g.goesOn(now.Events.Continues, known.Events) {
		g.Log.Info("stream EVENTS goes on from the one that the backup was made of", "after", now.Events.Continues.After)
		if err := g.store.SetStreams(cold.Streams{Events: now.Events.Created}); err != nil {
			return err
		}
		known = g.store.Meta().Streams
	}
	if !known.Events.Equal(now.Events.Created) {
		return fmt.Errorf("stream EVENTS was recreated at %s, and what is counted here came from one made at %s: "+
			"'tidemark repair --adopt' keeps the counts and goes on with the new stream; 'tidemark repair --replay' counts the new stream alone, from its first event",
			now.Events.Created.Format(time.RFC3339), known.Events.Format(time.RFC3339))
	}
	return g.Dir.Settle()
}

// goesOn says whether an EVENTS goes on from the one that was counted here, after all that
// was counted of it. A count of a later message is of another message, unless the node
// that made this EVENTS had counted as far (I10).
func (g *Generation) goesOn(c jetlog.Continues, counted time.Time) bool {
	if c.Events.IsZero() || !c.Events.Equal(counted) {
		return false
	}
	for s := range g.Config.Shards + 1 {
		if state, err := g.store.Stack(pipeline.Shard(s)).State(); err != nil || state.Applied > pipeline.EndOf(c.After) {
			return false
		}
	}
	return true
}

// beyond adds to an error what to do if EVENTS begins after the position of a shard.
func (g *Generation) beyond(err error) error {
	events := g.state.Load().Events
	if !errors.Is(err, pipeline.ErrGap) || events.First <= 1 {
		return err
	}
	why := "its beginning is gone"
	if t := events.Trimmed; t.Below > 0 {
		why = fmt.Sprintf("it was trimmed below %d", t.Below)
	}
	return fmt.Errorf("%w: EVENTS begins with message %d, %s: %s", err, events.First, why, g.toRestore(events))
}

// toRestore says which commands put a backup in the place of what is counted here.
func (g *Generation) toRestore(events jetlog.StreamState) string {
	return fmt.Sprintf("stop this node, move %s away, and run 'tidemark restore %s --data-dir %s'",
		g.Dir.Join(datadir.GenerationsDir), cmp.Or(events.Trimmed.Place, g.Config.Backup.To, "BACKUP"), g.Dir.Path)
}

// sequenceMax is the last window in DELTAS, if it is the stream that the
// stored states refer to; else 0. A new DELTAS does no harm: windows can be derived again.
func (g *Generation) sequenceMax() uint64 {
	now, known := g.state.Load().Deltas, g.store.Meta().Streams
	if known.Deltas.IsZero() { // restored
		return 0
	}
	if !known.Deltas.Equal(now.Created) {
		g.Log.Warn("stream DELTAS was recreated; its windows are derived again from EVENTS", "created", now.Created)
		return 0
	}
	return now.Last
}

// joinTries bounds how often one join begins again because DELTAS was recreated.
const joinTries = 5

// join brings the shards to where DELTAS can take over, and records the streams that they
// come from. It begins again if DELTAS was recreated: what it knows of one DELTAS does not
// hold for the next one.
func (g *Generation) join() error {
	for range joinTries {
		if err := g.streams.Restore(g.ctx); err != nil {
			return err
		}
		before, err := g.streams.State(g.ctx, g.Slot.Deltas())
		if err != nil {
			return err
		}
		if err := g.follower.Join(g.ctx); err != nil {
			return g.beyond(err)
		}
		if err := g.observeStreams(g.ctx); err != nil {
			return err
		}
		if g.state.Load().Deltas.Created.Equal(before.Created) {
			return g.recordStreams()
		}
	}
	return fmt.Errorf("stream DELTAS was recreated %d times while its beginning was looked for", joinTries)
}

func (g *Generation) recordStreams() error {
	now := g.state.Load()
	want := cold.Streams{Events: now.Events.Created, Deltas: now.Deltas.Created}
	if g.store.Meta().Streams == want {
		return nil
	}
	return g.store.SetStreams(want)
}
