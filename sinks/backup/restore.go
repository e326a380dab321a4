package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/archive"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// Restore brings shards that were imported (Import) to one position: that of the
// backup, or a later one, by the events behind it.
type Restore struct {
	Place    Place
	Manifest *Manifest
	At       Point // the zero value: the backup as it is
	Shards   pipeline.Shards
	Lane     func() pipeline.Deriver
	// Events are asked for where a point behind the backup is wanted: EVENTS, or what
	// was archived of it, or both, and the last message of that.
	Events func(ctx context.Context) (log Opener, last uint64, err error)
	Logger *slog.Logger
}

// Opener reads EVENTS on after a position; see pipeline.Events.
type Opener interface {
	Open(ctx context.Context, from pipeline.Position) (pipeline.Source, error)
}

// Behind is the log behind a backup: what was archived, EVENTS, or one after the
// other, and the last message of it. archived nil: nothing is; events nil: it is not
// there. ErrForeign: one of them is of another EVENTS than the backup.
func Behind(m *Manifest, archived *archive.Directory, events pipeline.Events, state archive.Stream, newest uint64) (log Opener, last uint64, err error) {
	joined := &archive.Joined{Events: noEvents{}}
	var begins uint64
	if archived != nil {
		if first, end, of := archived.Extent(); end > 0 {
			if !of.Equal(m.Events) {
				return nil, 0, fmt.Errorf("%w: archive %s is of the EVENTS created at %v, and the backup of that of %v", ErrForeign, archived, of, m.Events)
			}
			joined.Archive, begins, last = archived, first, end
		}
	}
	if events != nil {
		if !state.Created.Equal(m.Events) {
			return nil, 0, fmt.Errorf("%w: EVENTS was created at %v, and the backup is of that of %v", ErrForeign, state.Created, m.Events)
		}
		if joined.Archive == nil || state.First <= 1 {
			begins = state.First
		}
		joined.Events, last = events, max(last, newest)
	}
	if err := reaches(m, joined.Archive, begins, last); err != nil {
		return nil, 0, err
	}
	return joined, last, nil
}

// reaches says why events from one message to another are not what comes after a backup:
// what stands for nothing needs all from the first one on.
func reaches(m *Manifest, archived *archive.Directory, begins, last uint64) error {
	switch {
	case last == 0 && m.Nothing():
		return errors.New("no events are there to count from the first one on: give --nats, a server that holds EVENTS, or --archive")
	case last == 0:
		return errors.New("it is to be later than the backup, and no events are there: give --nats, a server that holds EVENTS, or --archive")
	case m.Nothing() && begins > 1 && archived == nil:
		return fmt.Errorf("%w: EVENTS begins with message %d: give --archive, a directory that has what came before", pipeline.ErrGap, begins)
	case m.Nothing() && begins > 1:
		return fmt.Errorf("%w: archive %s begins with message %d", pipeline.ErrGap, archived, begins)
	}
	return nil
}

// noEvents is EVENTS where no server is.
type noEvents struct{ pipeline.Events }

func (noEvents) Open(_ context.Context, from pipeline.Position) (pipeline.Source, error) {
	return nil, fmt.Errorf("%w: message %d is in no archive, and no server is connected", pipeline.ErrGap, from.Next())
}

// Forward brings all shards to the point that is wanted, and says which that is, and
// log time there. A message counts whole: a position within one is that before it. Where the
// log has no message at the point it is the one before.
func (r *Restore) Forward(ctx context.Context) (at pipeline.Position, time int64, err error) {
	m := r.Manifest
	if p := r.At.Position; p != pipeline.EndOf(p.Sequence()) {
		r.At.Position = pipeline.EndOf(max(p.Sequence(), 1) - 1)
	}
	at = m.Position
	if len(m.Log) > 0 {
		source, err := Log(r.Place, m)
		if err != nil {
			return 0, 0, err
		}
		defer source.Close()
		if err := r.replay(ctx, source, at); err != nil {
			return 0, 0, fmt.Errorf("the events up to position %d: %w", at, err)
		}
	}
	time = m.Time
	if r.At.Time != 0 || r.At.Position > m.Position { // a backup may be of position 0
		at, time, err = r.beyond(ctx)
		if err != nil {
			return 0, 0, err
		}
	}
	if stands := r.Shards.Positions(); r.Shards.Err() != nil || len(stands) != 1 || stands[0] != at {
		return 0, 0, errors.Join(fmt.Errorf("shards stand at %v, and should at %d", stands, at), r.Shards.Err())
	}
	return at, time, nil
}

