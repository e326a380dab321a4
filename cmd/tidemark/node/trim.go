package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/archive"
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
	if err := backup.Trimmable(set); err != nil {
		return t, err
	}
	m, place, err := newestBackup(ctx, nc, streams, o.From)
	if err != nil {
		return t, err
	}
	state, err := streams.State(ctx, jetlog.EventsStream)
	if err != nil {
		return t, err
	}
	old, err := streams.OlderThan(ctx, o.Keep)
	if err != nil {
		return t, err
	}
	trim := backup.Trim{Below: old, Why: "the rest is not older than " + ageText(o.Keep)}
	if err := trim.To(m, place, set, state.Created); err != nil {
		return t, err
	}
	members, done, err := watchedOr(ctx, o.members, streams, o.Logger)
	if err != nil {
		return t, err
	}
	defer done()
	trim.Nodes(members.View(), "")
	if err := boundByKept(ctx, nc, set, o.Logger, &trim); err != nil {
		return t, err
	}
	var archived archiveNote
	if found, err := streams.Note(ctx, jetlog.NoteArchive, &archived); err != nil {
		return t, err
	} else if found && !o.Unarchived && archived.Events.Equal(state.Created) {
		trim.Bound(archived.Last+1, "the rest is not archived in "+archived.Directory)
	}
	// A rebuild may have begun while members were listened to.
	if set, err = jetlog.LoadGenerations(ctx, nc); err == nil {
		err = trim.To(m, place, set, state.Created)
	}
	if err != nil {
		return t, err
	}
	t.Backup, t.Bound = m.ID, trim.Why
	t.Below = max(trim.Below, state.First)
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

// boundByKept keeps what nodes have not applied yet of the generation to go back to: the
// backup is not of that one.
func boundByKept(ctx context.Context, nc *nats.Conn, set generations.Set, log *slog.Logger, trim *backup.Trim) error {
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
		trim.Bound(1, of+"no node has it open")
		return nil
	}
	if err != nil {
		return err
	}
	defer done()
	trim.Nodes(members.View(), of)
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

// ageText is an age as people write it: in days, where it is some.
func ageText(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= day && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	return d.String()
}
