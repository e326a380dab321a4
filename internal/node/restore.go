package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/internal/node/counting"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/node/history"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/archive"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks/backup"
)

// RestoreOptions say what to restore.
type RestoreOptions struct {
	From     string
	At       backup.Point // zero: the newest backup as it is
	NATS     *nats.Conn   // for a place or events that are there; nil: none
	Archive  string       // a directory of archived events; "": none
	Progress func(done, of int)
	Logger   *slog.Logger
}

// Restored says what came of it.
type Restored struct {
	Backup   string // "": none is at or below the point, and all events up to it were counted
	Position pipeline.Position
	Time     int64 // log time there, Unix milliseconds
	Bytes    int64 // of the backup
}

// Restore makes what is counted in a data directory, c.DataDir, of a backup: as of
// the backup, or of a later point, up to which it counts the events after the
// backup. Where all backups are of later points it counts all events up to the
// point. The next start goes on from there. A directory that has counts is
// refused; what else a node has in it stays. A process that is killed leaves a
// directory that Restore takes again, and nothing else does.
func Restore(ctx context.Context, c *config.Config, o RestoreOptions) (r Restored, err error) {
	if c.Thin() {
		return r, errors.New("restore: roles are [answer] alone: such a process has no data directory")
	}
	if err := roomToRestore(c.DataDir); err != nil { // first: no other configuration helps then
		return r, err
	}
	place, err := backup.OpenPlace(ctx, o.From, o.NATS, false)
	if err != nil {
		return r, err
	}
	m, err := backup.Choose(ctx, place, o.At)
	if err != nil {
		return r, err
	}
	of := m.Generation()
	c, err = c.CountingBy(m.Generations.All[of].Counting) // whatever today's file says
	if err != nil {
		return r, fmt.Errorf("restore: what backup %s counts by does not fit the configuration: %w", m.ID, err)
	}
	p := newNode(c, Options{Logger: o.Logger})
	defer p.cancel()
	g, err := p.newGenerationOf(p.ctx, m.Generations, of)
	if err != nil {
		return r, err
	}
	p.serving.Store(g)
	finish, err := p.openRestoring(g, m)
	if err != nil {
		return r, err
	}
	defer p.dir.Close()
	r = Restored{Backup: m.ID, Bytes: m.Bytes}
	r.Position, r.Time, err = g.Restore(ctx, &backup.Restore{
		Place: place, Manifest: m, At: o.At,
		Events: func(ctx context.Context) (backup.Opener, uint64, error) { return openLog(ctx, m, &o) },
	}, o.Progress)
	if err != nil {
		if !m.Nothing() {
			err = fmt.Errorf("backup %s: %w", m.ID, err)
		}
		return r, fmt.Errorf("restore: %w", err)
	}
	return r, finish(datadir.Restored{Events: m.Events, Position: r.Position, Place: place.String()})
}

// roomToRestore says why a directory cannot take what is restored; nil when it can, or
// is not there yet.
func roomToRestore(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("restore: %w", err)
	}
	has := func(name string) bool {
		return slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == name })
	}
	if has(datadir.RestoringFile) {
		return nil
	}
	if has(datadir.GenerationsDir) {
		return fmt.Errorf("restore: data_dir %s has counts: choose another directory, or move %s away", path, filepath.Join(path, datadir.GenerationsDir))
	}
	if datadir.Foreign(entries) {
		return fmt.Errorf("restore: data_dir %s is not empty, and not tidemark's: choose another directory", path)
	}
	return nil
}

// openRestoring takes the data directory for the restore of a backup into a generation;
// finish says that it is whole.
func (n *Node) openRestoring(g *counting.Generation, m *backup.Manifest) (finish func(datadir.Restored) error, err error) {
	path := g.Config.DataDir
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	if err := roomToRestore(path); err != nil { // again: to look at the backup may have taken long
		return nil, err
	}
	d := &datadir.Dir{Path: path}
	if err := d.Acquire(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	c := g.Config
	d.Marker = datadir.Marker{Format: datadir.Format, Node: cmp.Or(c.Node, nuid.Next()), Generations: &m.Generations}
	counts := datadir.Noted{Counting: g.CountsBy, Mixed: m.Mixed}
	d.Marker.Counts = map[generations.Number]datadir.Noted{g.Number: counts}
	if raw, err := os.ReadFile(d.Join(datadir.MarkerFile)); err == nil { // its streams, perhaps, are under this name
		var was datadir.Marker
		if err := json.Unmarshal(raw, &was); err != nil {
			return nil, fmt.Errorf("restore: data_dir %s: %s is damaged: %w", path, datadir.MarkerFile, err)
		}
		if was.Format != datadir.Format || was.Demo || c.Node != "" && was.Node != c.Node {
			return nil, fmt.Errorf("restore: data_dir %s is another's (format %d, node %s, demo %v): choose another directory", path, was.Format, was.Node, was.Demo)
		}
		d.Marker.Node = was.Node
	}
	n.takeDir(d)
	if err := os.WriteFile(d.Join(datadir.RestoringFile), nil, 0o666); err != nil { // that it is there says all
		return nil, fmt.Errorf("restore: %w", err)
	}
	if err := errors.Join(kit.SyncDir(path), os.RemoveAll(d.Join(datadir.GenerationsDir))); err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	return func(to datadir.Restored) error {
		d.Marker.Restored = &to
		err := d.WriteMarker()
		if err == nil {
			err = os.Remove(d.Join(datadir.RestoringFile))
		}
		if err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		return kit.SyncDir(path)
	}, nil
}

// openLog opens what there is of the events after a backup, and returns the last
// sequence.
func openLog(ctx context.Context, m *backup.Manifest, o *RestoreOptions) (backup.Opener, uint64, error) {
	var archived *archive.Directory
	if o.Archive != "" {
		var err error
		if archived, err = archive.OpenDirectory(o.Archive); err != nil {
			return nil, 0, err
		}
	}
	if o.NATS == nil {
		return backup.Behind(m, archived, nil, archive.Stream{}, 0)
	}
	streams, err := jetlog.AttachEvents(ctx, o.NATS, 0, o.Logger) // EVENTS alone
	if err != nil {
		return nil, 0, err
	}
	state, err := streams.State(ctx, jetlog.EventsStream)
	if err != nil {
		return nil, 0, err
	}
	return backup.Behind(m, archived, jetlog.NewEvents(streams, jetlog.RunOptions{Logger: o.Logger}), history.StreamOf(state), state.Last)
}

// Backups lists the backups of a place; see backup.List.
func Backups(ctx context.Context, from string, nc *nats.Conn) ([]*backup.Manifest, error) {
	if !backup.IsBucket(from) {
		from = filepath.Clean(from)
	}
	place, err := backup.OpenPlace(ctx, from, nc, false)
	if err != nil {
		return nil, err
	}
	return backup.List(ctx, place)
}
