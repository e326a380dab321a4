package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/archive"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks/backup"
)

// TrimOptions say what may go from the beginning of EVENTS.
type TrimOptions struct {
	Keep       time.Duration // events that are younger stay; at least jetlog.DuplicateWindow
	From       string        // where the newest backup is; "": as the last one was told
	Unarchived bool          // events go that were not archived, though others were
	Logger     *slog.Logger

	members *jetlog.Members // of this process; nil: they are listened to first
}

// Trimmed says what went.
type Trimmed struct {
	Messages uint64 `json:"messages"`
	Below    uint64 `json:"begins"` // EVENTS begins here now
	Backup   string `json:"backup"` // that has what they counted
	Bound    string `json:"bound"`  // what kept more from going
}

var errNoBackup = errors.New("no backup is known: run 'tidemark backup TO' first; events are trimmed only once a backup has what they counted")

// Trim takes from EVENTS what is old, as far as all of this allows: the newest
// backup has what it counted, no node that is there still has to read it, and it is
// archived, if anything ever was.
func Trim(ctx context.Context, nc *nats.Conn, o TrimOptions) (t Trimmed, err error) {
	if o.Keep < jetlog.DuplicateWindow {
		return t, fmt.Errorf("keep %v at least: a message published twice is known by the first one for so long", jetlog.DuplicateWindow)
	}
	set, streams, err := attachServing(ctx, nc, o.Logger)
	if err != nil {
		return t, err
	}
	if set.Building != 0 {
		return t, fmt.Errorf("generation %d is being built, which needs all of EVENTS: trim it when that serves, or after 'tidemark rebuild --abort'", set.Building)
	}
	m, place, err := newestBackup(ctx, nc, streams, o.From)
	if err != nil {
		return t, err
	}
	if m.Generation() != set.Serving {
		return t, fmt.Errorf("the newest backup, %s in %s, is of generation %d, and generation %d serves: run 'tidemark backup %s' first", m.ID, place, m.Generation(), set.Serving, place)
	}
	state, err := streams.State(ctx, jetlog.EventsStream)
	if err != nil {
		return t, err
	}
	if !m.Events.Equal(state.Created) {
		return t, fmt.Errorf("%w: backup %s in %s is of the EVENTS created at %v, and this one was created at %v", backup.ErrForeign, m.ID, place, m.Events, state.Created)
	}
	t.Backup = m.ID
	if t.Below, err = streams.OlderThan(ctx, o.Keep); err != nil {
		return t, err
	}
	t.Bound = fmt.Sprintf("the rest is not older than %v", o.Keep)
	bound := func(next uint64, why string) {
		if next < t.Below {
			t.Below, t.Bound = next, why
		}
	}
	bound(m.From.Next(), "the rest came after backup "+m.ID)
	members, done, err := watchedOr(ctx, o.members, streams, o.Logger)
	if err != nil {
		return t, err
	}
	defer done()
	boundByNodes(members.View(), bound)
	if err := boundByKept(ctx, nc, set, o.Logger, bound); err != nil {
		return t, err
	}
	var archived archiveNote
	if found, err := streams.Note(ctx, jetlog.NoteArchive, &archived); err != nil {
		return t, err
	} else if found && !o.Unarchived && archived.Events.Equal(state.Created) {
		bound(archived.Last+1, "the rest is not archived in "+archived.Directory)
	}
	t.Below = max(t.Below, state.First)
	t.Messages, err = streams.Trim(ctx, t.Below, place)
	return t, err
}

// newestBackup finds the newest backup; every one that has a manifest was read back.
func newestBackup(ctx context.Context, nc *nats.Conn, streams *jetlog.Streams, from string) (*backup.Manifest, string, error) {
	if from == "" {
		var note backupNote
		found, err := streams.Note(ctx, jetlog.NoteBackup, &note)
		if err != nil {
			return nil, "", err
		}
		if !found {
			return nil, "", errNoBackup
		}
		from = note.Place
	}
	place, err := backup.OpenPlace(ctx, from, nc, false)
	if err != nil {
		return nil, "", fmt.Errorf("the newest backup must be there to be looked at: %w", err)
	}
	m, err := backup.Choose(ctx, place, backup.Point{})
	return m, place.String(), err
}

// boundByNodes keeps what a node that is there has not applied yet, and
// everything while a shard may be derived from the beginning: a node does not
// say how far it is with that.
func boundByNodes(v *cluster.View, bound func(next uint64, why string)) {
	for _, m := range v.Members {
		if m.Status != cluster.Away && m.Roles.Has(cluster.Hold) {
			bound(m.Applied.Next(), "node "+m.Node+" has not applied the rest")
		}
	}
	if v.Assignment.Shards() == 0 {
		bound(1, "no shard is assigned to a node, and all may be derived")
	}
	for s := range pipeline.Shard(v.Assignment.Shards()) {
		if len(v.Answering(s)) == 0 {
			bound(1, fmt.Sprintf("shard %d is answered by nobody and may be derived", s))
			return
		}
	}
}

// boundByKept keeps what nodes have not applied yet of the generation to go back to: the
// backup is not of that one.
func boundByKept(ctx context.Context, nc *nats.Conn, set generations.Set, log *slog.Logger, bound func(next uint64, why string)) error {
	if set.Kept == 0 {
		return nil
	}
	of := fmt.Sprintf("generation %d, which is kept: ", set.Kept)
	streams, err := jetlog.AttachEvents(ctx, nc, jetlog.Slot(set.All[set.Kept].Slot), log)
	if err != nil {
		return err
	}
	members, done, err := watchedOr(ctx, nil, streams, log)
	if errors.Is(err, errNobody) {
		bound(1, of+"no node has it open")
		return nil
	}
	if err != nil {
		return err
	}
	defer done()
	boundByNodes(members.View(), func(next uint64, why string) { bound(next, of+why) })
	return nil
}

// ArchiveOptions say where to.
type ArchiveOptions struct {
	Directory string // absolute
	Progress  func(s *archive.Segment)
	Logger    *slog.Logger
}

// archiveNote is how far EVENTS is archived.
type archiveNote struct {
	Directory string    `json:"directory"`
	Events    time.Time `json:"events"`
	Last      uint64    `json:"last"`
}

// Archive appends to a directory what EVENTS holds of before the newest backup and
// the directory does not have.
func Archive(ctx context.Context, nc *nats.Conn, o ArchiveOptions) (*archive.Directory, error) {
	_, streams, err := attachServing(ctx, nc, o.Logger)
	if err != nil {
		return nil, err
	}
	m, place, err := newestBackup(ctx, nc, streams, "")
	if err != nil {
		return nil, err
	}
	state, err := streams.State(ctx, jetlog.EventsStream)
	if err != nil {
		return nil, err
	}
	if !m.Events.Equal(state.Created) {
		return nil, fmt.Errorf("%w: backup %s in %s is of the EVENTS created at %v, and this one was created at %v", backup.ErrForeign, m.ID, place, m.Events, state.Created)
	}
	d, err := archive.OpenDirectory(o.Directory)
	if err != nil {
		return nil, err
	}
	events := jetlog.NewEvents(streams, jetlog.RunOptions{Logger: o.Logger})
	err = d.Add(ctx, state.Created, state.First, min(m.Position.Sequence(), state.Last), func(from pipeline.Position) (pipeline.Source, error) {
		return events.Open(ctx, from)
	}, o.Progress)
	if err != nil {
		return nil, err
	}
	if _, last, of := d.Extent(); last > 0 {
		err = streams.SetNote(ctx, jetlog.NoteArchive, archiveNote{o.Directory, of, last})
	}
	return d, err
}
