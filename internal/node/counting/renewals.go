package counting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/internal/node/led"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// renewals are shards that are no longer trusted. Each is given up and forgotten here, and
// comes again as any shard does that is assigned and not held; but not from nodes whose
// copy is wrong too.
//
//	renew ─► change: Release, Drop ─► arrange: fetched, or derived ─► held
//
// Guarded by holdings.mu.
type renewals struct {
	due   []pipeline.Shard             // to be given up
	wrong map[pipeline.Shard][]string  // nodes that are not asked; until it is held again
	ended map[pipeline.Shard]time.Time // when one was seen to be held again
}

// renew has a shard be taken again, not from some nodes.
func (g *Generation) renew(s pipeline.Shard, wrong []string) {
	h, r := &g.holdings, &g.audits.renewals
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.wrong == nil {
		r.wrong = make(map[pipeline.Shard][]string)
	}
	r.due, r.wrong[s] = append(r.due, s), wrong
	h.wakeLocked()
}

// giveUp gives up and forgets what is due, between two runs of the follower. From before
// its release until nothing of it is stored, a shard is in leaving: this process does not
// say that it has it, and nothing begins from the stored copy, which is being deleted.
func (g *Generation) giveUp() error {
	h, r := &g.holdings, &g.audits.renewals
	held := g.heldNow()
	h.mu.Lock()
	// What is on its way here is not what differed; what still differs is found again.
	passed := slices.DeleteFunc(slices.Clone(r.due), func(s pipeline.Shard) bool {
		return held.Has(s) || h.moves[s] == nil && !h.derived.Has(s)
	})
	due := slices.DeleteFunc(r.due, func(s pipeline.Shard) bool { return slices.Contains(passed, s) })
	r.due = nil
	for _, s := range due {
		h.leaving.Add(s)
	}
	h.mu.Unlock()
	for _, s := range passed {
		g.audits.again(s)
	}
	for i, s := range due {
		err := g.comesAgain(s)
		if err == nil {
			if err = g.forget(s, held.Has(s)); err != nil {
				// This one may be released already: it is leaving still.
				h.mu.Lock()
				r.due = append(r.due, due[i:]...)
				for _, s := range due[i+1:] {
					h.leaving.Remove(s)
				}
				h.mu.Unlock()
				return err
			}
			g.Lines.Say(slog.LevelInfo, "tidemark: shards that differed from the log are given up", s, nil)
		} else {
			g.Lines.Say(slog.LevelError, "tidemark: shards that differ from the log are not given up", s, err)
			g.audits.again(s)
		}
		h.mu.Lock()
		h.leaving.Remove(s)
		if err != nil {
			delete(r.wrong, s)
		}
		h.mu.Unlock()
	}
	if len(due) > 0 {
		h.wakeArrange()
	}
	return nil
}

// givingUp says whether a shard is due to be given up, or is being given up.
func (g *Generation) givingUp(s pipeline.Shard) bool {
	h := &g.holdings
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(g.audits.due, s) || h.leaving.Has(s)
}

// renewedSince says whether a shard is being renewed, or its renewal has ended after then.
func (g *Generation) renewedSince(s pipeline.Shard, then time.Time) bool {
	h, r := &g.holdings, &g.audits.renewals
	h.mu.Lock()
	defer h.mu.Unlock()
	_, renewing := r.wrong[s]
	return renewing || r.ended[s].After(then)
}

// endLocked notes that a shard is held again, or no longer to be held.
func (r *renewals) endLocked(s pipeline.Shard) {
	if _, renewing := r.wrong[s]; !renewing {
		return
	}
	delete(r.wrong, s)
	if r.ended == nil {
		r.ended = make(map[pipeline.Shard]time.Time)
	}
	r.ended[s] = time.Now()
}

func (g *Generation) forget(s pipeline.Shard, held bool) error {
	if held {
		if err := g.sinks.Release(g.ctx, s); err != nil {
			return err
		}
	}
	return g.store.Drop(s)
}

// errOnlyCopy: there is no second copy of what would be forgotten.
var errOnlyCopy = errors.New("no other node has a copy that agrees with the log, and EVENTS lacks its beginning: it cannot be counted again")

// comesAgain returns an error if a shard could not be taken again, or if that is not known:
// no trusted node answers for it, and EVENTS lacks its beginning.
func (g *Generation) comesAgain(s pipeline.Shard) error {
	from := g.elsewhere(g.members.View(), s)
	h := &g.holdings
	h.mu.Lock()
	from, _ = g.audits.sourcesLocked(s, from)
	h.mu.Unlock()
	return g.comesFrom(from)
}

func (g *Generation) comesFrom(nodes []string) error {
	if len(nodes) > 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(g.ctx, led.LookWithin)
	defer cancel()
	events, err := g.streams.State(ctx, jetlog.EventsStream)
	if err != nil {
		return fmt.Errorf("whether it can be counted again is not known: %w", err)
	}
	if first := g.history.Begins(events); first > 1 {
		return fmt.Errorf("%w: it begins with message %d. To have what a backup and the events behind it say: %s", errOnlyCopy, first, g.toRestore(events))
	}
	return nil
}

// sourcesLocked returns from which of some nodes a shard may be taken. alone says that
// there are none although other nodes have it.
func (r *renewals) sourcesLocked(s pipeline.Shard, from []string) (left []string, alone bool) {
	wrong, renewed := r.wrong[s]
	if !renewed {
		return from, false
	}
	left = slices.DeleteFunc(slices.Clone(from), func(node string) bool { return slices.Contains(wrong, node) })
	return left, len(left) == 0
}
