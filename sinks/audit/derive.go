package audit

import (
	"context"
	"errors"
	"fmt"
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
	lost     int      // messages read that stand for what the log has lost
}

// Fillers are in the places of messages that the log lost in a power cut (I10),
// as operators know them: what some of those had changed may stand in shards.
const (
	fillerSubject = "events.filler"
	fillerHeader  = "Tidemark-Filler"
)

// sourceWithin is how long the log may take to give a message that it holds.
const sourceWithin = time.Minute

// derive begins a derivation: with the base, or with nothing.
func (a *Auditor) derive(ctx context.Context, l *ledger, memory, rate int) (*derivation, error) {
	d := &derivation{ledger: l, auditor: a, lane: a.Lane(), memory: memory, pace: newPace(rate)}
	if a.Base != nil {
		d.at = a.Base.Position
		l.clock.note(a.Base.Marks)
		if err := a.Base.Facts(ctx, l.keeps, l.seed); err != nil {
			return nil, fmt.Errorf("audit: read the base at position %d: %w", a.Base.Position, err)
		}
		if err := d.fit(); err != nil {
			return nil, err
		}
	}
	var err error
	if d.source, err = a.Open(ctx, d.at); err != nil {
		return nil, beginning(d.at, err)
	}
	return d, nil
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
	return fmt.Errorf("%w: the base ends at position %d: %w", ErrBeginning, at, err)
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
			w, err := pipeline.DecodeWindow(windows[i].Window)
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
	within, cancel := context.WithTimeout(ctx, sourceWithin)
	defer cancel()
	run, err := d.source.Next(within)
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		return fmt.Errorf("audit: EVENTS gave nothing after position %d within %v", d.at, sourceWithin)
	}
	if err != nil {
		return beginning(d.at, err)
	}
	for i := range run {
		if run[i].Subject == fillerSubject && len(run[i].Header[fillerHeader]) > 0 {
			d.lost++
		}
	}
	d.run = run
	return nil
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

func (d *derivation) close() { _ = d.source.Close() }

// pace spends so much a second.
type pace struct {
	rate int // 0: no bound
	due  time.Time
}

func newPace(rate int) pace { return pace{rate: rate, due: time.Now()} }

// spend waits until n more are due. What was not used before does not add up.
func (p *pace) spend(ctx context.Context, n int) error {
	if p.rate <= 0 {
		return ctx.Err()
	}
	if now := time.Now(); p.due.Before(now) {
		p.due = now
	}
	p.due = p.due.Add(time.Duration(float64(n) / float64(p.rate) * float64(time.Second)))
	wait := time.Until(p.due)
	if wait < time.Millisecond { // it adds up
		return ctx.Err()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
