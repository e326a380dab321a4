package explain

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// page is one page of an explanation in work.
//
//	touches[0] newest ─► page, limit at most ─► context: older ones that the page's
//	                                            changes depend on
type page struct {
	search
	ask     *query.ExplainAsk
	mention mention
	numbers []number
	below   pipeline.Position // nothing at or after this is looked at

	touches []*touch // newest first
	reached uint64   // all messages from here on have been seen, as far as below
	bytes   int      // of the bodies, also of those that are let go of
	horizon int64    // what is before reached has no later log second
}

const (
	// bodiesMax is when a page ends because of its bytes: it must fit a message.
	bodiesMax = 256 << 10
	// contextMax bounds the older events that a page's changes depend on.
	contextMax = 65_536
)

func (p *page) make(ctx context.Context, out *query.Explanation) error {
	*out = query.Explanation{}
	if p.extent.First > 1 {
		out.Base = pipeline.EndOf(p.extent.First - 1)
	}
	from := min(p.extent.Last, (p.below-1).Sequence()) + 1
	p.horizon = math.MaxInt64
	if p.reached = from; len(p.numbers) == 0 { // sets alone
		return p.join(ctx, out)
	}
	limit := p.ask.Limit
	// One more than asked shows whether there are more, and what was before.
	err := p.gather(ctx, func() bool { return len(p.touches) > limit || p.bytes > bodiesMax })
	if err != nil || ctx.Err() != nil && p.reached == from {
		return errors.Join(err, ctx.Err())
	}
	n := p.fitting(limit)
	switch {
	case n < len(p.touches):
		out.Next = p.touches[n-1].Position
	case !p.bottom(): // it is late
		out.Next = pipeline.At(p.reached, 0)
	}
	depend, err := p.anchor(ctx, n)
	if err != nil {
		return err
	}
	pairs, err := p.pairs(ctx, depend)
	if err != nil {
		return err
	}
	sets, err := p.sets(ctx, depend)
	if err != nil {
		return err
	}
	p.evaluate(n, pairs, sets)
	for _, t := range p.touches[:n] {
		if t.Changes != nil {
			out.Events = append(out.Events, t.ExplainedEvent)
		}
	}
	if len(p.ask.Members) == 0 && p.ask.Upto == 0 {
		return nil
	}
	return p.join(ctx, out)
}

// bottom says that the log has been seen down to its beginning.
func (p *page) bottom() bool { return p.reached <= p.extent.First }

// whole says that it is the beginning of all.
func (p *page) whole() bool { return p.bottom() && p.extent.First <= 1 }

// fitting is how many touches go on a page: by their number and their bytes, but
// one at least.
func (p *page) fitting(limit int) (n int) {
	for bytes := 0; n < min(limit, len(p.touches)); n++ {
		if bytes += p.touches[n].shown(); bytes > bodiesMax && n > 0 {
			break
		}
	}
	return n
}

// gather goes on back through the log until it is done, or late.
func (p *page) gather(ctx context.Context, done func() bool) error {
	if p.bottom() || done() {
		return nil
	}
	found := part{page: p}
	oldest := int64(math.MaxInt64)
	visit := func(m *pipeline.Message) (some bool) {
		oldest = min(oldest, m.Time/1000)
		if !p.mention.may(m.Data) {
			return false
		}
		p.tracer.Trace(m, p.mention.in, func(t *pipeline.Traced) {
			if t.Position >= p.below {
				return
			}
			if touched := touchOf(t, p.ask.ID, p.numbers, m.Time); touched != nil {
				found.add(touched)
				some = true
			}
		})
		return some
	}
	reached, err := p.back(ctx, p.reached-1, quest{may: hasAll(p.ask.ID), visit: visit, done: func(first uint64) (uint64, bool) {
		if first >= found.first { // else what is older than that is read again
			p.horizon = min(p.horizon, oldest)
		}
		first, oldest = max(first, found.first), math.MaxInt64
		found.turn()
		return first, done()
	}})
	p.reached = reached
	if ctx.Err() != nil { // what was found stands
		return nil
	}
	return err
}

// extend gives what is to come a share of the time that is left.
func (p *page) extend(ctx context.Context, share time.Duration) {
	if end, ok := ctx.Deadline(); ok {
		p.soft = time.Now().Add(time.Until(end) / share)
	} else {
		p.soft = time.Now().Add(time.Hour)
	}
}

// anchor gathers on until the changes of the first n touches are known: until there is
// one before them that does not depend on what was before it itself. It returns how
// many touches the changes follow from.
func (p *page) anchor(ctx context.Context, n int) (depend int, err error) {
	depend, anchored := p.dependOn(n)
	if anchored {
		return depend, nil
	}
	most := n + contextMax
	p.extend(ctx, 2)
	err = p.gather(ctx, func() bool {
		if !anchored {
			depend, anchored = p.dependOn(n)
		}
		return anchored || len(p.touches) > most
	})
	if !anchored {
		depend = len(p.touches)
	}
	return depend, err
}

// dependOn is how many touches the changes of the first n follow from, and
// whether that is enough.
func (p *page) dependOn(n int) (depend int, enough bool) {
	depend = n
	for i := range p.numbers {
		var known []func(*touch) bool
		if p.depends(i, n) {
			known = append(known, func(t *touch) bool { return t.sets(i) })
		}
		if p.numbers[i].spec.Default != 0 { // was there a row?
			known = append(known, func(t *touch) bool { return t.row != rowKept })
		}
		for _, is := range known {
			at := slices.IndexFunc(p.touches[n:], is)
			if at < 0 {
				return len(p.touches), false
			}
			depend = max(depend, n+at+1)
		}
	}
	return depend, true
}

// depends says whether a change of a number, among the first n, depends on the
// count before it.
func (p *page) depends(number, n int) bool {
	for _, t := range p.touches[:n] {
		for _, s := range t.steps[number] {
			if s.op == pipeline.OpCell && !s.plain(p.ask.Differences) {
				return true
			}
		}
	}
	return false
}

// plain says that a change follows from the event itself: it adds, or it sets the
// cell and no difference is wanted.
func (s step) plain(differences bool) bool {
	_, adds := s.delta.Amount()
	_, sets := s.delta.Value()
	return adds || sets && !differences
}

// sets says whether the touch sets a number, whatever it was.
func (t *touch) sets(number int) bool {
	return slices.ContainsFunc(t.steps[number], func(s step) bool {
		_, sets := s.delta.Value()
		return s.op == pipeline.OpCell && sets
	})
}
