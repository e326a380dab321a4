package explain

import (
	"context"
	"errors"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

const (
	// makeEvery is how often it is looked whether there is something to make a
	// filter of: seldom, because each look that finds some makes a consumer.
	makeEvery = 10 * time.Second
	// makeSlice is how many events are read between two pauses, in seconds of the
	// rate.
	makeSlice = 0.05
)

// Run makes filters of what the log holds, behind its end and at Rate, until ctx
// ends.
func (x *Explainer) Run(ctx context.Context) {
	if x.Dir == "" || x.Upto == nil || x.Rate <= 0 {
		return
	}
	for ctx.Err() == nil {
		if err := x.Make(ctx); err != nil && ctx.Err() == nil {
			x.Logger.Warn("explain: filters cannot be made; trying again", "error", err)
		}
		select {
		case <-time.After(makeEvery):
		case <-ctx.Done():
		}
	}
}

// Make makes filters of all that has none, at Rate; Run calls it. What does not fill a stretch at the
// log's end is left for later.
func (x *Explainer) Make(ctx context.Context) error {
	extent, err := x.Log.Extent(ctx)
	if err != nil {
		return err
	}
	f := x.filtersOf(extent)
	if f == nil {
		return nil
	}
	last := min(x.Upto(), extent.Last)
	f.trim(extent.First, x.BytesMax)
	if last == x.made {
		return nil
	}
	from := max(extent.First, f.front(x.BytesMax), 1)
	for ctx.Err() == nil {
		gap, ok := f.gap(from, last)
		if !ok {
			return nil
		}
		goesOn, err := x.fill(ctx, f, gap, gap.last == last)
		if err != nil {
			return err
		}
		if !goesOn {
			x.made = last
			return nil
		}
		f.trim(extent.First, x.BytesMax)
	}
	return ctx.Err()
}

// fill makes filters of a gap. At the log's end the last stretch waits until it is
// full; false says that nothing is left to do.
func (x *Explainer) fill(ctx context.Context, f *filters, gap stretch, end bool) (goesOn bool, err error) {
	pace := pacer{rate: float64(x.Rate), begun: time.Now()}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b := &builder{stretch: stretch{gap.first, gap.first}}
	var fault error
	keep := func() {
		if fault = f.keep(b); fault != nil {
			cancel()
		}
		x.Stats.Made.Add(1)
		*b = builder{stretch: stretch{b.last + 1, b.last + 1}, keys: b.keys[:0]}
	}
	parts, err := x.Log.Begin(ctx)
	if err != nil {
		return false, err
	}
	source, err := open(ctx, parts, gap)
	if err != nil {
		return false, err
	}
	_, err = read(ctx, source, gap, func(run []pipeline.Message) {
		for i := range run {
			if ctx.Err() != nil {
				return
			}
			had := b.events
			b.add(&run[i])
			pace.wait(ctx, b.events-had)
			if b.events >= x.Events {
				keep()
			}
		}
	})
	if fault == nil && err == nil && !end && b.first <= gap.last { // up to the next stretch, whatever there is
		b.last = gap.last
		keep()
	}
	return !end, errors.Join(fault, err)
}

// front is where filters begin when there is no room for older ones.
func (f *filters) front(bytesMax int64) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.list) == 0 || f.bytes < bytesMax-bytesMax/frontSlack {
		return 0
	}
	return f.list[0].first
}

// frontSlack: what was taken away for want of room is not made again while the
// rest is within this part of the bound.
const frontSlack = 16

// pacer holds a reader to a rate.
type pacer struct {
	rate  float64 // events a second
	begun time.Time
	read  float64
	look  float64 // when read reaches this, look at the time
}

func (p *pacer) wait(ctx context.Context, events int) {
	if p.read += float64(events); p.read < p.look {
		return
	}
	p.look = p.read + p.rate*makeSlice
	early := time.Duration(p.read/p.rate*float64(time.Second)) - time.Since(p.begun)
	if early <= 0 {
		if early < -time.Second { // no haste for what was missed
			p.begun = p.begun.Add(-early)
		}
		return
	}
	select {
	case <-time.After(early):
	case <-ctx.Done():
	}
}
