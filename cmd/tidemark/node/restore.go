package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/tidemark-io/tidemark/cmd/tidemark/config"
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
	Backup   string            `json:"backup"`
	Position pipeline.Position `json:"position,string"`
	Time     int64             `json:"time"`  // log time there, Unix milliseconds
	Bytes    int64             `json:"bytes"` // of the backup
}

// Restore makes what is counted in a data directory, c.DataDir, of a backup: as of
// the backup, or of a later point, up to which it counts the events behind the
// backup. The next start goes on from there. A directory that has counts is
// refused; what else a node has in it stays. A process that is killed leaves a
// directory that Restore takes again, and nothing else does.
func Restore(ctx context.Context, c *config.Config, o RestoreOptions) (r Restored, err error) {
	if c.Thin() {
		return r, errors.New("restore: roles are [answer] alone: such a process has no data directory")
	}
	place, err := backup.OpenPlace(ctx, o.From, o.NATS, false)
	if err != nil {
		return r, err
	}
	m, err := backup.Choose(ctx, place, o.At)
	if err != nil {
		return r, err
	}
	rules, err := fingerprint(c)
	if err != nil {
		return r, err
	}
	of := m.Generation()
	switch rules = rules.Of(of); {
	case m.Shards != c.Shards:
		return r, fmt.Errorf("restore: backup %s has %d shards and the configuration says %d: set shards: %d", m.ID, m.Shards, c.Shards, m.Shards)
	case m.Rules != rules.String():
		return r, fmt.Errorf("restore: backup %s counts by other counters or rules (fingerprint %s, the configuration's is %v): give the configuration of then with --config", m.ID, m.Rules, rules)
	}
	p := newNode(c, Options{Logger: o.Logger})
	defer p.cancel()
	n := p.newGeneration(of, jetlog.SlotOfServing(m.Generations), c)
	p.serving.Store(n)
	finish, err := n.openRestoring(m)
	if err != nil {
		return r, err
	}
	defer n.dir.close()
	r = Restored{Backup: m.ID, Bytes: m.Bytes}
	if r.Position, r.Time, err = n.restore(ctx, place, m, &o); err != nil {
		return r, fmt.Errorf("restore backup %s: %w", m.ID, err)
	}
	return r, finish(restored{m.Events, r.Position})
}

// openRestoring takes the data directory for the restore of a backup; finish says
// that it is whole.
func (n *generation) openRestoring(m *backup.Manifest) (finish func(restored) error, err error) {
	path := n.config.DataDir
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	d := &dataDir{path: path}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	has := func(name string) bool {
		return slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == name })
	}
	switch {
	case has(restoringFile):
	case has(badgerDir):
		return nil, fmt.Errorf("restore: data_dir %s has counts: choose another directory, or move %s away", path, d.join(badgerDir))
	case has(generationsDir):
		return nil, fmt.Errorf("restore: data_dir %s has counts: choose another directory, or move %s away", path, d.join(generationsDir))
	case foreign(entries):
		return nil, fmt.Errorf("restore: data_dir %s is not empty, and not tidemark's: choose another directory", path)
	}
	if err := d.acquire(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	c := n.config
	d.marker = marker{Format: dataFormat, Node: cmp.Or(c.Node, nuid.Next())}
	// What comes behind the backup this configuration counts, now and after the start.
	by, err := derivation(c)
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	counts := noted{Shards: c.Shards, CountedBy: by, Mixed: m.Mixed || m.CountedBy != by}
	if m.Generations.Epoch == 0 {
		d.marker.noted = counts
	} else {
		d.marker.Format, d.marker.Generations = generationsFormat, &m.Generations
		if n.number == generations.First {
			d.marker.noted = counts
		} else {
			counts.Counting = m.Generations.All[n.number].CountsBy()
			d.marker.Later = map[generations.Number]noted{n.number: counts}
		}
	}
	if raw, err := os.ReadFile(d.join(markerFile)); err == nil { // its streams, perhaps, are under this name
		var was marker
		if err := json.Unmarshal(raw, &was); err != nil {
			return nil, fmt.Errorf("restore: data_dir %s: %s is damaged: %w", path, markerFile, err)
		}
		if was.Format != dataFormat && was.Format != generationsFormat || was.Demo || c.Node != "" && was.Node != c.Node {
			return nil, fmt.Errorf("restore: data_dir %s is another's (format %d, node %s, demo %v): choose another directory", path, was.Format, was.Node, was.Demo)
		}
		d.marker.Node = was.Node
	}
	n.Node.dir, n.Node.name = d, d.marker.Node
	if err := writeSynced(d.join(restoringFile), nil); err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	if err := errors.Join(archive.SyncDir(path), os.RemoveAll(d.join(badgerDir)), os.RemoveAll(d.join(generationsDir))); err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	return func(to restored) error {
		d.marker.Restored = &to
		err := d.writeMarker()
		if err == nil {
			err = archive.SyncDir(path)
		}
		if err == nil {
			err = os.Remove(d.join(restoringFile))
		}
		if err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		return archive.SyncDir(path)
	}, nil
}

