package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/backup"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// backedUp are worlds of nodes in which backups are made, EVENTS is trimmed, and nodes
// lose all that they have. DELTAS waits for who is down: what it has is not in EVENTS
// any more.
func backedUp(s *setup) {
	nodes(s)
	s.backups, s.audits, s.publishes, s.presses, s.crashes = 6, 1, 2, false, 1
	s.faults, s.leaders = min(s.faults, 0.02), min(s.leaders, 1)
}

// backupFault is what is broken of backups.
type backupFault struct {
	baseless bool // EVENTS is trimmed whatever is backed up
	heedless bool // and while a generation is being built
	late     bool // a restore leaves out the first message after the shard that is lowest
}

func (w *world) backupFault() backupFault {
	if w.fault == nil {
		return backupFault{}
	}
	return w.fault.backups
}

// vault is what a world has of backups.
type vault struct {
	place    Place
	set      generation.Set   // the record
	trimmed  []*Stored        // what EVENTS held once
	going    *saving          // nil: none is being made
	shelf    Shelf            // the archive
	noted    *backup.Archived // how far EVENTS is archived, as trims read it; nil: nothing ever was
	shelving *shelving        // nil: nothing is being archived
	begun    time.Time        // the last one
	n        int
	ahead    pipeline.Position // the furthest that was restored
}

// saving is a backup that is being made.
type saving struct {
	p    *process
	over chan error
}

// Backups that were made, messages that were trimmed, and disks that were restored: in
// all worlds.
var saved, trimmed, restored atomic.Uint64

// stored are all messages that EVENTS holds, or held before it was trimmed.
func (w *world) stored() []*Stored {
	return slices.Concat(w.vault.trimmed, w.server.Held(jetlog.EventsStream))
}

// save has a process begin a backup of all nodes, as internal/node does: one at a
// time.
func (w *world) save() error {
	p, v := w.processes[w.rand.IntN(len(w.processes))], &w.vault
	if !p.up() || p.view == nil || v.going != nil || !time.Now().After(v.begun.Add(time.Millisecond)) {
		return nil
	}
	v.n++
	v.begun = time.Now()
	ctx, keep := Turn(p.ctx, p.lives<<32|1<<29|v.n), w.rand.IntN(3)
	o := backup.Options{Shards: w.shards, Rules: "as everybody", Generations: served(v.set), Keep: keep, Logger: slog.New(slog.DiscardHandler)}
	from := &origin{p, map[pipeline.Shard]int{}}
	w.note("%d makes backup %d, %d are kept", p.number, v.n, keep)
	going := &saving{p, make(chan error, 1)}
	v.going = going
	go func() {
		defer w.caught()
		_, err := backup.Make(ctx, p.client.Place(&v.place), from, o)
		if err != nil {
			w.heard(p, err)
		} else {
			saved.Add(1)
		}
		going.over <- err
	}()
	return nil
}

// firstRecord is that of a system that was never rebuilt.
var firstRecord, _ = generation.Start([]byte(`"now"`))

// served is the record with nothing but what serves, as backups have it.
func served(set generation.Set) generation.Set {
	only, err := set.Only()
	if err != nil {
		panic(err)
	}
	return only
}

// saved takes in a backup that has come to an end.
func (w *world) saved() {
	if w.vault.going == nil {
		return
	}
	select {
	case err := <-w.vault.going.over:
		w.note("the backup of %d is over: made %v", w.vault.going.p.number, err == nil)
		w.vault.going = nil
	default:
	}
}

// origin is the nodes that a process sees. It implements backup.Origin like that of
// internal/node.
type origin struct {
	p     *process
	asked map[pipeline.Shard]int
}

func (g *origin) Export(ctx context.Context, shard pipeline.Shard) (cold.Source, string, func(), error) {
	node, err := cluster.Holder(g.p.view, shard, g.asked[shard])
	if err != nil {
		return nil, "", nil, err
	}
	g.asked[shard]++
	r := &remote{p: g.p, of: g.p.w.processNamed(node), shard: shard}
	if err := r.open(ctx); err != nil {
		return nil, "", nil, err
	}
	return r, node, r.export.Close, nil
}

func (g *origin) Last(ctx context.Context) (uint64, error) {
	return g.p.client.Events(g.p.runs()).Last(ctx)
}

func (g *origin) Open(ctx context.Context, from pipeline.Position) (pipeline.Source, error) {
	return g.p.client.Events(g.p.runs()).Open(ctx, from)
}

// backups are those that there are, the newest first, and a place to read them from.
func (w *world) backups() (backup.Place, []*backup.Manifest, error) {
	place := w.server.NewClient(-1, nil).Place(&w.vault.place)
	all, err := backup.List(context.Background(), place)
	return place, all, err
}

// loseDisk has who is down lose all that it has.
func (w *world) loseDisk() error {
	for _, p := range w.processes {
		if !p.alive() && w.rand.IntN(2) == 0 {
			w.note("%d loses its disk", p.number)
			p.lose()
		}
	}
	return nil
}

// lose empties its disk: what it had is known to nobody.
func (p *process) lose() {
	p.disk = Disk{}
	p.wasHeld, p.kept, p.reported, p.deltas, p.lost = cluster.ShardSet{}, nil, 0, time.Time{}, true
	for i := range p.given {
		p.given[i].from(0)
	}
}

