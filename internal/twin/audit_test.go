package twin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/sinks/backup"
	"github.com/tidemark-io/tidemark/sinks/check"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// auditor audits the world's node. Where there are bases it has them, the oldest first,
// and the log lacks what comes before the first message that this one needs.
func (w *world) auditor(r *rand.Rand, bases ...*backup.Base) *check.Auditor {
	o := w.options()
	a := &check.Auditor{
		Served: w.node,
		Open: func(_ context.Context, from pipeline.Position) (pipeline.Source, error) {
			if len(bases) > 0 && from.Next() < bases[0].Position().Next() {
				return nil, fmt.Errorf("%w: the log begins behind %s, and %d is read", pipeline.ErrGap, bases[0], from.Next())
			}
			return &runsOf[pipeline.Message]{rest: w.log[from.Next()-1:], most: 1 + r.IntN(60)}, nil
		},
		Lane:   func() pipeline.Deriver { return w.lanes[r.IntN(len(w.lanes))] },
		Schema: w.schema, Shards: w.shards, Logger: quiet,
		Users: o.Users, Channels: o.Channels, Notices: o.Notices, Dots: o.Dots,
	}
	if len(bases) > 0 {
		a.Bases = func(context.Context) ([]*backup.Base, error) { return bases, nil }
	}
	return a
}

// worldOrigin is a world that is backed up, of which the log is whole.
type worldOrigin struct {
	*world
	rand *rand.Rand
}

func (o worldOrigin) Export(_ context.Context, s pipeline.Shard) (cold.Source, string, func(), error) {
	e, err := o.store.Export(s)
	if err != nil {
		return nil, "", nil, err
	}
	return e, "n", e.Close, nil
}

func (o worldOrigin) Last(context.Context) (uint64, error) { return uint64(len(o.log)), nil }

func (o worldOrigin) Open(_ context.Context, from pipeline.Position) (pipeline.Source, error) {
	return &runsOf[pipeline.Message]{rest: o.log[from.Next()-1:], most: 1 + o.rand.IntN(60)}, nil
}

// streamed is a place that gives objects from the beginning only.
type streamed struct{ backup.Place }

func (s streamed) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := s.Place.Get(ctx, name)
	return struct{ io.ReadCloser }{r}, err
}

// firstRecord is that of a system that was never rebuilt.
var firstRecord, _ = generation.Start([]byte(`{}`))

// docs/contract.md: "counts a random sample of ids (or all) again from EVENTS … and
// compares every column, list and mark with what is answered, at exactly one position."
// Whatever was restarted, evicted, merged or aged between, and however the log is cut,
// sampled and passed over in little memory, whole or behind any backup: nothing is found
// where nothing is wrong. What a shard has counted by no event is found, whatever it is.
func TestAudit(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("go test ./internal/twin -run 'TestAudit$' -seed=%d", seed)
	worlds, seen := 4*len(Plants), auditSeen{}
	if testing.Short() {
		worlds = len(Plants)
	}
	few := func() bool { return seen.ids < 30*worlds || seen.spills == 0 || seen.passed == 0 }
	for number := 0; number < worlds || number < 20*worlds && few(); number++ {
		if err := auditWorld(t, chances(seed, number), &Plants[number%len(Plants)], &seen); err != nil {
			t.Fatalf("world %d: %v", number, err)
		}
	}
	if t.Logf("%+v", seen); few() {
		t.Error("too little was compared to say much")
	}
}

type auditSeen struct{ audits, ids, spills, passed int }

func auditWorld(t *testing.T, r *rand.Rand, p *Plant, seen *auditSeen) error {
	of := draw(r)
	of.ages.once = of.ages.once || p.Once
	if p.Items {
		of.ages.items = 1000
	}
	w, err := newWorld(t.TempDir(), of)
	if err != nil {
		return err
	}
	defer w.close()
	place, err := backup.OpenPlace(t.Context(), filepath.Join(t.TempDir(), "backups"), nil, true)
	if err != nil {
		return err
	}
	if err := w.store.SetStreams(cold.Streams{Events: time.Unix(1, 0).UTC()}); err != nil {
		return err
	}
	var bases []*backup.Base // the oldest first
	for story := range 3 {
		s, m := generate(r, story, w.ages), &model{ages: w.ages, defaults: w.defaults}
		n := r.IntN(len(s.messages))
		if err := w.tellSome(r, s.people, s.messages[:n], m); err != nil {
			return err
		}
		made, err := backup.Make(t.Context(), place, worldOrigin{w, r}, backup.Options{Shards: w.shards, Generations: firstRecord, Logger: quiet})
		if err != nil {
			return err
		}
		from := []backup.Place{place, streamed{place}}[r.IntN(2)]
		bases = append(bases, backup.NewBase(from, made, w.schema, t.TempDir(), func(int64) error { return nil }))
		if err := errors.Join(w.tellSome(r, s.people, s.messages[n:], m), w.finish(s, m)); err != nil {
			return err
		}
		for i := range len(bases) + 1 { // with the log whole, last
			if err := w.auditedRight(t.Context(), t, r, s.users, bases[i:], seen); err != nil {
				return fmt.Errorf("story %d, backup %d: %w", story, i, err)
			}
		}
	}
	return w.findsDrift(t.Context(), r, p, bases)
}

