package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/check"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

// audited are worlds in which audits run beside everything else, and in half of
// which a process comes to have what no event says.
func audited(s *setup) {
	s.audits = 6
	s.plants = (s.processes + s.lanes + s.shards) % 2
}

// auditFault is what is broken of audits; what is nil is not.
type auditFault struct {
	served func(p *process, s check.Served) check.Served
	passes int  // so many shards over
	once   bool // what differs is not looked at again
}

func (w *world) auditFault() auditFault {
	if w.fault == nil {
		return auditFault{}
	}
	return w.fault.audits
}

// auditing is an audit that is under way.
type auditing struct {
	p    *process
	over chan error // what it found wrong, once
}

// audits that came to an end, in all worlds; the ids that they compared; and the
// drifts that were there in the end, each of them found.
var audits, auditedIDs, drifts atomic.Uint64

// audit has a process begin to hold some ids to the log, as its loop does and
// commands do.
func (w *world) audit() error {
	p := w.processes[w.rand.IntN(len(w.processes))]
	if !p.up() {
		return nil
	}
	p.audits++
	ctx := Turn(p.ctx, p.lives<<32|1<<30|p.audits)
	bits := w.rand.IntN(3)
	task := check.Task{
		Sample: pipeline.Sample{Bits: bits, Residue: w.rand.Uint64N(1 << bits)}, Stored: w.rand.IntN(2) == 0, Memory: w.auditMemory(),
	}
	if w.rand.IntN(3) == 0 { // a recount
		task.Sample, task.IDs = pipeline.Sample{}, [][]uint64{w.story.Posts, w.story.Users, w.story.Pages}[w.rand.IntN(3)]
	}
	w.note("%d audits %+v, stored %v, in %d bytes", p.number, task.Sample, task.Stored, task.Memory)
	going := &auditing{p, make(chan error, 1)}
	w.auditing = going
	a := w.auditor(p, p.client, slowly{p.node, p, ctx})
	go func() {
		defer w.caught()
		defer close(going.over)
		look := a.Twice
		if w.auditFault().once {
			look = a.Run
		}
		r, err := look(ctx, task)
		if err != nil {
			w.heard(p, err)
		}
		if r != nil {
			going.over <- w.alarm(p, r)
		}
	}()
	return nil
}

// auditMemory is enough, or makes a sample be halved.
func (w *world) auditMemory() int { return []int{32 << 10, 1 << 20}[w.rand.IntN(2)] }

// audited takes in an audit that is over.
func (w *world) audited() error {
	if w.auditing == nil {
		return nil
	}
	select {
	case err := <-w.auditing.over:
		w.note("the audit of %d is over", w.auditing.p.number)
		w.auditing = nil
		audits.Add(1)
		return err
	default:
		return nil
	}
}

// alarm is an error if an audit tells of what is none: "Neither the
// audit nor `verify` reports drift that is none". Where EVENTS has lost some of what was
// counted, that stands.
func (w *world) alarm(p *process, r *check.Report) error {
	auditedIDs.Add(uint64(r.IDs))
	if r.Differ+len(r.Notices) == 0 {
		return nil
	}
	for _, ids := range r.Drifted() {
		for _, id := range ids {
			if !slices.ContainsFunc(p.plants, func(d *plant) bool { return d.id == id }) {
				return fmt.Errorf("process %d: an audit found a drift that is none, of %d ids and %d notices: %+v", p.number, r.Differ, len(r.Notices), r.Examples)
			}
		}
	}
	if len(r.Notices) > 0 {
		return fmt.Errorf("process %d: an audit found a drift that is none, of %d notices: %+v", p.number, len(r.Notices), r.Examples)
	}
	return nil
}

// auditor is one of a process, which reads EVENTS by a connection.
func (w *world) auditor(p *process, c *Client, s check.Served) *check.Auditor {
	if broken := w.auditFault().served; broken != nil {
		s = broken(p, s)
	}
	o := p.options
	return &check.Auditor{
		Served: s, Open: c.Events(p.runs()).Open,
		Lane:   func() pipeline.Deriver { return w.newLane(p.number) },
		Schema: p.node.Schema(), Shards: w.shards, Logger: slog.New(slog.DiscardHandler),
		Users: o.Users, Channels: o.Channels, Notices: o.Notices, Dots: o.Dots,
	}
}

// slowly lets others go first before each look at what is served. While the disk cannot
// be read it sees nothing: what is in memory nevertheless does not follow from the seed.
type slowly struct {
	*sinks.Node
	p   *process
	ctx context.Context
}

func (s slowly) Facts(ctx context.Context, ask *tier.FactsAsk, yield func(tier.Fact)) (pipeline.Position, bool, error) {
	if err := s.p.client.Work(s.ctx, 0); err != nil {
		return 0, false, err
	}
	if s.p.mount.unreadable.Load() {
		return 0, false, ErrUnreadable
	}
	return s.Node.Facts(ctx, ask, yield)
}

