package counting

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

// Remarks are what a process that is ready has to say of the generation, a line each. also
// is what the process says of its server, which comes after what is said of shards and
// EVENTS.
func (g *Generation) Remarks(also string) string {
	besides, _ := g.notHere()
	return g.warming() + g.unheard() + besides + g.purged() + g.eventsDamaged() + g.aheadOfTime() + also + g.degraded() + g.lagging() + g.differing()
}

// unready is why what is held here cannot answer as it should.
func (g *Generation) unready() []error {
	if g.sinks == nil {
		return nil
	}
	_, alone := g.notHere()
	return []error{g.sinks.CommonsErr(), alone, g.sinks.CheckpointErr(), g.lags(), g.streams.WriteFault(g.Config.Freshness)}
}

// Ready is nil if it answers as it should. first and others are what is wrong with the
// process: before and after the troubles of the generation.
func (g *Generation) Ready(first error, others ...error) error {
	faults := append([]error{first, g.Wrong()}, others...)
	err := errors.Join(append(faults, g.unready()...)...)
	if why := strings.TrimSuffix(g.unheard(), "\n"); err != nil && why != "" {
		return errors.Join(errors.New(why), err) // the reason of the others, as a rule; alone it is a remark
	}
	return err
}

// WrongBeside is what is wrong with it while another generation serves.
func (g *Generation) WrongBeside() error {
	_, alone := g.notHere()
	return errors.Join(g.trouble.Err(), alone)
}

// silent is for how long nothing has been heard of any node, this one included; 0
// while that is no longer than one node may be silent. The roster takes no node for away
// then: that nothing is heard says nothing about the others.
func (g *Generation) silent() time.Duration {
	if silent := g.unheardFor(); silent > bucket.MemberExpiry {
		return silent
	}
	return 0
}

// unheard says so.
func (g *Generation) unheard() string {
	silent := g.silent()
	if silent == 0 {
		return g.unstored()
	}
	return fmt.Sprintf("nodes: for %d s nothing has been heard of any of them, this one included: it is cut off, or JetStream has no leader because most of the NATS servers are gone\n", int(silent.Seconds()))
}

// unstored says that the others do not hear of this node, and why.
func (g *Generation) unstored() string {
	members := g.watched.Load()
	if members == nil {
		return ""
	}
	since, why := members.Unheard()
	if since < bucket.MemberExpiry {
		return ""
	}
	return fmt.Sprintf("nodes: for %d s the others have heard nothing of this one, and take it to be away: %v\n", int(since.Seconds()), why)
}

// eventsDamaged names what disks have lost of EVENTS. What is counted stands.
func (g *Generation) eventsDamaged() string {
	damaged := g.SeenEvents().Damaged
	if len(damaged) == 0 {
		return ""
	}
	return fmt.Sprintf("events: EVENTS is damaged, it lacks %v: what is counted stands; it is not compared with EVENTS and not counted again from it\n", damaged)
}

// purged says that a part of EVENTS is gone. It keeps nobody from counting and
// answering: what is counted stands.
func (g *Generation) purged() string {
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
func (g *Generation) aheadOfTime() string {
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
func (g *Generation) warming() string {
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
func (g *Generation) lags() error {
	applied := g.sinks.Applied().Sequence()
	last := g.state.Load().Events.Last
	lag, caught := g.seen.lag(time.Now(), applied)
	switch bound := g.Config.Ready.Lag; {
	case !caught:
		return fmt.Errorf("catching up after the start: message %d of %d applied", applied, last)
	case lag > bound:
		return fmt.Errorf("%.1f s behind the newest event, %s allowed: message %d of %d applied", lag.Seconds(), bound, applied, last)
	}
	return nil
}