// Stands is an error unless all shards of a store are on disk as of a position.
func Stands(store *cold.Store, m *Manifest, at pipeline.Position) error {
	for s := range m.Parts {
		if state, err := store.Stack(pipeline.Shard(s)).State(); err != nil || state.Applied != at {
			return errors.Join(fmt.Errorf("shard %d is checkpointed at position %d, and should be at %d", s, state.Applied, at), err)
		}
	}
	return nil
}

// replay brings the shards to a position.
func (r *Restore) replay(ctx context.Context, source pipeline.Source, to pipeline.Position) error {
	return pipeline.Replay(ctx, r.Shards, source, r.Lane(), r.Shards.Positions(), to)
}

// beyond is further, and says why no backup does where events do not either.
func (r *Restore) beyond(ctx context.Context) (at pipeline.Position, time int64, err error) {
	at, time, err = r.further(ctx)
	switch none := r.Manifest.none; {
	case none == nil:
	case err != nil:
		err = fmt.Errorf("%w; and the events cannot be counted from the first one on: %w", none, err)
	case at == 0:
		err = fmt.Errorf("%w; and the first event is later as well", none)
	}
	return at, time, err
}

// further brings the shards from the backup to a later point.
func (r *Restore) further(ctx context.Context) (pipeline.Position, int64, error) {
	m := r.Manifest
	log, last, err := r.Events(ctx)
	if err != nil {
		return 0, 0, err
	}
	to := r.At.Position
	if r.At.Time == 0 && to > pipeline.EndOf(last) {
		return 0, 0, fmt.Errorf("position %d is past the end of the events, which is %d", to, pipeline.EndOf(last))
	}
	if m.Position.Next() > last {
		return m.Position, m.Time, nil // there is nothing more
	}
	source, err := log.Open(ctx, m.Position)
	if err != nil {
		return 0, 0, fmt.Errorf("the events behind the backup, from position %d on: %w", m.Position, err)
	}
	defer source.Close()
	if r.At.Time == 0 {
		last = min(last, to.Sequence())
	}
	until := &untilTime{Source: source, last: last, time: r.At.Time, end: m.Position, newest: m.Time}
	for r.At.Time != 0 || until.end < to {
		messages, err := until.Next(ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, 0, err
		}
		target := until.end
		if r.At.Time == 0 {
			target = min(target, to)
		}
		if err := r.replay(ctx, pipeline.Once(messages), target); err != nil {
			return 0, 0, fmt.Errorf("the events up to position %d: %w", target, err)
		}
	}
	if r.At.Time == 0 && until.end < to {
		r.Logger.Warn("restore: the events have no message there; it is as of the one before", "position", to, "restored", until.end)
	}
	if r.At.Time != 0 || until.end < to {
		to = until.end
	}
	return to, until.newest, nil
}

// untilTime is a source up to a log time, or a last message; then io.EOF.
type untilTime struct {
	pipeline.Source
	last   uint64
	time   int64             // Unix milliseconds; 0: any
	end    pipeline.Position // of what came so far
	newest int64             // timestamp of that
	over   bool
}

func (u *untilTime) Next(ctx context.Context) ([]pipeline.Message, error) {
	if u.over || u.end.Next() > u.last {
		return nil, io.EOF
	}
	messages, err := u.Source.Next(ctx)
	if err != nil {
		return nil, err
	}
	past := func(m pipeline.Message) bool { return m.Sequence > u.last || u.time != 0 && m.Time > u.time }
	if at := slices.IndexFunc(messages, past); at >= 0 {
		messages, u.over = messages[:at], true
	}
	if len(messages) == 0 {
		return nil, io.EOF
	}
	for _, m := range messages {
		u.newest = max(u.newest, m.Time)
	}
	u.end = pipeline.EndOf(messages[len(messages)-1].Sequence)
	return messages, nil
}
