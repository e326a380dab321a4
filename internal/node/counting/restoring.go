package counting

import (
	"context"
	"errors"

	"github.com/tidemark-io/tidemark/internal/node/led"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks/backup"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// Adopt keeps what is counted and has the events of EVENTS go on after it; the generation is
// not open. It returns the sequence of the last message that is counted.
func (g *Generation) Adopt() (counted uint64, err error) {
	for _, step := range []func() error{g.openStreams, g.openStore} {
		if err := step(); err != nil {
			return 0, err
		}
	}
	for s := range g.Config.Shards + 1 { // and the channels
		state, err := g.store.Stack(pipeline.Shard(s)).State()
		if err != nil {
			return 0, err
		}
		counted = max(counted, state.Applied.Sequence())
	}
	tail, _, err := g.deltas.Tail(g.ctx)
	if err != nil {
		return 0, err
	}
	counted = max(counted, tail.To.Sequence())
	now, known := g.state.Load(), g.store.Meta().Streams
	if known.Events.IsZero() || known.Events.Equal(now.Events.Created) {
		return 0, errors.New("repair: there is nothing to adopt: EVENTS is the one that is counted here")
	}
	is := g.Dir.Counted(g.Number)
	is.Mixed = true
	if err := g.Dir.Note(g.Number, is); err != nil { // EVENTS no longer has what was counted
		return 0, err
	}
	if err := g.streams.MoveOn(g.ctx, jetlog.Continues{After: counted, Events: known.Events}); err != nil {
		return 0, err
	}
	return counted, g.store.SetStreams(cold.Streams{Events: now.Events.Created, Deltas: known.Deltas})
}

// DropLetters deletes the dead letters of all: they come again with the events that they
// were. The generation is not open. messages is how many EVENTS has.
func (g *Generation) DropLetters() (messages uint64, err error) {
	if err := g.openStreams(); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(g.ctx, led.StartWithin)
	defer cancel()
	return g.SeenEvents().Messages, g.streams.Delete(ctx, jetlog.DeadLetterStream)
}

// Restore fills the store of a backup and brings all shards forward to one position:
// forward says to which, and by which events.
func (g *Generation) Restore(ctx context.Context, forward *backup.Restore, progress func(done, of int)) (at pipeline.Position, time int64, err error) {
	if err := g.openStore(); err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, g.store.Close()) }()
	if err := backup.Import(ctx, g.store, forward.Place, forward.Manifest, progress); err != nil {
		return 0, 0, err
	}
	if err := g.openSinks(nil, 0); err != nil {
		return 0, 0, err
	}
	forward.Shards, forward.Lane, forward.Logger = g.sinks, g.lane, g.Log
	at, time, err = forward.Forward(ctx)
	if err = errors.Join(err, g.sinks.Close()); err == nil {
		err = backup.Stands(g.store, forward.Manifest, at)
	}
	if err != nil {
		return 0, 0, err
	}
	return at, time, nil
}
