package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/archive"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/backup"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// archived are worlds of backups in which what is trimmed is archived before.
func archived(s *setup) {
	backedUp(s)
	s.archives, s.backups, s.crashes, s.audits = 10, 10, 3, 1
}

// archivedSoon are such worlds in which nothing else happens.
func archivedSoon(s *setup) {
	archived(s)
	s.backups, s.archives, s.audits, s.crashes, s.steals, s.faults = 20, 20, 0, 0, 0, 0
}

// archiveFault is what is broken of archives, and of restores by them.
type archiveFault struct {
	files func(w *world, f archive.Files) archive.Files // what an archive is written to; may be nil
	early bool                                          // EVENTS is trimmed as if an archive that is being written were whole
	past  bool                                          // a position past the end is restored as the end
}

func (w *world) archiveFault() archiveFault {
	if w.fault == nil {
		return archiveFault{}
	}
	return w.fault.archives
}

// Archives that were written, messages that were read of them and EVENTS in the end,
// restores that were killed on their way, and points in time that were restored: in all
// worlds.
var shelvedAll, readBack, restoresKilled, points atomic.Uint64

// shelving is an archive that is being written.
type shelving struct {
	p    *process
	over chan error
}

// shelve has a process archive what EVENTS has of before the newest backup, as
// internal/node does.
func (w *world) shelve() error {
	p, v := w.processes[w.rand.IntN(len(w.processes))], &w.vault
	if !p.up() || v.shelving != nil {
		return nil
	}
	place, all, err := w.backups()
	if err != nil || len(all) == 0 {
		return err
	}
	v.n++
	ctx := Turn(p.ctx, p.lives<<32|1<<28|v.n)
	files := p.client.Shelf(ctx, &v.shelf)
	if broken := w.archiveFault().files; broken != nil {
		files = broken(w, files)
	}
	w.note("%d archives up to %d, %d", p.number, all[0].Position, v.n)
	going := &shelving{p, make(chan error, 1)}
	v.shelving = going
	if w.archiveFault().early {
		v.noted = &backup.Archived{Events: all[0].Events, Last: all[0].Position.Sequence()}
	}
	go func() {
		defer w.caught()
		d, err := archive.OpenOn(files)
		var state jetlog.StreamState
		if err == nil {
			err = p.client.look(ctx, jetlog.EventsStream, func(of *stream) error { state = of.state(); return nil })
		}
		if err == nil {
			events := p.client.Events(p.runs())
			err = backup.Archive(ctx, d, all[0], place.String(), streamOf(state), state.Last, func(from pipeline.Position) (pipeline.Source, error) {
				return events.Open(ctx, from)
			}, func(*archive.Segment) {})
		}
		if errors.Is(err, archive.ErrCorrupt) || errors.Is(err, pipeline.ErrGap) {
			w.broken(fmt.Errorf("process %d cannot archive: %w", p.number, err))
		}
		if err == nil { // the note comes last
			err = p.client.Work(ctx, 1)
		}
		if err != nil {
			w.heard(p, err)
		} else if _, last, of := d.Extent(); last > 0 {
			v.noted = &backup.Archived{Directory: "sim", Events: of, Last: last}
			shelvedAll.Add(1)
		}
		going.over <- err
	}()
	return nil
}

func streamOf(s jetlog.StreamState) archive.Stream {
	return archive.Stream{First: s.First, Created: s.Created}
}

// shelved takes in an archive that has come to an end.
func (w *world) shelved() {
	if w.vault.shelving == nil {
		return
	}
	select {
	case err := <-w.vault.shelving.over:
		w.note("the archive of %d is over: whole %v", w.vault.shelving.p.number, err == nil)
		w.vault.shelving = nil
	default:
	}
}

// archive is what is archived, as somebody finds it whom nothing holds up.
func (w *world) archive() (*archive.Directory, error) {
	return archive.OpenOn(w.server.NewClient(-1, nil).Shelf(context.Background(), &w.vault.shelf))
}

// begins is the first message that can be read, of the archive or of EVENTS.
func (w *world) begins() uint64 {
	state := w.server.State(jetlog.EventsStream)
	h := w.history(w.server.NewClient(-1, nil))
	if first, err := h.First(streamOf(state)); err == nil {
		return first
	}
	return state.First
}

// history is EVENTS with the archive in front, as a process reads it that lives as long
// as the client.
func (w *world) history(c *Client) *archive.History {
	h := &archive.History{State: func(ctx context.Context) (s archive.Stream, err error) {
		err = c.look(ctx, jetlog.EventsStream, func(of *stream) error { s = streamOf(of.state()); return nil })
		return s, err
	}}
	if w.archives > 0 {
		// Looks at files wait for nobody: those who read them do so in the sequel of a call.
		h.Archive = w.archive
	}
	return h
}

// wholeEvents is EVENTS with its history. It implements pipeline.Events, like that of
// internal/node.
type wholeEvents struct {
	Events
	history *archive.History
}

// Open implements pipeline.Events.
func (e wholeEvents) Open(ctx context.Context, from pipeline.Position) (pipeline.Source, error) {
	source, err := e.history.Open(ctx, from, e.Events.Open)
	if err != nil {
		return nil, err
	}
	if e.history.Archive == nil {
		return source, nil
	}
	return slowSource{source, e.Events.c}, nil
}

// slowSource lets others go first before each run: those of an archive pass no gate.
type slowSource struct {
	pipeline.Source
	c *Client
}

func (s slowSource) Next(ctx context.Context) ([]pipeline.Message, error) {
	if err := s.c.Work(ctx, 1<<50); err != nil {
		return nil, err
	}
	return s.Source.Next(ctx)
}

