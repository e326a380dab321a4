package sim

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// freshness is how old an answer may be that is not said to be degraded. It is longer than
// the product's: a step may last two seconds.
const freshness = 5 * time.Second

// fresh counts the answers that were whole and not older than that, in all worlds.
var fresh atomic.Uint64

// endTurn is that of calls that ask where EVENTS ends.
const endTurn = 1 << 30

// askEnd asks where EVENTS ends. The answer comes when the process is let on: it may stand
// still between the two.
func (p *process) askEnd(ctx context.Context) error {
	f := p.membership.fresh
	e := pipeline.LogEnd{Asked: f.Now()}
	last, err := p.client.Events(p.runs()).Last(ctx)
	if err == nil {
		err = p.client.Work(ctx, last)
	}
	if err != nil {
		return err
	}
	if e.Answered = f.Now(); last > 0 {
		e.End = pipeline.EndOf(last)
	}
	if p.w.nodeFault().late {
		e.Asked = e.Answered
	}
	f.Take(e)
	return nil
}

// upToDate is I11: "An answer that is not said to be degraded contains all that was stored
// freshness before it."
func (q *inquiry) upToDate(asOf pipeline.Position) error {
	if _, whole := q.of.fresh.Age(asOf); !whole {
		return nil
	}
	fresh.Add(1)
	for _, m := range q.w.server.Held(jetlog.EventsStream) {
		if age := time.Since(m.Time); pipeline.EndOf(m.Sequence) > asOf && age > freshness {
			return fmt.Errorf("an answer as of %d is whole, and lacks message %d, which was stored %v before (I11)", asOf, m.Sequence, age)
		}
	}
	return nil
}

// cutOff cuts a process off from the log and the bucket for a while. Others may still ask it.
func (w *world) cutOff() error {
	p, steps := w.rand.IntN(len(w.processes)), 10+w.rand.IntN(300)
	w.note("%d is cut off for %d", p, steps)
	w.cut[p] = steps
	return nil
}

// isCut says whether a call is of a process that is cut off, to what it is cut off from.
func (w *world) isCut(c *waiting) bool {
	switch c.Kind {
	case Work, Commit, Fetch, Ask:
		return false
	}
	return w.cut[c.Process] > 0
}

// keepDisk copies a process's data directory, as a kill would leave it.
func (w *world) keepDisk() error {
	p := w.processes[w.rand.IntN(len(w.processes))]
	w.note("the disk of %d is copied", p.number)
	p.copied = new(Disk)
	p.copied.copyOf(&p.disk)
	p.copiedGiven = slices.Clone(p.given) // its slices only grow
	return nil
}

// oldDisk puts a copy in the place of the data directory of a process that is down.
func (w *world) oldDisk() error {
	for _, p := range w.processes {
		if p.alive() || p.copied == nil {
			continue
		}
		w.note("%d is restored from a copy of its disk", p.number)
		p.disk.copyOf(p.copied)
		p.given = slices.Clone(p.copiedGiven)
		p.wasHeld, p.kept = cluster.ShardSet{}, nil
		break
	}
	return nil
}
