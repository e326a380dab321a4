package counting

import (
	"context"
	"errors"
	"time"

	"github.com/tidemark-io/tidemark/internal/node/led"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// keepEvery paces housekeeping.
const keepEvery = time.Second

// keep looks at the streams, recreates what was deleted of them, reports this node's checkpoint, and lets the
// router purge DELTAS below the lowest of all nodes'.
func (g *Generation) keep() {
	ticker := time.NewTicker(keepEvery)
	defer ticker.Stop()
	var last time.Time
	for {
		select {
		case <-g.ctx.Done():
			return
		case <-ticker.C:
		}
		if g.routed() {
			g.trouble.Clear("route")
		}
		if err := g.keepOnce(&last); err != nil && g.ctx.Err() == nil {
			g.trouble.Set("keep", err)
			g.Log.Warn("tidemark: housekeeping failed; trying again", "error", err)
		} else {
			g.trouble.Clear("keep")
		}
	}
}

// reportEvery is how often this node's checkpoint is reported, moving or not:
// a node that is silent for node_expiry is taken for gone.
const reportEvery = 5 * time.Second

// silenceUnderPressure is what node_expiry comes down to when DELTAS is half full.
const silenceUnderPressure = time.Minute

func (g *Generation) keepOnce(reported *time.Time) error {
	ctx, cancel := context.WithTimeout(g.ctx, led.LookWithin)
	defer cancel()
	if err := g.streams.Restore(ctx); err != nil {
		return err
	}
	if err := g.observeAgain(ctx); err != nil {
		return err
	}
	g.seen.see(time.Now(), g.state.Load().Events.Last, g.sinks.Applied().Sequence())
	checkpointed := g.needs()
	if time.Since(*reported) < reportEvery && !g.nearlyFull() && checkpointed >= g.reported {
		return nil
	}
	err := g.reports.Report(ctx, g.Name, checkpointed)
	if err == nil {
		*reported, g.reported = time.Now(), checkpointed
	}
	if g.router.Stats.Active.Load() {
		err = errors.Join(err, g.purge(ctx, checkpointed), g.tidy(ctx))
	}
	return err
}

// purge takes from DELTAS what no node needs.
func (g *Generation) purge(ctx context.Context, checkpointed uint64) error {
	silence := g.Config.NodeExpiry
	if g.pressed() {
		silence = min(silence, silenceUnderPressure)
	}
	below, err := g.reports.Lowest(ctx, silence)
	if g.nearlyFull() {
		if below < checkpointed {
			g.tellOverruled(below, checkpointed, err)
		}
		below, err = checkpointed, nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(g.ctx, led.StartWithin)
	defer cancel()
	return g.deltas.Purge(ctx, below)
}

// overruledEvery paces what the log has of reports that were not heeded.
const overruledEvery = time.Minute

func (g *Generation) tellOverruled(reported, checkpointed uint64, err error) {
	if time.Since(g.overruled) < overruledEvery {
		return
	}
	g.overruled = time.Now()
	g.Log.Warn("tidemark: DELTAS is nearly full and reports of nodes hold its purge back: it is purged below this node's own checkpoint; nodes that need more derive it from EVENTS",
		"reported", reported, "error", err, "checkpoint", checkpointed,
		"remedy", "look at the keys node.* of the bucket "+jetlog.Bucket+": delete those that are no node's")
}

// pressed says that DELTAS is half full. From then on nodes that are away and
// shards that have stopped no longer hold it back: it must not fill up for
// all, and they can derive what they missed from EVENTS.
func (g *Generation) pressed() bool {
	return g.state.Load().Deltas.Bytes > uint64(g.Config.NATS.Streams.Deltas.MaxBytes)/2
}

// nearlyFull says that DELTAS has room for less than an eighth of its size, or for
// less than one window. From then on no report holds the purge back: while the log is full
// nothing is counted, and a node that lags can derive from EVENTS.
func (g *Generation) nearlyFull() bool {
	limit := uint64(g.Config.NATS.Streams.Deltas.MaxBytes)
	return g.state.Load().Deltas.Bytes+max(limit/8, uint64(g.Config.Windows.Bytes)) > limit
}
