package check

import (
	"context"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// makeEvery is how often it is looked whether there is something to make a
// filter of: seldom, because each look that finds some makes a consumer.
const makeEvery = 10 * time.Second

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

// Make makes filters of all that has none, at Rate; Run calls it. What does not fill a
// stretch at the log's end is left for later.
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
	pace := newPace(x.Rate, nil)
	b, tracer := &builder{stretch: stretch{gap.first, gap.first}}, x.Tracer()
	keep := func() error {
		x.Stats.Made.Add(1)
		err := f.keep(b)
		*b = builder{stretch: stretch{b.last + 1, b.last + 1}, entries: b.entries[:0]}
		return err
	}
	parts, err := x.Log.Begin(ctx)
	if err != nil {
		return false, err
	}
	err = read(ctx, parts, gap, func(m *pipeline.Message) error {
		had := b.events
		if b.full(m, x.Events) {
			had = 0
			b.last = m.Sequence - 1 // over what is not there
			if err := keep(); err != nil {
				return err
			}
		}
		b.add(m, tracer)
		return pace.spend(ctx, b.events-had)
	})
	if err == nil && (!end || b.events >= x.Events) && b.first <= gap.last { // up to the next stretch, whatever there is
		b.last = gap.last
		err = keep()
	}
	return !end, err
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
