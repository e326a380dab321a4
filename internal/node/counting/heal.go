package counting

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
)

// healing is of a shard that has stopped here and is taken again from a node that
// answers for it. The shard is given up, and what comes replaces what is stored. Until it
// has come, the stored copy stays: if the other node goes away first, it is all there is.
// A shard that no other node has stays as it stopped.
type healing struct {
	at    time.Time // when it was given up the last time
	pause time.Duration
	came  bool // it has been held since
}

// done says that the shard is held again, however it came.
func (h *healing) done() {
	if h != nil {
		h.came = true
	}
}

// due says that the shard has not been held since it was given up. nil: it never was.
func (h *healing) due() bool { return h != nil && !h.came }

const (
	// healAgainMin is how long after a shard was taken again it may be taken a second time;
	// then twice as long each time. What stops it may be in the log.
	healAgainMin = time.Minute
	healAgainMax = time.Hour
)

// healLocked has shards given up that have stopped, and for which another node answers.
func (g *Generation) healLocked(view *cluster.View, assigned cluster.ShardSet) {
	h := &g.holdings
	for _, standing := range g.sinks.Standings() {
		s := standing.Shard
		if standing.Err == nil {
			h.heals[s].done()
			continue
		}
		if !assigned.Has(s) || h.mend.Has(s) || h.leaving.Has(s) {
			continue
		}
		from, _ := g.audits.sourcesLocked(s, g.elsewhere(view, s))
		if past := h.heals[s]; len(from) == 0 || past != nil && time.Since(past.at) < past.pause {
			continue
		}
		pause := h.retakeLocked(s)
		h.mend.Add(s)
		g.Lines.Say(slog.LevelWarn, "tidemark: shards that have stopped are taken again from another node", s, standing.Err, "from", from, "again_after", pause)
	}
	if h.mend.Len() > 0 {
		h.wakeLocked()
	}
}

// retake notes that a shard is taken again, and returns after how long it may be taken the
// next time.
func (h *holdings) retake(s pipeline.Shard) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.retakeLocked(s)
}

func (h *holdings) retakeLocked(s pipeline.Shard) time.Duration {
	next := &healing{at: time.Now(), pause: healAgainMin}
	if past := h.heals[s]; past != nil && time.Since(past.at) < 2*healAgainMax {
		next.pause = min(2*past.pause, healAgainMax)
	}
	h.heals[s] = next
	h.healed++
	return next.pause
}

// releaseStopped gives up shards that have stopped. What is stored of them stays.
func (g *Generation) releaseStopped(shards cluster.ShardSet) error {
	for _, standing := range g.sinks.Standings() {
		if shards.Has(standing.Shard) && standing.Err != nil {
			if err := g.sinks.Release(g.ctx, standing.Shard); err != nil {
				return err
			}
		}
	}
	return nil
}

// failedLocked adds shards on their way here that count as failed until they come: stopped
// shards that cannot be taken again yet, and shards that could not be derived.
func (h *holdings) failedLocked(failed *cluster.ShardSet) {
	for s, m := range h.moves {
		if !m.failed.IsZero() && (m.fault != nil || h.heals[s].due()) {
			failed.Add(s)
		}
	}
}

// notHere reports the shards, assigned to this node or held, that have stopped or are on
// their way. alone is about those that no other node answers for; besides is about the
// others, a line each.
func (g *Generation) notHere() (besides string, alone error) {
	if g.sinks == nil || !g.open.Load() {
		return "", nil
	}
	view, standings := g.View(), g.sinks.Standings()
	if view.Assignment.Shards() == 0 && len(standings) == 0 && g.Config.Has(config.RoleAnswer) {
		return "", errors.New("shards: they are assigned to no node: there must be one with the role hold and a weight above 0")
	}
	stopped := make(map[pipeline.Shard]error)
	for _, standing := range standings {
		if standing.Err != nil {
			stopped[standing.Shard] = standing.Err
		}
	}
	var faults []error
	var lines strings.Builder
	waiting, coming, first := 0, 0, pipeline.Shard(0)
	of := 0
	for s := range pipeline.Shard(g.Config.Shards) {
		assigned := view.Assignment.Shards() == g.Config.Shards && slices.Contains(view.Assignment.Holders(s), g.Name)
		err := stopped[s]
		if assigned {
			of++
		}
		switch elsewhere := len(g.elsewhere(view, s)) > 0; {
		case g.sinks.Holds(s):
		case err != nil && !elsewhere:
			faults = append(faults, err)
		case err != nil:
			fmt.Fprintf(&lines, "shard %d has stopped here, and another node answers for it: %v\n", s, err)
		case !assigned:
		case elsewhere:
			coming++
		default:
			if waiting++; waiting == 1 {
				first = s
			}
		}
	}
	if waiting > 0 {
		faults = append(faults, fmt.Errorf("shards: no node answers for %d of the %d that are assigned to this one, among them %d: they are on their way here; 'tidemark shards' shows how far", waiting, of, first))
	}
	if coming > 0 {
		fmt.Fprintf(&lines, "shards: %d of the %d that are assigned to this node are on their way here; other nodes answer for them\n", coming, of)
	}
	return lines.String(), errors.Join(faults...)
}

// figures are how many shards are on their way here, and how often one was taken
// again.
func (h *holdings) figures() (coming int, healed uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.moves), h.healed
}