// restore fills the store and brings all shards to one position.
func (n *generation) restore(ctx context.Context, place backup.Place, m *backup.Manifest, o *RestoreOptions) (at pipeline.Position, time int64, err error) {
	if err := n.openStore(); err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, n.store.Close()) }()
	if err := backup.Import(ctx, n.store, place, m, o.Progress); err != nil {
		return 0, 0, err
	}
	if err := n.openSinks(nil, 0); err != nil {
		return 0, 0, err
	}
	at, time, err = n.forward(ctx, place, m, o)
	if err = errors.Join(err, n.sinks.Close()); err != nil {
		return 0, 0, err
	}
	for s := range m.Parts { // what is on disk
		if state, err := n.store.Stack(pipeline.Shard(s)).State(); err != nil || state.Applied != at {
			return 0, 0, errors.Join(fmt.Errorf("shard %d is checkpointed at position %d, and should be at %d", s, state.Applied, at), err)
		}
	}
	return at, time, nil
}

// forward brings all shards to the point that is wanted.
func (n *generation) forward(ctx context.Context, place backup.Place, m *backup.Manifest, o *RestoreOptions) (at pipeline.Position, time int64, err error) {
	at = m.Position
	if len(m.Log) > 0 {
		source, err := backup.Log(place, m)
		if err != nil {
			return 0, 0, err
		}
		defer source.Close()
		if err := n.replayTo(ctx, source, at); err != nil {
			return 0, 0, fmt.Errorf("the events up to position %d: %w", at, err)
		}
	}
	time = m.Time
	if o.At.Set() && o.At.Position != m.Position {
		if at, time, err = n.replayFurther(ctx, m, o); err != nil {
			return 0, 0, err
		}
	}
	if stands := n.sinks.Positions(); n.sinks.Err() != nil || len(stands) != 1 || stands[0] != at {
		return 0, 0, errors.Join(fmt.Errorf("shards stand at %v, and should at %d", stands, at), n.sinks.Err())
	}
	return at, time, nil
}

// replayTo brings the shards to a position.
func (n *generation) replayTo(ctx context.Context, source pipeline.Source, to pipeline.Position) error {
	return pipeline.Replay(ctx, n.sinks, source, n.lane(), n.sinks.Positions(), to)
}

// replayFurther brings the shards from the backup to a later point, with events
// that were archived or are in EVENTS.
func (n *generation) replayFurther(ctx context.Context, m *backup.Manifest, o *RestoreOptions) (pipeline.Position, int64, error) {
	log, last, err := openLog(ctx, m.Events, o)
	if err != nil {
		return 0, 0, err
	}
	to := o.At.Position
	if o.At.Time == 0 && to > pipeline.EndOf(last) {
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
	if o.At.Time == 0 {
		last = min(last, to.Sequence())
	}
	until := &untilTime{Source: source, last: last, time: o.At.Time, end: m.Position, newest: m.Time}
	for o.At.Time != 0 || n.sinks.Positions()[0] < to {
		messages, err := until.Next(ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, 0, err
		}
		target := until.end
		if o.At.Time == 0 {
			target = min(target, to)
		}
		one := &onceSource{messages}
		if err := n.replayTo(ctx, one, target); err != nil {
			return 0, 0, fmt.Errorf("the events up to position %d: %w", target, err)
		}
	}
	if o.At.Time == 0 && until.end < to {
		o.Logger.Warn("restore: the events have no message there; it is as of the one before", "position", to, "restored", until.end)
	}
	if o.At.Time != 0 || until.end < to {
		to = until.end
	}
	return to, until.newest, nil
}

// openLog opens what there is of the events of an EVENTS, and tells its last
// sequence.
func openLog(ctx context.Context, created time.Time, o *RestoreOptions) (*archive.Joined, uint64, error) {
	log, last := &archive.Joined{Events: noEvents{}}, uint64(0)
	if o.Archive != "" {
		d, err := archive.OpenDirectory(o.Archive)
		if err != nil {
			return nil, 0, err
		}
		if _, end, of := d.Extent(); end > 0 {
			if !of.Equal(created) {
				return nil, 0, fmt.Errorf("%w: archive %s is of the EVENTS created at %v, and the backup of that of %v", backup.ErrForeign, o.Archive, of, created)
			}
			log.Archive, last = d, end
		}
	}
	if o.NATS != nil {
		streams, err := jetlog.AttachEvents(ctx, o.NATS, 0, o.Logger) // EVENTS alone
		if err != nil {
			return nil, 0, err
		}
		state, err := streams.State(ctx, jetlog.EventsStream)
		if err != nil {
			return nil, 0, err
		}
		if !state.Created.Equal(created) {
			return nil, 0, fmt.Errorf("%w: EVENTS was created at %v, and the backup is of that of %v", backup.ErrForeign, state.Created, created)
		}
		log.Events, last = jetlog.NewEvents(streams, jetlog.RunOptions{Logger: o.Logger}), max(last, state.Last)
	}
	if last == 0 {
		return nil, 0, errors.New("it is to be later than the backup, and no events are there: give --nats, a server that holds EVENTS, or --archive")
	}
	return log, last, nil
}

// noEvents is EVENTS where no server is.
type noEvents struct{ pipeline.Events }

func (noEvents) Open(_ context.Context, from pipeline.Position) (pipeline.Source, error) {
	return nil, fmt.Errorf("%w: message %d is in no archive, and no server is connected", pipeline.ErrGap, from.Next())
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

// onceSource is some messages.
type onceSource struct{ messages []pipeline.Message }

func (s *onceSource) Next(context.Context) ([]pipeline.Message, error) {
	if s.messages == nil {
		return nil, io.EOF
	}
	out := s.messages
	s.messages = nil
	return out, nil
}

func (s *onceSource) Close() error { return nil }

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