// auditedRight audits some ids, or those of some users, and finds nothing.
func (w *world) auditedRight(ctx context.Context, t *testing.T, r *rand.Rand, users []uint64, bases []*backup.Base, seen *auditSeen) error {
	bits := r.IntN(3)
	task := check.Task{
		Sample: pipeline.Sample{Bits: bits, Residue: r.Uint64N(1 << bits)}, Memory: []int{12 << 10, 1 << 30}[r.IntN(2)], Stored: r.IntN(2) == 0,
	}
	if r.IntN(4) == 0 {
		task = check.Task{IDs: append([]uint64{1, 2, 3, 1 << 40}, users[:r.IntN(len(users))]...), Memory: 1 << 30}
	}
	if r.IntN(2) == 0 {
		task.Turns = pipeline.NewTurns(1)
	}
	auditor := w.auditor(r, bases...)
	trimmed := len(bases) > 0 && r.IntN(2) == 0
	if trimmed { // the log loses its beginning while it is read
		auditor.Bases = func(context.Context) ([]*backup.Base, error) {
			auditor.Bases = func(context.Context) ([]*backup.Base, error) { return bases, nil }
			return nil, nil
		}
	}
	if task.IDs != nil {
		log := &listLog{}
		log.begins(w.log, 1)
		auditor.Filters = w.explainer(t, log)
		if err := auditor.Filters.Make(ctx); err != nil {
			return err
		}
	}
	report, err := auditor.Run(ctx, task)
	if err != nil {
		return err
	}
	if task.IDs != nil {
		seen.passed += int(auditor.Stats.PassedOver.Load())
	}
	seen.audits, seen.ids, seen.spills = seen.audits+1, seen.ids+report.IDs, seen.spills+int(auditor.Stats.Spills.Load())
	base := ""
	if len(bases) > 0 {
		base = bases[0].String()
	}
	if report.Differ+len(report.Notices) > 0 || len(report.Skipped) > 0 || report.Base != base && !(trimmed && report.Base == "") { // filters may pass over what is gone
		return fmt.Errorf("%+v, of %q: %+v, skipped %v", task, report.Base, report.Examples, report.Skipped)
	}
	if len(task.Turns) != 0 {
		return errors.New("a turn is not given back")
	}
	return nil
}

// findsDrift plants something of an id that events name, and of one that none does: that
// is found where it is asked for, or where all that is stored is looked at.
func (w *world) findsDrift(ctx context.Context, r *rand.Rand, p *Plant, bases []*backup.Base) error {
	const id, stranger = 9, 21
	like := message{events: []event{{kind: "like", actor: 7, post: id, author: id}}}
	m := &model{ages: w.ages, defaults: w.defaults}
	if err := w.publish([]message{like}, 0, m); err != nil {
		return err
	}
	// The same event once more, in a window that says more than it does.
	w.note([]message{like}, m)
	windows, err := pipeline.DeriveRun(w.lanes[0], w.end, w.log[len(w.log)-1:], nil)
	if err != nil {
		return err
	}
	d, err := pipeline.DecodeWindow(windows[0].Window)
	if err != nil {
		return err
	}
	for i, id := range []uint64{stranger, id} {
		of := pipeline.ShardOf(id, w.shards)
		if p.Counter == "notice" {
			of = pipeline.Shard(w.shards)
		}
		d.Sections[of] = p.Add(slices.Clone(d.Sections[of]), d, id, d.To-1+pipeline.Position(i))
	}
	entry := pipeline.Entry{Sequence: uint64(len(w.entries) + 1), Window: pipeline.AppendWindow(nil, d)}
	w.entries, w.end = append(w.entries, entry), windows[0].To
	if err := errors.Join(w.node.Hand(ctx, entry), w.publish([]message{like}, 0, m)); err != nil {
		return err
	}
	for _, c := range []struct {
		check.Task
		bases []*backup.Base
		found []uint64
	}{
		{check.Task{Memory: 1 << 20}, nil, []uint64{id}},
		{check.Task{Memory: 1 << 20}, bases[len(bases)-1:], []uint64{id}},
		{check.Task{Memory: 12 << 10}, nil, []uint64{id}}, // in scratch files
		{check.Task{Memory: 1 << 20, IDs: []uint64{5, id, stranger}}, nil, []uint64{id, stranger}},
		{check.Task{Memory: 1 << 20, IDs: []uint64{5, 11}}, nil, nil},
		{check.Task{Memory: 1 << 20, Stored: true}, nil, []uint64{id, stranger}},
	} {
		if c.Stored { // all of it is on disk after
			if err := w.restart(true); err != nil {
				return err
			}
		}
		if err := w.settle(); err != nil {
			return err
		}
		report, err := w.auditor(r, c.bases...).Run(ctx, c.Task)
		if err != nil {
			return err
		}
		var found, named []uint64
		for _, d := range report.Examples {
			if found = append(found, d.ID); d.Counter == p.Counter && (d.Column == p.Column || p.Items) && d.Is != d.Should && d.At == w.end {
				named = append(named, d.ID)
			}
		}
		if p.Counter == "notice" { // those that were pushed out differ too
			if compared := c.IDs == nil; len(named) > 0 != compared || len(report.Notices) > 0 != compared || report.Differ > 0 {
				return fmt.Errorf("%+v found notices %v: %+v", c.Task, named, report)
			}
			continue
		}
		slices.Sort(found) // a follow is also a number
		slices.Sort(named)
		if !slices.Equal(slices.Compact(found), c.found) || !slices.Equal(named, c.found) || report.Differ != len(c.found) {
			return fmt.Errorf("%+v found %v, and %s.%s of %v, want %v: %+v", c.Task, found, p.Counter, p.Column, named, c.found, report)
		}
	}
	return nil
}
