package node

import (
	"context"
	"errors"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks/backup"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// adopt keeps what is counted and has the events of EVENTS go on after it; the generation is
// not open. It returns the sequence of the last message that is counted.
func (g *generation) adopt() (counted uint64, err error) {
	for _, step := range []func() error{g.openStreams, g.openStore} {
		if err := step(); err != nil {
			return 0, err
		}
	}
	for s := range g.config.Shards + 1 { // and the channels
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
	if err := g.events.FastForward(g.ctx, counted); err != nil {
		return 0, err
	}
	now := g.state.Load()
	known := g.store.Meta().Streams
	is := g.dir.Counted(g.number)
	is.Mixed = true
	if err := g.dir.Note(g.number, is); err != nil { // EVENTS no longer has what was counted
		return 0, err
	}
	return counted, g.store.SetStreams(cold.Streams{Events: now.Events.Created, Deltas: known.Deltas})
}

// dropLetters deletes the dead letters of all: they come again with the events that they
// were.
func (g *generation) dropLetters(ctx context.Context) error {
	return g.streams.Delete(ctx, jetlog.DeadLetterStream)
}

// restoring says to where a backup is brought forward, and by which events.
type restoring struct {
	at       backup.Point
	events   func(ctx context.Context) (backup.Opener, uint64, error) // those after the backup, and the last sequence
	progress func(done, of int)
}

// restore fills the store and brings all shards to one position.
func (g *generation) restore(ctx context.Context, place backup.Place, m *backup.Manifest, o *restoring) (at pipeline.Position, time int64, err error) {
	if err := g.openStore(); err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, g.store.Close()) }()
	if err := backup.Import(ctx, g.store, place, m, o.progress); err != nil {
		return 0, 0, err
	}
	if err := g.openSinks(nil, 0); err != nil {
		return 0, 0, err
	}
	forward := &backup.Restore{
		Place: place, Manifest: m, At: o.at, Shards: g.sinks, Lane: g.lane, Logger: g.log,
		Events: o.events,
	}
	at, time, err = forward.Forward(ctx)
	if err = errors.Join(err, g.sinks.Close()); err == nil {
		err = backup.Stands(g.store, m, at)
	}
	if err != nil {
		return 0, 0, err
	}
	return at, time, nil
}
