package spread

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/wire"
)

// WaitVisible implements [query.Spread]. A position that was stored before the call is
// in every whole answer from then on: either all that may be asked about the user have
// applied it, or no process can still give a whole answer that lacks it.
//
//	stored ── asked all holders ── all have applied it ► visible
//	   └─ one is away, or says nothing ── Options.Wait ─► visible
func (r *Reader) WaitVisible(ctx context.Context, user uint64, p pipeline.Position) error {
	var over time.Time
	if r.wait != nil {
		over = time.Now().Add(r.wait())
	}
	return r.visible(ctx, user, p, over)
}

// Reached blocks until all that are known to answer about a user have applied p, as far as
// they say anything.
func (r *Reader) Reached(ctx context.Context, user uint64, p pipeline.Position) error {
	return r.visible(ctx, user, p, time.Time{})
}

// heardWithin is how old what is known of other nodes may be: each writes its key every
// second, this one too.
const heardWithin = 1500 * time.Millisecond

// visible waits for all that may be asked. Those that say nothing are waited out until
// over; zero: they are passed over.
func (r *Reader) visible(ctx context.Context, user uint64, p pipeline.Position, over time.Time) error {
	v, own := r.dir.View(), r.dir.Own()
	shard := v.shardOf(user)
	deadline, limited := ctx.Deadline()
	if !limited {
		deadline = time.Now().Add(waitMax)
	}
	nodes := v.asked(shard)
	errs := make([]error, len(nodes)+1)
	var all sync.WaitGroup
	for i, node := range nodes {
		all.Go(func() { errs[i] = r.visibleAt(ctx, node, user, p, deadline, over) })
	}
	if own != nil && (v.Whole || own.Holds(shard) && !v.ownLast(shard)) {
		errs[len(nodes)] = own.WaitApplied(ctx, p)
	} else if len(nodes) == 0 {
		errs[len(nodes)] = query.ErrNobody
	}
	if v.unheard(shard) || r.silent != nil && r.silent() > heardWithin {
		until(ctx, over)
	}
	all.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.Join(errs...)
}

// asked are the nodes that may be asked about a shard.
func (v *View) asked(s pipeline.Shard) (nodes []string) {
	nodes = slices.Clone(v.Holders[s])
	for _, more := range [...][][]string{v.Behind, v.Coming} {
		if more != nil {
			nodes = append(nodes, more[s]...)
		}
	}
	return nodes
}

func (v *View) unheard(s pipeline.Shard) bool { return v.Unheard != nil && v.Unheard[s] }

// until waits until a time, or ctx ends.
func until(ctx context.Context, over time.Time) {
	timer := time.NewTimer(time.Until(over))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

const (
	// visiblePause paces what is asked again, at first and at most.
	visiblePause    = 10 * time.Millisecond
	visiblePauseMax = 100 * time.Millisecond
)

// visibleAt waits until one node has applied p, or is waited out. One that says that it
// is behind is waited for: it may be well, and answer others.
func (r *Reader) visibleAt(ctx context.Context, node string, user uint64, p pipeline.Position, deadline, over time.Time) error {
	only, left, pause := &one{r, node, over}, time.Until(deadline), visiblePause
	for {
		c := &call{reader: r, ctx: ctx, q: appliedQuestion{user}, min: p, waits: deadline, deadline: deadline, wake: make(chan struct{}, 1)}
		out := only.ask(c)
		behind := out == outBehind && time.Until(deadline) < left/4
		switch {
		case out == outAnswered, out == outNobody && over.IsZero():
			return nil
		case out != outBehind && !over.IsZero() && !time.Now().Before(over):
			return nil // waited out
		case out == outLate && over.IsZero() || behind || ctx.Err() != nil:
			return query.ErrBehind
		case time.Until(deadline) < 2*pause:
			return fmt.Errorf("spread: node %s does not say how far it is: %s", node, outcomes[out])
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, visiblePauseMax)
	}
}

// one asks one node and no other.
type one struct {
	reader *Reader
	node   string
	over   time.Time // when it is given up if it is silent; zero: never
}

func (o *one) ask(c *call) outcome {
	l := o.reader.linkTo(o.node, o.reader.dir.View())
	if l == nil {
		return outUnsent
	}
	left := time.Until(c.deadline)
	p := &part{call: c, kind: wire.Applied, items: []int32{0}, more: true, until: time.Now().Add(left * 15 / 16)}
	l.ask(p)
	until, look := time.NewTimer(time.Until(p.until)), time.NewTicker(looks(left))
	defer until.Stop()
	defer look.Stop()
	for done := false; !done; {
		late := false
		select {
		case <-c.wake:
			done = true
		case now := <-look.C:
			// If it is gone, NATS says so; if it is suspended, it says nothing.
			late = l.look(now, looks(left), true) && !o.over.IsZero() && !now.Before(o.over)
		case <-until.C:
			late = true
		case <-c.ctx.Done():
			late = true
		}
		if late {
			if l.abandon(p) {
				return outLate
			}
			<-c.wake
			done = true
		}
	}
	o.reader.metrics.parts[p.out].Inc()
	return p.out
}
