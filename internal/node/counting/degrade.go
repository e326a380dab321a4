package counting

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/internal/kit/figures"
	"github.com/tidemark-io/tidemark/internal/node/led"
	"github.com/tidemark-io/tidemark/internal/node/lookup"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

// The steps that a process shows in its metrics: those that are set by hand
// (cluster.Reads, cluster.Writes), and those that come by themselves.
const (
	readsPartial  = "partial" // a shard has no node that answers for it
	writesDelayed = "delayed" // what is stored is counted later than it should be
)

var (
	readsSteps  = []string{string(cluster.ReadsAll), readsPartial, string(cluster.ReadsMemory), string(cluster.ReadsOff)}
	writesSteps = []string{string(cluster.WritesOn), writesDelayed, string(cluster.WritesRefuse)}
)

// told is what operators have switched off on all nodes (tidemark degrade).
func (g *Generation) told() cluster.Degrade { return g.View().Degrade }

// whenTold calls do with what operators have switched off: at every change, and at least
// once a beat, until the generation closes.
func (g *Generation) whenTold(do func(cluster.Degrade)) {
	for g.ctx.Err() == nil {
		changed := g.members.Changed()
		do(g.told())
		select {
		case <-g.ctx.Done():
		case <-changed:
		case <-time.After(bucket.MemberBeat):
		}
	}
}

// obeyReads keeps reads from the disk while operators say so. Requests look at the other
// steps of reads themselves (refuses).
func (g *Generation) obeyReads() {
	is := cluster.Normal
	g.whenTold(func(told cluster.Degrade) {
		g.sinks.MemoryOnly(told.Reads == cluster.ReadsMemory)
		if told != is {
			g.Log.Warn("tidemark: told what to leave undone", "reads", told.Reads, "writes", told.Writes)
		}
		is = told
	})
}

// obeyWrites has EVENTS refuse events while operators say so.
func (g *Generation) obeyWrites() {
	const part = "degrade"
	is, looked := cluster.WritesOn, time.Time{}
	var log kit.Paced
	g.whenTold(func(told cluster.Degrade) {
		if told.Writes == is && time.Since(looked) < bucket.MemberBeat {
			return
		}
		is, looked = told.Writes, time.Now()
		err := g.letWrite(told.Writes)
		switch {
		case err == nil:
			g.trouble.Clear(part)
		case g.ctx.Err() == nil:
			g.trouble.Set(part, err)
			if log.Due(err.Error()) {
				g.Log.Warn("tidemark: whether events are refused could not be changed; trying again", "error", err)
			}
		}
	})
}

// letWrite has EVENTS take events or refuse them, if this is the process that
// routes.
func (g *Generation) letWrite(writes cluster.Writes) error {
	if !g.router.Stats.Active.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(g.ctx, led.LookWithin)
	defer cancel()
	changed, err := g.streams.RefuseWrites(ctx, writes == cluster.WritesRefuse)
	if changed {
		g.Log.Warn("tidemark: EVENTS is changed as told", "writes", writes)
	}
	return err
}

var (
	errReadsOff = errors.New("reads are off: switched off for all nodes, by hand; 'tidemark degrade reads=all' ends it")
	errNoWrites = errors.New("writes are refused: for all nodes, by hand; 'tidemark degrade writes=on' ends it")
)

// refuses implements service.Options.Refuses.
func (g *Generation) refuses(writes bool) error {
	switch told := g.told(); {
	case writes && told.Writes == cluster.WritesRefuse:
		return errNoWrites
	case !writes && told.Reads == cluster.ReadsOff:
		return errReadsOff
	}
	return nil
}

// unanswered is how many shards have no node that answers for them, of those
// that are assigned. What this one answers for it knows before its next beat says so.
func (g *Generation) unanswered() (none, shards int) {
	return lookup.Heard(g.View(), g.Name).Unanswered(func(s pipeline.Shard) bool { return g.sinks != nil && g.sinks.Holds(s) })
}

// eventsFull says that EVENTS has no room for the largest message. A process that
// only answers does not look.
func (g *Generation) eventsFull() bool {
	looked := g.state.Load()
	if looked == nil {
		return false
	}
	s := looked.Events
	return s.Bytes+uint64(g.NC.MaxPayload()) > uint64(g.Config.NATS.Streams.Events.MaxBytes)
}

// readsStep is the lowest step of the ladder that reads are at, as this process
// knows it.
func (g *Generation) readsStep() string {
	if told := g.told().Reads; told != cluster.ReadsAll {
		return string(told)
	}
	if none, _ := g.unanswered(); none > 0 {
		return readsPartial
	}
	return string(cluster.ReadsAll)
}

// writesStep is the same for writes.
func (g *Generation) writesStep() string {
	if g.told().Writes == cluster.WritesRefuse || g.eventsFull() {
		return string(cluster.WritesRefuse)
	}
	if g.sinks == nil {
		return string(cluster.WritesOn)
	}
	if lag, caught := g.seen.lag(time.Now(), g.sinks.Applied().Sequence()); !caught || lag > g.Config.Ready.Lag {
		return writesDelayed
	}
	return string(cluster.WritesOn)
}

// degraded are the remarks on what is left undone, a line each.
func (g *Generation) degraded() (lines string) {
	switch g.told().Reads {
	case cluster.ReadsOff:
		lines += fmt.Sprintln(errReadsOff)
	case cluster.ReadsMemory:
		lines += "reads are from memory only: for all nodes, by hand; what is only on disk is missing from answers; 'tidemark degrade reads=all' ends it\n"
	}
	if none, shards := g.unanswered(); none > 0 {
		lines += fmt.Sprintf("reads are partial: no node answers for %d of %d shards; 'tidemark shards' shows which\n", none, shards)
	}
	switch {
	case g.told().Writes == cluster.WritesRefuse:
		lines += fmt.Sprintln(errNoWrites)
	case g.eventsFull():
		lines += "writes are refused: EVENTS is full; give it room (docs/failures.md, Failures)\n"
	}
	return lines
}

// ladderFigures are the steps of the ladder.
func (g *Generation) ladderFigures(c *figures.Collector) {
	c.Steps("reads_step", "1 for the step of the degradation ladder that reads are at: all; partial: a shard has no node that answers; memory, off: by hand.", readsSteps, g.readsStep)
	c.Steps("writes_step", "1 for the step that writes are at, as far as this process looks at them: on; delayed: by more than ready.lag; refuse: by hand, or EVENTS is full.", writesSteps, g.writesStep)
}
