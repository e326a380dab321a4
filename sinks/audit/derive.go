package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// derivation brings a ledger on along the log.
type derivation struct {
	*ledger
	auditor  *Auditor
	source   pipeline.Source
	lane     pipeline.Deriver
	at       pipeline.Position  // the ledger stands here
	run      []pipeline.Message // read, and not all of it derived
	memory   int                // bytes that the ledger may take
	pace     pace
	progress func(at pipeline.Position)
	rest     []Sample // what it was too large for
	base     string   // that it began with; "": with nothing
}

// sourceWithin is how long the log may take to give a message that it holds.
const sourceWithin = time.Minute

// derive begins a derivation, with a base or with nothing, of a ledger that is blank
// each time. A base that cannot be used is named, and the next one is. It is called in
// a turn, which others have while it waits for a log or a place of bases.
func (a *Auditor) derive(ctx context.Context, blank func() *ledger, t *Task) (*derivation, error) {
	var bases []Base
	if a.Bases != nil {
		var err error
		if t.Turns.Aside(func() { bases, err = a.Bases(ctx) }); err != nil {
			return nil, err
		}
	}
	begin := func() *derivation {
		return &derivation{ledger: blank(), auditor: a, lane: a.Lane(), memory: t.Memory, pace: newPace(t.Rate, t.Turns)}
	}
	if len(bases) == 0 {
		d := begin()
		var err error
		if t.Turns.Aside(func() { d.source, err = a.Open(ctx, 0) }); err != nil {
			return nil, beginning(0, err)
		}
		return d, nil
	}
	var faults []error
	for _, base := range bases {
		d := begin()
		err := d.begin(ctx, base)
		if err == nil {
			return d, nil
		}
		d.close()
		if ctx.Err() != nil || errors.Is(err, ErrMemory) {
			return nil, err
		}
		err = fmt.Errorf("%v cannot stand for it: %w", base, err)
		if text := err.Error(); a.refused.Swap(text) != text {
			a.Logger.Error("audit: a base cannot be used", "error", err)
		}
		faults = append(faults, err)
	}
	return nil, fmt.Errorf("%w: %w", ErrBeginning, errors.Join(faults...))
}

// begin takes in a base, brings its shards to one position by its own events, and
// opens the log behind it.
func (d *derivation) begin(ctx context.Context, base Base) error {
	var marks []pipeline.TimeMark
	var err error
	if d.pace.turns.Aside(func() { marks, err = base.Marks(ctx) }); err != nil {
		return err
	}
	d.clock.note(marks)
	d.base, d.stands = base.String(), base.Stands()
	for s := range len(d.parts) + 1 {
		if !d.keeps(s) {
			continue
		}
		if err := d.take(ctx, base, pipeline.Shard(s)); err != nil {
			return err
		}
	}
	cuts := slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(d.stands), base.Position()))))
	for _, m := range marks { // log time as far as the ledger stands
		if m.Position <= cuts[0] {
			d.seconds.before = max(d.seconds.before, m.Second)
		}
	}
	if d.at = cuts[0]; d.at < base.Position() {
		if d.pace.turns.Aside(func() { d.source, err = base.Log() }); err != nil {
			return err
		}
		for _, at := range cuts { // no window goes over where a shard stands
			if err := d.to(ctx, at); err != nil {
				return err
			}
		}
		d.close()
	}
	d.pace.turns.Aside(func() { d.source, err = d.auditor.Open(ctx, d.at) })
	return err
}

// take takes in what a base has of a shard, within the memory given. Others have its
// turn: how long a place takes to give that is not known.
func (d *derivation) take(ctx context.Context, base Base, shard pipeline.Shard) error {
	var fault error
	keep := func(id uint64) bool {
		return fault == nil && d.has(id) && pipeline.ShardOf(id, len(d.parts)) == shard
	}
	var ids []uint64
	if d.only != nil {
		ids = slices.DeleteFunc(slices.Sorted(maps.Keys(d.only)), func(id uint64) bool { return !keep(id) })
		if len(ids) == 0 {
			return nil
		}
	}
	facts := 0
	var err error
	d.pace.turns.Aside(func() {
		err = base.Facts(ctx, shard, ids, keep, func(f pipeline.Fact) {
			if facts++; fault == nil {
				d.seed(f)
				fault = d.fit()
			}
		})
	})
	if err = cmp.Or(fault, err); err != nil {
		return err
	}
	return d.pace.spend(ctx, facts)
}

