package upkeep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node/history"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/archive"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/letters"
	"github.com/tidemark-io/tidemark/sinks/backup"
)

// TrimOptions say what may go from the beginning of EVENTS.
type TrimOptions struct {
	Keep       time.Duration // events that are younger stay; TrimKeeps bounds it
	From       string        // where the newest backup is; "": in backup.to, or where the last one was made
	Archive    string        // where EVENTS is archived; "": as it says itself
	Unarchived bool          // events go that were not archived, though others were
	Finish     bool          // a trim that was killed before it purged is finished, whatever Keep says
	Logger     *slog.Logger

	Members *bucket.Members // of this process; nil: they are listened to first
}

// Trimmed says what went.
type Trimmed struct {
	Messages uint64 `json:"messages"`
	Below    uint64 `json:"begins"` // EVENTS begins here now
	Backup   string `json:"backup"` // that has what they counted
	Place    string `json:"place"`  // where that is
	Bound    string `json:"bound"`  // what kept more from going
}

// ErrNoBackup is what Trim and Archive return before there is a backup.
var ErrNoBackup = errors.New("no backup is known: run 'tidemark backup TO' first; events are trimmed only once a backup has what they counted")

// TrimKeeps says why a trim may not keep so little; nil: it may.
func TrimKeeps(keep time.Duration) error {
	if keep < jetlog.DuplicateWindow {
		return fmt.Errorf("%s is less than %s: a message published twice is known by the first one for so long", config.FormatDuration(keep), config.FormatDuration(jetlog.DuplicateWindow))
	}
	return nil
}

// Trim takes from EVENTS what is old, as far as all of this allows: the newest
// backup has what it counted, no node that is there still has to read it, and it is
// archived, if anything ever was.
func Trim(ctx context.Context, nc *nats.Conn, o TrimOptions) (t Trimmed, err error) {
	if err := TrimKeeps(o.Keep); err != nil {
		return t, err
	}
	set, streams, err := attachServing(ctx, nc, o.Logger)
	if err != nil {
		return t, err
	}
	if err := backup.Trimmable(set); err != nil {
		return t, err
	}
	state, err := streams.MarkedEvents(ctx)
	if err != nil {
		return t, err
	}
	m, place, err := newestBackup(ctx, nc, streams, cmp.Or(o.From, state.Backups))
	if err != nil {
		return t, err
	}
	old, err := streams.OlderThan(ctx, o.Keep)
	if err != nil {
		return t, err
	}
	trim := backup.Trim{Below: old, Why: "the rest is not older than " + config.FormatDuration(o.Keep)}
	// What is marked counts as gone for a rebuild, until it goes. That it may is bounded as
	// ever.
	if marked := state.Trimmed.Below; o.Finish && marked > max(old, state.First) {
		trim = backup.Trim{Below: marked, Why: "it was marked up to there by an earlier trim, which was interrupted"}
	}
	if err := trim.To(m, place, set, state.Created); err != nil {
		return t, err
	}
	members, done, err := Listening(ctx, o.Members, streams, o.Logger)
	if err != nil {
		return t, err
	}
	defer done()
	members.View().Needed("", trim.Bound)
	if err := BoundByKept(ctx, nc, set, o.Logger, &trim); err != nil {
		return t, err
	}
	if !o.Unarchived {
		if err := BoundByArchive(&trim, state, o.Archive); err != nil {
			return t, err
		}
	}
	t.Backup, t.Place, t.Bound = m.ID, place, trim.Why
	t.Below = max(trim.Below, state.First)
	t.Messages, err = streams.Trim(ctx, t.Below, place, func(ctx context.Context) error {
		if err := StillTrimmable(ctx, nc, m, place, state.Created); err != nil {
			return err
		}
		return letters.SettleBelow(ctx, streams, t.Below)
	})
	return t, err
}

// BoundByArchive keeps what is not archived, of an EVENTS of which something ever was. What
// is archived is read from the archive itself, which must be there: in a directory, or
// where EVENTS says that it is.
func BoundByArchive(trim *backup.Trim, state jetlog.StreamState, directory string) error {
	if directory == "" {
		directory = state.Archive
	}
	if directory == "" {
		return nil
	}
	d, err := archive.OpenDirectory(directory)
	if err != nil {
		return fmt.Errorf("what is archived of EVENTS must be there to be looked at: %w", err)
	}
	_, last, of := d.Extent()
	if of.Equal(state.Created) {
		trim.Archived(&backup.Archived{Directory: directory, Events: of, Last: last}, state.Created)
		return nil
	}
	if goesOn := state.Continues; !of.IsZero() && of.Equal(goesOn.Events) { // restored, and nothing of it is archived yet
		trim.Archived(&backup.Archived{Directory: directory, Events: state.Created, Last: min(last, goesOn.After)}, state.Created)
		return nil
	}
	if state.Archive == "" {
		return nil // of an EVENTS that is gone, or empty
	}
	return fmt.Errorf("EVENTS is archived in %s, and %s has no archive of it: trim where that directory is, give it with --archive (nats.streams.events.archive), or trim what is not archived with --unarchived", state.Archive, directory)
}