// revive fills the disk of who has lost all from the newest backup. Where there is
// none, it begins anew: then EVENTS is whole.
func (w *world) revive(p *process) error {
	p.lost = false
	place, all, err := w.backups()
	if err != nil {
		return err
	}
	whole := w.begins() <= 1
	if whole && (len(all) == 0 || w.rand.IntN(3) == 0) {
		return nil
	}
	if len(all) == 0 {
		return errors.New("EVENTS is trimmed, and there is no backup")
	}
	m := all[0]
	w.note("%d is restored as of %d, from %d", p.number, m.Position, m.From)
	done := false
	for !done && w.rand.IntN(2) == 0 {
		done = w.half(p, m)
	}
	if !done {
		life, _, err := w.restored(&p.disk, w.server.NewClient(p.number, nil), place, m, backup.Point{})
		if err := errors.Join(err, life.close()); err != nil {
			return fmt.Errorf("process %d: it cannot be restored from the newest backup: %w", p.number, err)
		}
	}
	for i := range p.given {
		p.given[i].from(m.Position)
	}
	if first := w.begins(); m.Position.Next() < first {
		return fmt.Errorf("process %d is restored as of %d, and EVENTS begins with %d: trimmed above its base", p.number, m.Position, first)
	}
	w.vault.ahead = max(w.vault.ahead, m.Position)
	restored.Add(1)
	return nil
}

// life is a node that was restored, and its store.
type life struct {
	node  *sinks.Node
	store *cold.Store
}

func (l life) close() (err error) {
	if l.node != nil {
		err = l.node.Close()
	}
	if l.store != nil {
		err = errors.Join(err, l.store.Close())
	}
	return err
}

// restoreWithin is how long a restore may take.
const restoreWithin = time.Minute

// restored is a restore as of a point: the shards of a backup, each brought to its
// position by the events that it has, and on by those behind it. What does it is the
// code of internal/node, but for the directory.
func (w *world) restored(d *Disk, c *Client, place backup.Place, m *backup.Manifest, at backup.Point) (l life, stands pipeline.Position, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), restoreWithin)
	defer cancel()
	return w.restoredBy(ctx, context.Background(), d, c, place, m, at)
}

// restoredBy is restored, by a process that has its disk until plugged ends.
func (w *world) restoredBy(ctx, plugged context.Context, d *Disk, c *Client, place backup.Place, m *backup.Manifest, at backup.Point) (l life, stands pipeline.Position, err error) {
	broken := w.backupFault()
	schema, err := configuration().Schema()
	if err != nil {
		return l, 0, err
	}
	if l.store, err = cold.OpenOn(c.Mount(plugged, d), schema, w.shards, strconv.Itoa(c.process)); err != nil {
		return l, 0, err
	}
	if err := backup.Import(ctx, l.store, place, m, nil); err != nil {
		return l, 0, err
	}
	if l.node, err = sinks.NewNode(l.store, w.restoring()); err != nil {
		return l, 0, err
	}
	lane := func() pipeline.Deriver { return w.newLane(0) }
	if broken.late {
		lane = func() pipeline.Deriver { return &lateLane{Deriver: w.newLane(0)} }
	}
	if log := w.stored(); w.archiveFault().past && len(log) > 0 {
		at.Position = min(at.Position, pipeline.EndOf(log[len(log)-1].Sequence))
	}
	forward := &backup.Restore{
		Place: place, Manifest: m, At: at, Shards: l.node, Lane: lane, Logger: slog.New(slog.DiscardHandler),
		Events: func(context.Context) (backup.Opener, uint64, error) { return w.behind(m) },
	}
	stands, _, err = forward.Forward(ctx)
	return l, stands, err
}

// lateLane leaves the first message out.
type lateLane struct {
	pipeline.Deriver
	begun bool
}

func (l *lateLane) Derive(from, to pipeline.Position, messages []pipeline.Message) ([]pipeline.Derived, error) {
	if !l.begun && len(messages) > 1 {
		messages, l.begun = messages[1:], true
	}
	return l.Deriver.Derive(from, to, messages)
}

// restoresAll restores each backup that there is, to a disk of its own: it is exact.
func (w *world) restoresAll() error {
	place, all, err := w.backups()
	if err != nil {
		return err
	}
	for _, m := range all {
		if err := backup.Verify(context.Background(), place, m); err != nil {
			return err
		}
		p := w.restoredTo(m.Position)
		l, _, err := w.restored(&p.disk, w.server.NewClient(p.number, nil), place, m, backup.Point{})
		if err == nil {
			p.node = l.node
			err = w.compare(p, m.Position, true)
		}
		if err == nil && len(l.node.Answering()) != w.shards {
			err = fmt.Errorf("shards %v of %d answer", l.node.Answering(), w.shards)
		}
		if err = errors.Join(err, l.close()); err != nil {
			return fmt.Errorf("restored as of %d, from %d: %w", m.Position, m.From, err)
		}
	}
	return w.restoresPoints()
}

// "EVENTS is only ever trimmed below the newest backup": backups are
// made, trimmed by, and restored while nodes crash, shards move and generations come and
// go. Whoever loses all that it has comes back from the newest backup and the log behind
// it, exactly; and so does, in the end, each backup that there is.
func TestBackups(t *testing.T) {
	before := []uint64{saved.Load(), trimmed.Load(), restored.Load()}
	t.Cleanup(func() {
		t.Logf("%d backups made, %d messages trimmed, %d disks restored", saved.Load()-before[0], trimmed.Load()-before[1], restored.Load()-before[2])
	})
	simulateSeeds(t, backupSeedsMost, &fault{setup: backedUp})
}