// beginning says what is missing where the log has lost what comes after a
// position.
func beginning(at pipeline.Position, err error) error {
	switch {
	case !errors.Is(err, pipeline.ErrGap):
		return fmt.Errorf("audit: read the log: %w", err)
	case at == 0:
		return fmt.Errorf("%w: everything was counted from its first event, there is no base to begin with instead: %w", ErrBeginning, err)
	}
	return fmt.Errorf("%w: what comes after position %d is gone: %w", ErrBeginning, at, err)
}

// to derives up to a position, which the log holds.
func (d *derivation) to(ctx context.Context, target pipeline.Position) error {
	for d.at < target {
		if err := d.next(ctx); err != nil {
			return err
		}
		end := min(target, pipeline.EndOf(d.run[len(d.run)-1].Sequence))
		windows, err := d.lane.Derive(d.at, end, d.run)
		if err != nil {
			return fmt.Errorf("audit: derive (%d, %d]: %w", d.at, end, err)
		}
		events := 0
		for i := range windows {
			var w *pipeline.Window
			if err = d.pace.rest(ctx, 0); err == nil {
				w, err = pipeline.DecodeWindow(windows[i].Window)
			}
			if err == nil {
				err = d.apply(w)
			}
			if err == nil {
				err = d.fit()
			}
			if err != nil {
				return err
			}
			events += int(windows[i].Events) + len(windows[i].Letters)
		}
		d.at = end
		d.auditor.Stats.Events.Add(uint64(events))
		if d.progress != nil {
			d.progress(d.at)
		}
		if err := d.pace.spend(ctx, events); err != nil {
			return err
		}
	}
	return nil
}

// next makes sure that there are messages after where the ledger stands.
func (d *derivation) next(ctx context.Context) error {
	for len(d.run) > 0 && pipeline.EndOf(d.run[0].Sequence) <= d.at {
		d.run = d.run[1:]
	}
	if len(d.run) > 0 {
		return nil
	}
	run, within, err := d.read(ctx)
	if err != nil && ctx.Err() == nil && within != nil {
		return fmt.Errorf("audit: EVENTS gave nothing after position %d within %v", d.at, sourceWithin)
	}
	if err != nil {
		return beginning(d.at, err)
	}
	d.run = run
	return nil
}

// read waits for messages, while it is the turn of others; within is why it waited no
// longer.
func (d *derivation) read(ctx context.Context) (run []pipeline.Message, within, err error) {
	wait, cancel := context.WithTimeout(ctx, sourceWithin)
	defer cancel()
	d.pace.turns.Aside(func() { run, err = d.source.Next(wait) })
	return run, wait.Err(), err
}

// fit halves the sample until it fits. What goes is left for later.
func (d *derivation) fit() error {
	for d.bytes > d.memory {
		if d.sample.Bits == bitsMax {
			return fmt.Errorf("%w: what is known of one id, or of the channels, takes %d bytes, and %d are given", ErrMemory, d.bytes, d.memory)
		}
		stays, goes := d.sample.halves()
		d.narrow(stays)
		d.rest = append(d.rest, goes)
	}
	return nil
}

func (d *derivation) close() {
	if d.source != nil {
		_ = d.source.Close()
		d.source = nil
	}
}

// pace spends so much a second, in turns.
type pace struct {
	rate  int // 0: no bound
	turns pipeline.Turns
	due   time.Time
}

func newPace(rate int, turns pipeline.Turns) pace {
	return pace{rate: rate, turns: turns, due: time.Now()}
}

// spend gives its turn to others, and waits until n more are due and it is its turn
// again. What was not used before does not add up.
func (p *pace) spend(ctx context.Context, n int) error {
	wait := time.Duration(0)
	if p.rate > 0 {
		wait = p.wait(n)
	}
	return p.rest(ctx, wait)
}

// wait is how long it is until n more are due.
func (p *pace) wait(n int) time.Duration {
	if now := time.Now(); p.due.Before(now) {
		p.due = now
	}
	p.due = p.due.Add(time.Duration(float64(n) / float64(p.rate) * float64(time.Second)))
	if wait := time.Until(p.due); wait >= time.Millisecond { // less adds up
		return wait
	}
	return 0
}

// rest is the turn of others, for so long at least.
func (p *pace) rest(ctx context.Context, least time.Duration) (err error) {
	p.turns.Aside(func() { err = sleep(ctx, least) })
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