// StillTrimmable returns an error if a rebuild has begun since, or another generation serves
// than the one that is backed up. EVENTS is marked by then: a rebuild that begins after
// this sees that (Node.lacksOf).
func StillTrimmable(ctx context.Context, nc *nats.Conn, m *backup.Manifest, place string, events time.Time) error {
	set, err := bucket.LoadGenerations(ctx, nc)
	if err != nil {
		return err
	}
	return new(backup.Trim).To(m, place, set, events)
}

// newestBackup finds the newest backup; every one that has a manifest was read back.
func newestBackup(ctx context.Context, nc *nats.Conn, streams *jetlog.Streams, from string) (*backup.Manifest, string, error) {
	if from == "" {
		var note backupNote
		found, err := bucket.Note(ctx, streams, bucket.NoteBackup, &note)
		if err != nil {
			return nil, "", err
		}
		if !found {
			return nil, "", ErrNoBackup
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

// BoundByKept keeps what nodes have not applied yet of the generation to go back to: the
// backup is not of that one.
func BoundByKept(ctx context.Context, nc *nats.Conn, set generations.Set, log *slog.Logger, trim *backup.Trim) error {
	if set.Kept == 0 {
		return nil
	}
	of := fmt.Sprintf("generation %d, which is kept: ", set.Kept)
	streams, err := jetlog.AttachEvents(ctx, nc, jetlog.Slot(set.All[set.Kept].Slot), log)
	if err != nil {
		return err
	}
	members, done, err := Listening(ctx, nil, streams, log)
	if errors.Is(err, cluster.ErrNobody) {
		trim.Bound(1, of+"no node has it open")
		return nil
	}
	if err != nil {
		return err
	}
	defer done()
	members.View().Needed(of, trim.Bound)
	return nil
}

// ArchiveOptions say where to.
type ArchiveOptions struct {
	Directory string // absolute
	Progress  func(s *archive.Segment)
	Logger    *slog.Logger
}

// Archive appends to a directory what EVENTS holds of before the newest backup and
// the directory does not have.
func Archive(ctx context.Context, nc *nats.Conn, o ArchiveOptions) (*archive.Directory, error) {
	_, streams, err := attachServing(ctx, nc, o.Logger)
	if err != nil {
		return nil, err
	}
	state, err := streams.State(ctx, jetlog.EventsStream)
	if err != nil {
		return nil, err
	}
	m, place, err := newestBackup(ctx, nc, streams, state.Backups)
	if err != nil {
		return nil, err
	}
	d, err := archive.OpenDirectory(o.Directory)
	if err != nil {
		return nil, err
	}
	if d.Version, err = writtenFor(ctx, streams, pipeline.FormatBackups); err != nil {
		return nil, err
	}
	events := jetlog.NewEvents(streams, jetlog.RunOptions{Logger: o.Logger})
	marked := false // once there is a segment, whatever comes of the others
	err = backup.Archive(ctx, d, m, place, history.StreamOf(state), state.Last, func(from pipeline.Position) (pipeline.Source, error) {
		return events.Open(ctx, from)
	}, func(s *archive.Segment) {
		marked = marked || streams.SetArchive(ctx, o.Directory) == nil
		o.Progress(s)
	})
	if err != nil {
		return nil, err
	}
	if _, last, _ := d.Extent(); last > 0 {
		err = streams.SetArchive(ctx, o.Directory)
	}
	return d, err
}

// writtenFor is the version of a format that all members read, for a process that is no
// member.
func writtenFor(ctx context.Context, streams *jetlog.Streams, f pipeline.Format) (int, error) {
	members, err := bucket.OpenMembers(ctx, streams, bucket.MembersOptions{Beat: bucket.MemberBeat, Expiry: bucket.MemberExpiry})
	if err != nil {
		return 0, err
	}
	defer members.Close()
	return members.View().Writes(f), nil
}
