package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/spread"
)

// duties are what a generation does besides counting while it serves: the audit that
// never ends, backups, the making of filters, and dead letters.
type duties struct {
	stop context.CancelFunc // nil: it does not serve
	work sync.WaitGroup
}

// beginServing begins them.
func (g *generation) beginServing() {
	ctx, stop := context.WithCancel(g.ctx)
	g.duties.stop = stop
	g.letters.on()
	g.sayDiffers()
	g.duties.work.Go(func() { g.explainer.Run(ctx) })
	if g.audits.Auditor != nil {
		g.duties.work.Go(func() { g.audit(ctx) })
	}
	if g.config.Has(config.RoleRoute) && g.config.Backup.To != "" {
		g.duties.work.Go(func() { g.backUp(ctx) })
	}
}

// endServing ends them.
func (g *generation) endServing() {
	if g.duties.stop == nil {
		return
	}
	g.letters.off()
	g.duties.stop()
	g.duties.work.Wait()
	g.duties.stop = nil
}

// maySwitch says whether this node may answer by another generation at once: what it
// has of that is as new as it should be. Where the one that serves is gone from the
// record, nothing is as good.
func (n *Node) maySwitch(from, to *generation) bool {
	if to.isLost() {
		return false
	}
	set := n.rebuilds.set()
	if _, named := set.All[from.number]; !named {
		return true
	}
	return to.open.Load() && to.lags() == nil && to.hasAssigned()
}

const (
	// catchUpWithin bounds how long requests wait, at a switch, until the generation
	// that comes to serve is as far as the one before was: usually milliseconds.
	catchUpWithin = 2 * time.Second
	// drainBefore bounds how long they wait for those that the one before answers.
	drainBefore = 250 * time.Millisecond
)

// switchTo switches answers to another generation. No request is lost, and no number goes
// back. Requests that come during the switch wait until that generation is as far as any
// holder of the one before can have been. If it cannot begin to answer, nothing has
// changed, and the switch is tried again.
//
//	before ──► answers ──────────────► drained ─► closed with its generation
//	to         ─► answers, requests wait ─► as far as before ─► answered
func (n *Node) switchTo(ctx context.Context, to *generation) (switched bool) {
	before := n.gen()
	begun := time.Now()
	if n.serves() {
		counted := to.countedHere()
		if err := n.answerAfter(ctx, before, to, counted, before.routedUpTo); err != nil {
			n.openFailed(fmt.Errorf("generation %d does not come to serve: %w", to.number, err))
			return false
		}
	}
	n.rebuilds.pause, n.rebuilds.failed = 0, time.Time{}
	n.rebuilds.trouble.clear(rebuildPart)
	n.serving.Store(to)
	n.rebuilds.beside.Store(before)
	if to.isLost() {
		n.fail(fmt.Errorf("generation %d, which has come to serve, cannot go on", to.number))
	}
	before.endServing()
	before.setMemory(n.config.ShardBytesSecond())
	to.setMemory(n.config.ShardBytesBeside())
	to.beginServing()
	n.log.Info("tidemark: another generation serves", "generation", to.number, "before", before.number, "took", time.Since(begun).Round(time.Millisecond))
	return true
}

// answerAfter has everybody be answered by another generation, from when it is as far
// as the one before. upTo is how far any holder of that can be.
func (n *Node) answerAfter(ctx context.Context, before, to *generation, counted *spread.Counted, upTo func(context.Context) (pipeline.Position, error)) error {
	gate := make(chan struct{})
	defer close(gate)
	old, err := n.answer(to, counted, func() error {
		<-gate
		return nil
	})
	if err != nil {
		return err
	}
	drained := make(chan struct{})
	before.work.Go(func() {
		defer close(drained)
		n.stopAnswers(old)
	})
	select {
	case <-drained:
	case <-time.After(drainBefore):
	}
	ctx, cancel := context.WithTimeout(ctx, catchUpWithin)
	defer cancel()
	target, err := upTo(ctx)
	if err == nil {
		err = to.reach(ctx, n.answers.Load().reader, target)
	}
	if err != nil && n.ctx.Err() == nil {
		n.log.Warn("tidemark: not all of the generation that comes to serve is known to be as far as the one before", "error", err)
	}
	return nil
}

// routedUpTo is the end of the last window of a generation.
func (g *generation) routedUpTo(ctx context.Context) (pipeline.Position, error) {
	tail, _, err := g.deltas.Tail(ctx)
	return max(tail.To, g.sinks.Applied()), err
}

// reach waits until all nodes that answer for a shard have come to a position.
func (g *generation) reach(ctx context.Context, reader *spread.Reader, to pipeline.Position) error {
	if g.sinks != nil {
		if err := g.sinks.WaitApplied(ctx, to); err != nil {
			return err
		}
	}
	view := g.view()
	asked := make(map[string]bool) // sets of holders
	var faults []error
	var mu sync.Mutex
	var work sync.WaitGroup
	for s := range pipeline.Shard(view.Assignment.Shards()) {
		holders := strings.Join(view.Answering(s), " ")
		if asked[holders] {
			continue
		}
		asked[holders] = true
		id := uint64(1)
		for pipeline.ShardOf(id, view.Assignment.Shards()) != s {
			id++
		}
		work.Go(func() {
			if err := reader.Reached(ctx, id, to); err != nil {
				mu.Lock()
				defer mu.Unlock()
				faults = append(faults, err)
			}
		})
	}
	work.Wait()
	return errors.Join(faults...)
}