// whole is EVENTS with its history as a process reads it.
func (p *process) whole() wholeEvents { return wholeEvents{p.client.Events(p.runs()), p.history} }

// archivesAll reads the archive, and EVENTS behind it: together they are all that was
// ever stored, and counted again they come to what is counted.
func (w *world) archivesAll() error {
	if w.archives == 0 {
		return nil
	}
	d, err := w.archive()
	if err == nil && !w.forgotten() {
		err = d.Verify(context.Background(), func(*archive.Segment) {})
	}
	if err != nil {
		return fmt.Errorf("the archive: %w", err)
	}
	all, begins := w.stored(), w.begins()
	if _, last, _ := d.Extent(); begins > 1 && last > 0 && !w.forgotten() {
		return fmt.Errorf("EVENTS was whole when it was archived, and can be read from message %d only", begins)
	}
	if len(all) == 0 || begins > 1 {
		return nil
	}
	if err := w.readsAll(all); err != nil {
		return err
	}
	return w.countsAll(pipeline.EndOf(all[len(all)-1].Sequence))
}

// forgotten says that EVENTS was trimmed before anything was archived.
func (w *world) forgotten() bool {
	d, err := w.archive()
	if err != nil {
		return false
	}
	first, _, _ := d.Extent()
	return first > 1
}

// readsAll compares archive and EVENTS with what was stored.
func (w *world) readsAll(all []*Stored) error {
	c := w.server.NewClient(-1, nil)
	source, err := w.history(c).Open(context.Background(), 0, c.Events(jetlog.RunOptions{MessagesMax: runMax}).Open)
	if err != nil {
		return fmt.Errorf("archive and EVENTS: %w", err)
	}
	defer source.Close()
	for len(all) > 0 {
		messages, err := source.Next(context.Background())
		if err != nil {
			return fmt.Errorf("archive and EVENTS, where message %d comes next: %w", all[0].Sequence, err)
		}
		for _, m := range messages {
			if len(all) == 0 || m.Sequence != all[0].Sequence || m.Time != all[0].Time.UnixMilli() || m.Subject != all[0].Subject || !bytes.Equal(m.Data, all[0].Data) {
				return fmt.Errorf("archive and EVENTS have message %d, %q, where another one was stored", m.Sequence, m.Data)
			}
			all = all[1:]
			readBack.Add(1)
		}
	}
	return nil
}

// countsAll is a rebuild: all that the archive and EVENTS have is counted anew.
func (w *world) countsAll(end pipeline.Position) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), restoreWithin)
	defer cancel()
	p, err := w.aside(end)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	c := w.server.NewClient(-1, nil)
	source, err := w.history(c).Open(ctx, 0, c.Events(jetlog.RunOptions{MessagesMax: runMax}).Open)
	if err != nil {
		return err
	}
	defer source.Close()
	if err := pipeline.Replay(ctx, p.life.node, source, w.newLane(0), p.life.node.Positions(), end); err != nil {
		return fmt.Errorf("counted again from archive and EVENTS: %w", err)
	}
	if err := w.compare(p.process, end, true); err != nil {
		return fmt.Errorf("counted again from archive and EVENTS: %w", err)
	}
	return nil
}

// bystander is a node that nobody knows of, on a disk of its own.
type bystander struct {
	*process
	life
}

func (b bystander) close() error { return b.life.close() }

// aside makes one that holds all shards, and is to stand at a position.
func (w *world) aside(at pipeline.Position) (b bystander, err error) {
	b.process = w.restoredTo(at)
	schema, err := configuration().Schema()
	if err != nil {
		return b, err
	}
	if b.life.store, err = cold.OpenOn(w.server.NewClient(b.number, nil).Mount(context.Background(), &b.disk), schema, w.shards, "aside"); err != nil {
		return b, err
	}
	if b.life.node, err = sinks.NewNode(b.life.store, w.restoring()); err != nil {
		return b, errors.Join(err, b.close())
	}
	b.process.node = b.life.node
	return b, nil
}

// restoredTo is a process that is restored as of a position, to be compared.
func (w *world) restoredTo(at pipeline.Position) *process {
	p := &process{w: w, number: len(w.processes)}
	for shard := range w.shards + 1 {
		p.given = append(p.given, given{shard: shard})
		p.given[shard].from(at)
	}
	return p
}

// restoring are the options of a node that is being restored: all is checkpointed at
// once, at its end, so that what is on disk then follows from the seed.
func (w *world) restoring() sinks.Options {
	o := w.options()
	o.Owners, o.MemoryBytes, o.DirtyRowsMax, o.CheckpointEvery, o.CommitRows = 1, 0, math.MaxInt32, time.Hour, 0
	return o
}

// "Older events may be archived as files that a replay reads like the
// stream": whoever writes the archive and goes, whatever is trimmed meanwhile, archive
// and EVENTS are all that was ever stored, and counted again they come to what is
// counted. "`restore --at`": as of any point, by position or log time, what is restored
// is what the model says.
func TestArchives(t *testing.T) {
	before := []uint64{shelvedAll.Load(), readBack.Load(), restoresKilled.Load(), points.Load()}
	t.Cleanup(func() {
		t.Logf("%d archives written, %d messages read back, %d restores killed, %d points in time restored",
			shelvedAll.Load()-before[0], readBack.Load()-before[1], restoresKilled.Load()-before[2], points.Load()-before[3])
	})
	simulateSeeds(t, archiveSeedsMost, &fault{setup: archived})
}

// leaving writes each other segment nowhere, and says that it did.
type leaving struct {
	archive.Files
	number int
}

func (l leaving) Write(name string, data []byte) error {
	if l.number%2 == 0 {
		return nil
	}
	return l.Files.Write(name, data)
}
