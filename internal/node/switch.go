package node

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/internal/node/counting"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/spread"
)

// isLost says that a generation cannot go on.
func isLost(g *counting.Generation) bool {
	select {
	case <-g.Lost():
		return true
	default:
		return false
	}
}

// maySwitch says whether this node may answer by another generation at once: what it
// has of that is as new as it should be. Where the one that serves is gone from the
// record, nothing is as good.
func (n *Node) maySwitch(from, to *counting.Generation) bool {
	if isLost(to) {
		return false
	}
	set := n.rebuilds.set()
	if _, named := set.All[from.Number]; !named {
		return true
	}
	return to.UpToDate()
}

const (
	// catchUpWithin bounds how long requests wait, at a switch, until the generation
	// that comes to serve is as far as the one before was: usually milliseconds.
	catchUpWithin = 2 * time.Second
	// drainBefore bounds how long they wait for those that the one before answers.
	drainBefore = 250 * time.Millisecond
)

// switchTo switches answers to another generation. No request is lost, and no number goes
// back, but where EVENTS has lost what was counted. Requests that come during the switch wait
// until that generation is as far as any holder of the one before can have been. If it cannot
// begin to answer, nothing has changed, and the switch is tried again.
//
//	before ──► answers ──────────────► drained ─► closed with its generation
//	to         ─► answers, requests wait ─► as far as before ─► answered
func (n *Node) switchTo(ctx context.Context, to *counting.Generation) (switched bool) {
	before := n.Serving()
	begun := time.Now()
	if n.serves() {
		if err := n.answerAfter(ctx, before, to, nil, before.RoutedUpTo); err != nil {
			n.openFailed(fmt.Errorf("generation %d does not come to serve: %w", to.Number, err))
			return false
		}
	}
	n.rebuilds.pause, n.rebuilds.failed = 0, time.Time{}
	n.rebuilds.trouble.Clear(rebuildPart)
	n.serving.Store(to)
	n.rebuilds.beside.Store(before)
	if isLost(to) {
		n.fail(fmt.Errorf("generation %d, which has come to serve, cannot go on", to.Number))
	}
	before.EndServing()
	before.SetMemory(n.config.ShardBytesSecond())
	to.SetMemory(n.config.ShardBytesBeside())
	to.BeginServing()
	n.log.Info("tidemark: another generation serves", "generation", to.Number, "before", before.Number, "took", time.Since(begun).Round(time.Millisecond))
	return true
}

// answerAfter has everybody be answered by another generation, from when it is as far
// as the one before. upTo is how far any holder of that can be.
func (n *Node) answerAfter(ctx context.Context, before, to *counting.Generation, counted *spread.Counted, upTo func(context.Context) (pipeline.Position, error)) error {
	gate := make(chan struct{})
	defer close(gate)
	old, err := n.answer(to, counted, func() error {
		<-gate
		return nil
	})
	if err != nil {
		return err
	}
	drained := before.InWork(func() { n.stopAnswers(old) })
	select {
	case <-drained:
	case <-time.After(drainBefore):
	}
	ctx, cancel := context.WithTimeout(ctx, catchUpWithin)
	defer cancel()
	target, err := upTo(ctx)
	if err == nil {
		err = to.Reach(ctx, n.answers.Load().Reader, target)
	}
	if err != nil && n.ctx.Err() == nil {
		n.log.Warn("tidemark: not all of the generation that comes to serve is known to be as far as the one before", "error", err)
	}
	return nil
}
