package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
)

// The steps that a process tells in its metrics: those that are set by hand
// (cluster.Reads, cluster.Writes), and those that come by themselves.
const (
	readsPartial  = "partial" // a shard has no node that answers for it
	writesDelayed = "delayed" // what is stored is counted later than it should be
)

var (
	readsSteps  = []string{string(cluster.ReadsAll), readsPartial, string(cluster.ReadsMemory), string(cluster.ReadsOff)}
	writesSteps = []string{string(cluster.WritesOn), writesDelayed, string(cluster.WritesRefuse)}
)

// told is what people have told all nodes to leave undone.
func (n *generation) told() cluster.Degrade { return n.view().Degrade }

// whenTold does something with what people have told, at every change and at
// least once a beat, until the node closes.
func (n *generation) whenTold(do func(cluster.Degrade)) {
	for n.ctx.Err() == nil {
		changed := n.members.Changed()
		do(n.told())
		select {
		case <-n.ctx.Done():
		case <-changed:
		case <-time.After(memberBeat):
		}
	}
}

// obeyReads has reads leave what is on disk, when told. What else is told of reads,
// requests look at themselves (refuses).
func (n *generation) obeyReads() {
	is := cluster.Normal
	n.whenTold(func(told cluster.Degrade) {
		n.sinks.MemoryOnly(told.Reads == cluster.ReadsMemory)
		if told != is {
			n.log.Warn("tidemark: told what to leave undone", "reads", told.Reads, "writes", told.Writes)
		}
		is = told
	})
}

// obeyWrites has events be refused, when told.
func (n *generation) obeyWrites() {
	const part = "degrade"
	is, looked := cluster.WritesOn, time.Time{}
	var log paced
	n.whenTold(func(told cluster.Degrade) {
		if told.Writes == is && time.Since(looked) < memberBeat {
			return
		}
		is, looked = told.Writes, time.Now()
		err := n.letWrite(told.Writes)
		switch {
		case err == nil:
			n.trouble.clear(part)
		case n.ctx.Err() == nil:
			n.trouble.set(part, err)
			if log.tell(err.Error()) {
				n.log.Warn("tidemark: whether events are refused could not be changed; trying again", "error", err)
			}
		}
	})
}

// letWrite has EVENTS take events or refuse them, if this is the process that
// routes.
func (n *generation) letWrite(writes cluster.Writes) error {
	if !n.router.Stats.Active.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(n.ctx, lookWithin)
	defer cancel()
	changed, err := n.streams.RefuseWrites(ctx, writes == cluster.WritesRefuse)
	if changed {
		n.log.Warn("tidemark: EVENTS is changed as told", "writes", writes)
	}
	return err
}

var (
	errReadsOff = errors.New("reads are off: switched off for all nodes, by hand; 'tidemark degrade reads=all' ends it")
	errNoWrites = errors.New("writes are refused: for all nodes, by hand; 'tidemark degrade writes=on' ends it")
)

// refuses implements query.Options.Refuses.
func (n *generation) refuses(writes bool) error {
	switch told := n.told(); {
	case writes && told.Writes == cluster.WritesRefuse:
		return errNoWrites
	case !writes && told.Reads == cluster.ReadsOff:
		return errReadsOff
	}
	return nil
}

// unanswered is how many shards have no node that answers for them, of those
// that are assigned. What this one answers for it knows before its next beat says so.
func (n *generation) unanswered() (none, shards int) {
	view := n.view()
	shards = view.Assignment.Shards()
	for s := range pipeline.Shard(shards) {
		if len(view.Answering(s)) == 0 && (n.sinks == nil || !n.sinks.Holds(s)) {
			none++
		}
	}
	return none, shards
}

// eventsFull says that EVENTS has no room for the largest message. A process that
// only answers does not look.
func (n *generation) eventsFull() bool {
	looked := n.state.Load()
	if looked == nil {
		return false
	}
	s := looked.Events
	return s.Bytes+uint64(n.nc.MaxPayload()) > uint64(n.config.NATS.Streams.Events.MaxBytes)
}

// readsStep is the lowest step of the ladder that reads are at, as this process
// knows it.
func (n *generation) readsStep() string {
	if told := n.told().Reads; told != cluster.ReadsAll {
		return string(told)
	}
	if none, _ := n.unanswered(); none > 0 {
		return readsPartial
	}
	return string(cluster.ReadsAll)
}

// writesStep is the same for writes.
func (n *generation) writesStep() string {
	if n.told().Writes == cluster.WritesRefuse || n.eventsFull() {
		return string(cluster.WritesRefuse)
	}
	if n.sinks == nil {
		return string(cluster.WritesOn)
	}
	if lag, caught := n.seen.lag(time.Now(), n.sinks.Applied().Sequence()); !caught || lag > n.config.Ready.Lag {
		return writesDelayed
	}
	return string(cluster.WritesOn)
}

// degraded are the remarks on what is left undone, a line each.
func (n *generation) degraded() (lines string) {
	switch n.told().Reads {
	case cluster.ReadsOff:
		lines += fmt.Sprintln(errReadsOff)
	case cluster.ReadsMemory:
		lines += "reads are from memory only: for all nodes, by hand; what is only on disk is missing from answers; 'tidemark degrade reads=all' ends it\n"
	}
	if none, shards := n.unanswered(); none > 0 {
		lines += fmt.Sprintf("reads are partial: no node answers for %d of %d shards; 'tidemark shards' shows which\n", none, shards)
	}
	switch {
	case n.told().Writes == cluster.WritesRefuse:
		lines += fmt.Sprintln(errNoWrites)
	case n.eventsFull():
		lines += "writes are refused: EVENTS is full; give it room (docs/failures.md, Failures)\n"
	}
	return lines
}

// steps adds a figure that is 1 for the step that is, 0 for all others.
func (c *collector) steps(name, help string, all []string, is func() string) {
	c.add(prometheus.GaugeValue, name, help, []string{"step"}, func(emit func(float64, ...string)) {
		now := is()
		for _, step := range all {
			value := 0.0
			if step == now {
				value = 1
			}
			emit(value, step)
		}
	})
}

// ladderFigures are the steps of the ladder.
func (n *generation) ladderFigures(c *collector) {
	c.steps("reads_step", "1 for the step of the degradation ladder that reads are at: all; partial: a shard has no node that answers; memory, off: by hand.", readsSteps, n.readsStep)
	c.steps("writes_step", "1 for the step that writes are at, as far as this process looks at them: on; delayed: by more than ready.lag; refuse: by hand, or EVENTS is full.", writesSteps, n.writesStep)
}
