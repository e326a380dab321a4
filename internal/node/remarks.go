package node

import (
	"fmt"
	"time"
)

// purged says that a part of EVENTS is gone. It keeps nobody from counting and
// answering: what is counted stands.
func (g *generation) purged() string {
	lost := g.front.gone()
	if lost == 0 {
		return ""
	}
	return fmt.Sprintf("events: EVENTS has lost its beginning, %d messages, and neither by max_age nor by a trim; it begins at message %d. Counts stand and cannot be counted again\n",
		lost, g.state.Load().Events.First)
}

// logTimeAhead is by how much log time may be ahead of this node's clock before
// /readyz says so.
const logTimeAhead = time.Minute

// aheadOfTime says that a NATS server has stamped an event in the future.
func (g *generation) aheadOfTime() string {
	if g.sinks == nil {
		return ""
	}
	return aheadOfTime(time.Unix(g.sinks.LogTime(), 0), time.Now())
}

func aheadOfTime(log, now time.Time) string {
	ahead := log.Sub(now)
	if ahead < logTimeAhead {
		return ""
	}
	return fmt.Sprintf("events: log time is %s ahead of this node's clock: a NATS server has stamped an event with %s. "+
		"What is older than feed.retention or inactive_after by that time is left out (docs/failures.md)\n",
		ahead.Round(time.Second), log.UTC().Format(time.RFC3339))
}

// warming says how far the loading of what is on disk has come, while it goes on.
func (g *generation) warming() string {
	if g.sinks == nil {
		return ""
	}
	loaded, all := g.sinks.Warmth()
	if loaded == all {
		return ""
	}
	return fmt.Sprintf("warming: %d of %d shards are loaded, the others are answered from disk\n", loaded, all)
}

// lags says that too many events are not applied yet.
func (g *generation) lags() error {
	applied := g.sinks.Applied().Sequence()
	last := g.state.Load().Events.Last
	lag, caught := g.seen.lag(time.Now(), applied)
	switch bound := g.config.Ready.Lag; {
	case !caught:
		return fmt.Errorf("catching up after the start: message %d of %d applied", applied, last)
	case lag > bound:
		return fmt.Errorf("%.1f s behind the newest event, %s allowed: message %d of %d applied", lag.Seconds(), bound, applied, last)
	}
	return nil
}
