package node

import (
	"context"
	"errors"
	"time"

	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// keepEvery paces housekeeping.
const keepEvery = time.Second

// keep looks at the streams, recreates what was deleted of them, reports this node's checkpoint, and lets the
// router purge DELTAS below the lowest of all nodes'.
func (n *generation) keep() {
	ticker := time.NewTicker(keepEvery)
	defer ticker.Stop()
	var last time.Time
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-ticker.C:
		}
		if n.routed() {
			n.trouble.clear("route")
		}
		if err := n.keepOnce(&last); err != nil && n.ctx.Err() == nil {
			n.trouble.set("keep", err)
			n.log.Warn("tidemark: housekeeping failed; trying again", "error", err)
		} else {
			n.trouble.clear("keep")
		}
	}
}

// reportEvery is how often this node's checkpoint is reported, moving or not:
// a node that is silent for node_expiry is taken for gone.
const reportEvery = 5 * time.Second

// silenceUnderPressure is what node_expiry comes down to when DELTAS is half full.
const silenceUnderPressure = time.Minute

func (n *generation) keepOnce(reported *time.Time) error {
	ctx, cancel := context.WithTimeout(n.ctx, lookWithin)
	defer cancel()
	if err := n.streams.Restore(ctx); err != nil {
		return err
	}
	if err := n.observeAgain(ctx); err != nil {
		return err
	}
	n.seen.see(time.Now(), n.state.Load().Events.Last, n.sinks.Applied().Sequence())
	checkpointed := n.needs()
	if time.Since(*reported) < reportEvery && !n.nearlyFull() && checkpointed >= n.reported {
		return nil
	}
	err := n.reports.Report(ctx, n.name, checkpointed)
	if err == nil {
		*reported, n.reported = time.Now(), checkpointed
	}
	if n.router.Stats.Active.Load() {
		err = errors.Join(err, n.purge(ctx, checkpointed), n.tidy(ctx))
	}
	return err
}

// purge takes from DELTAS what no node needs.
func (n *generation) purge(ctx context.Context, checkpointed uint64) error {
	silence := n.config.NodeExpiry
	if n.pressed() {
		silence = min(silence, silenceUnderPressure)
	}
	below, err := n.reports.Lowest(ctx, silence)
	if n.nearlyFull() {
		if below < checkpointed {
			n.tellOverruled(below, checkpointed, err)
		}
		below, err = checkpointed, nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(n.ctx, startWithin)
	defer cancel()
	return n.deltas.Purge(ctx, below)
}

// overruledEvery paces what the log has of reports that were not heeded.
const overruledEvery = time.Minute

func (n *generation) tellOverruled(reported, checkpointed uint64, err error) {
	if time.Since(n.overruled) < overruledEvery {
		return
	}
	n.overruled = time.Now()
	n.log.Warn("tidemark: DELTAS is nearly full and reports of nodes hold its purge back: it is purged below this node's own checkpoint; nodes that need more derive it from EVENTS",
		"reported", reported, "error", err, "checkpoint", checkpointed,
		"remedy", "look at the keys node.* of the bucket "+jetlog.Bucket+": delete those that are no node's, and deny others $KV."+jetlog.Bucket+".> (docs/security.md, Who may do what)")
}

// pressed says that DELTAS is half full. From then on nodes that are away and
// shards that have stopped no longer hold it back: it must not fill up for
// all, and they can derive what they missed from EVENTS.
func (n *generation) pressed() bool {
	return n.state.Load().Deltas.Bytes > uint64(n.config.NATS.Streams.Deltas.MaxBytes)/2
}

// nearlyFull says that DELTAS has room for an eighth, or one window. From then
// on nobody's report holds it back: anybody may have written it who reaches the
// bucket, and with a log that is full nothing is counted any more.
func (n *generation) nearlyFull() bool {
	limit := uint64(n.config.NATS.Streams.Deltas.MaxBytes)
	return n.state.Load().Deltas.Bytes+max(limit/8, uint64(n.config.Windows.Bytes)) > limit
}