// round holds all ids of a process to the log, in some samples, and says whether
// any differ.
func (w *world) round(p *process) (found bool, err error) {
	c := w.server.NewClient(p.number, nil)
	a := w.auditor(p, c, p.node)
	bits := w.rand.IntN(3)
	for residue := range uint64(1) << bits {
		task := check.Task{Sample: pipeline.Sample{Bits: bits, Residue: residue}, Stored: true, Memory: w.auditMemory()}
		if passes := w.auditFault().passes; passes > 0 {
			task.Shards = slices.Delete(p.node.Answering(), 0, passes)
		}
		r, err := a.Run(context.Background(), task)
		if err == nil && len(r.Skipped) > 0 {
			err = fmt.Errorf("shards are skipped: %v", r.Skipped)
		}
		if err == nil {
			err = w.alarm(p, r)
		}
		if err != nil {
			return false, fmt.Errorf("process %d: an audit of all: %w", p.number, err)
		}
		found = found || r.Differ+len(r.Notices) > 0
	}
	return found, nil
}

// drift is a drift that was planted and is there in the end: what a process answers is
// not what the model says, and an audit of all ids must say so. unlike is what the
// comparison with the model came to.
func (w *world) drift(p *process, unlike error) error {
	found, err := w.round(p)
	switch {
	case err != nil:
		return err
	case unlike != nil && (!p.drifts() || !errors.Is(unlike, errModel)):
		return unlike
	case unlike != nil && !found:
		return fmt.Errorf("an audit of all ids does not find a drift: %w", unlike)
	case unlike != nil:
		drifts.Add(1)
	}
	return nil
}

// plant is a change that no event makes, in a window as one process comes to have it:
// in its memory first, then on its disk.
type plant struct {
	column pipeline.Column
	id     uint64
	by     int64
	to     pipeline.Position // the end of the window; 0: that has not come yet
}

// drifts says that what a process has may not be what the log says.
func (p *process) drifts() bool { return len(p.plants) > 0 }

// corrupt has a process have what no event says: a row changes in memory.
func (w *world) corrupt() error {
	p := w.processes[w.rand.IntN(len(w.processes))]
	if !p.up() || p.forge != nil {
		return nil
	}
	schema := p.node.Schema()
	ids := [][]uint64{w.story.Posts, w.story.Users, w.story.Pages}[w.rand.IntN(3)]
	p.forge = &plant{id: ids[w.rand.IntN(len(ids))], by: 1 + w.rand.Int64N(3)}
	columns := schema.Visible(w.rand.IntN(len(schema.Counters)))
	p.forge.column = columns[w.rand.IntN(len(columns))]
	w.note("%d will count %+v", p.number, *p.forge)
	return nil
}

// forged is a window with the change that a process is to have, once it is one that
// goes on where its shard stands.
func (p *process) forged(h pipeline.Header, window []byte) ([]byte, error) {
	d := p.forge
	if d == nil {
		return window, nil
	}
	s := int(pipeline.ShardOf(d.id, p.w.shards))
	if p.spoiled[s] || p.spoil == s || p.given[s].position != h.From || !slices.Contains(p.holds, pipeline.Shard(s)) {
		return window, nil
	}
	w, err := pipeline.DecodeWindow(window)
	if err != nil {
		return nil, err
	}
	column := slices.Index(w.Columns, p.node.Schema().FullName(d.column))
	if column < 0 {
		return nil, fmt.Errorf("no column %s", p.node.Schema().FullName(d.column))
	}
	w.Sections[s] = pipeline.AppendChange(slices.Clone(w.Sections[s]), column, d.id, pipeline.Add(d.by))
	d.to, p.forge, p.plants = h.To, nil, append(p.plants, d)
	return pipeline.AppendWindow(nil, w), nil
}

// The audit finds what is not what the log says, and nothing else: a node that is right
// is never reported, whatever happens to it, to the log and to the disk meanwhile; and in
// the end a round of all ids finds each drift that there is.
func TestAudits(t *testing.T) {
	before := []uint64{audits.Load(), auditedIDs.Load(), drifts.Load()}
	t.Cleanup(func() {
		t.Logf("%d audits beside everything else, %d ids compared, %d drifts found", audits.Load()-before[0], auditedIDs.Load()-before[1], drifts.Load()-before[2])
	})
	simulateSeeds(t, auditSeedsMost, &fault{setup: audited})
}

// furthermost says that what is served is as of where the furthest shard stands.
type furthermost struct {
	check.Served
	p *process
}

func (s furthermost) Facts(ctx context.Context, ask *tier.FactsAsk, yield func(tier.Fact)) (pipeline.Position, bool, error) {
	at, more, err := s.Served.Facts(ctx, ask, yield)
	if all := s.p.node.Positions(); err == nil && len(all) > 0 {
		at = max(at, all[len(all)-1])
	}
	return at, more, err
}
