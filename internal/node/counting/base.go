package counting

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks/backup"
	"github.com/tidemark-io/tidemark/sinks/check"
)

// bases are the backups that stand for the beginning that EVENTS and its archive lack,
// for an audit that derives ids again. They are those that the events go on from, the
// oldest first: what came after it is compared. There are none where nothing is lacking.
// Where one is needed and there is none, an error wraps check.ErrBeginning and says why.
func (g *Generation) bases(ctx context.Context) ([]*backup.Base, error) {
	state, err := g.streams.State(ctx, jetlog.EventsStream)
	if err != nil {
		return nil, err
	}
	first, archived := g.history.FirstOf(state)
	if archived != nil {
		first = state.First
	}
	if first <= 1 {
		return nil, nil
	}
	from := cmp.Or(g.Config.Backup.To, state.Trimmed.Place)
	usable, err := g.basesIn(ctx, from, state, first)
	// What was restored has its base where it was restored from, until there is a newer
	// one.
	if restored := state.Continues.Place; err != nil && restored != "" && restored != from {
		var other error
		if usable, other = g.basesIn(ctx, restored, state, first); other == nil {
			return usable, nil
		}
		if from == "" {
			err = other
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: EVENTS begins with message %d, and %w", check.ErrBeginning, first, err), archived)
	}
	return usable, nil
}

// basesIn are those in a place; an error goes on after "EVENTS begins with …, and".
func (g *Generation) basesIn(ctx context.Context, from string, state jetlog.StreamState, first uint64) ([]*backup.Base, error) {
	if from == "" {
		return nil, errors.New("no backup is known that has what came before: make one with 'tidemark backup PLACE', and set backup.to to that place on every node")
	}
	place, err := backup.OpenPlace(ctx, from, g.NC, false)
	if err != nil {
		return nil, fmt.Errorf("the backups that could stand for what came before cannot be read: %w", err)
	}
	all, damaged := backup.List(ctx, place) // the newest first
	var usable []*backup.Base
	var unfit error // why the newest is not
	for i, m := range all {
		err := g.unfit(m, state, first)
		if i == 0 {
			unfit = err
		}
		if err == nil {
			usable = append(usable, backup.NewBase(place, m, g.store.Schema(), g.Dir.Path, g.roomToCopy))
		}
	}
	if slices.Reverse(usable); len(usable) > 0 {
		return usable, nil
	}
	err = fmt.Errorf("no backup in %s can stand for what came before", place)
	if unfit != nil {
		err = fmt.Errorf("%w: %w", err, unfit)
	}
	return nil, errors.Join(err, damaged)
}

// roomToCopy says why there is no room in the data directory for a copy of what a
// backup has of a shard, which is gone when it was read.
func (g *Generation) roomToCopy(bytes int64) error {
	free, known := kit.DiskFree(g.Dir.Path)
	return noRoomToCopy(g.Dir.Path, uint64(bytes), free, known)
}

func noRoomToCopy(dir string, bytes, free uint64, known bool) error {
	if !datadir.LacksRoom(bytes, free, known) {
		return nil
	}
	return fmt.Errorf("it takes %d MiB in data_dir %s while it is read, where %d MiB must stay free, and the disk has %d MiB free", bytes>>20, dir, datadir.FreeMin>>20, free>>20)
}

// unfit says why a backup is no base of what is counted here; first is the first
// message that can be read.
func (g *Generation) unfit(m *backup.Manifest, state jetlog.StreamState, first uint64) error {
	goesOn := m.Events.Equal(state.Continues.Events) && m.Position.Sequence() <= state.Continues.After
	why := ""
	switch by, _ := g.counted(); {
	case !m.Events.Equal(state.Created) && !goesOn:
		why = fmt.Sprintf("is of the EVENTS created at %v, and this one was created at %v", m.Events, state.Created)
	case m.Generation() != g.Number:
		why = fmt.Sprintf("is of generation %d, and this is generation %d", m.Generation(), g.Number)
	case m.Shards != g.Config.Shards:
		why = fmt.Sprintf("has %d shards, and here are %d", m.Shards, g.Config.Shards)
	case m.Mixed:
		why = "was not all counted by one set of rules and limits"
	case m.CountedBy == "":
		why = "does not say by which rules and limits it was counted"
	case m.CountedBy != by:
		why = "was counted by other rules or limits"
	case m.Position.Next() < first:
		why = fmt.Sprintf("ends with message %d, so that messages %d to %d are missing", m.Position.Sequence(), m.Position.Next(), first-1)
	default:
		return nil
	}
	return fmt.Errorf("the newest one, %s, %s", m.ID, why)
}
