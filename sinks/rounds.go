package sinks

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/sinks/cold"
)

// round is an owner's checkpoints. In a round every shard that has moved is handed over
// once, in the owner's goroutine, and committed in another; windows go on being
// applied.
//
//	tick ─► begin ─► left ─► handOver ─► commit ─► committed ─► settle
//	                      ▲ pace, or at once in a hurry
//
// A commit is of a shard's run, or of those of a few with little to write: each is a
// file and a transaction, and both are synced. A round takes most of an interval: all
// shards at once would take the processors and the disk from requests that wait
// (decision 0014). A shard whose runs wait to be merged is left to a later round.
type round struct {
	order     []unit       // in which rounds go through the units
	left      []unit       // still to be handed over in this one
	flying    []*commit    // under way
	committed chan *commit // they report here
	pace      *time.Ticker // the next ones may be handed over
	hurry     bool         // what is left waits for nothing but the disk
	rows      int          // that make a commit large enough
	err       error        // of this round, or else of the last
	failedAt  time.Time    // when it failed, if it did
	told      time.Time    // when the log last had that checkpoints fail; zero: they do not
}

const (
	// commitsMax is how many commits of an owner are under way at once:
	// while one is written, the next is made.
	commitsMax = 2
	// commitRows is how many rows make a commit large enough: below, its syncs
	// would cost more than its rows.
	commitRows = 1024
	// roundPart is the part of an interval that a round in no hurry takes.
	roundPart = 0.75
)

func newRound(units []unit, o Options) round {
	r := round{order: slices.Clone(units), committed: make(chan *commit, commitsMax), rows: cmp.Or(o.CommitRows, commitRows)}
	r.pace = time.NewTicker(o.CheckpointEvery)
	r.pace.Stop()
	return r
}

// commit is one under way.
type commit struct {
	units []unit
	rows  int
	err   error
}

// tellEvery paces what the log has of a trouble that goes on.
const tellEvery = 10 * time.Second

// checkpointRetry paces checkpoints that fail while nothing more may be taken.
const checkpointRetry = time.Second

// mergeWait paces looking whether runs have been merged, while nothing else
// makes room.
const mergeWait = 10 * time.Millisecond

// checkpointWhile checkpoints until no shard is full.
func (o *owner) checkpointWhile(full func(unit) bool) {
	isFull := func(u unit) bool { return u.Err() == nil && full(u) }
	for slices.ContainsFunc(o.units, isFull) {
		if !o.busy() {
			if o.err != nil {
				if o.node.stopping.Load() {
					return
				}
				time.Sleep(checkpointRetry)
			}
			if o.begin(); !slices.ContainsFunc(o.left, isFull) { // their runs wait to be merged
				if o.left = nil; o.node.stopping.Load() {
					return
				}
				time.Sleep(mergeWait)
				continue
			}
		}
		o.left = append(slices.DeleteFunc(slices.Clone(o.left), func(u unit) bool { return !isFull(u) }),
			slices.DeleteFunc(o.left, isFull)...) // they first
		o.wait()
	}
}

// busy says whether a round goes on.
func (o *owner) busy() bool { return len(o.flying) > 0 || len(o.left) > 0 }

// checkpoint is a round in no hurry. None must go on.
func (o *owner) checkpoint() {
	if o.begin(); len(o.left) > 0 {
		o.pace.Reset(time.Duration(float64(o.node.o.CheckpointEvery) * roundPart / float64(len(o.left))))
		o.proceed(true)
	}
}

// begin lists what a round has to hand over. None must go on. The last round
// leaves out nobody: what starts again merges.
func (o *owner) begin() {
	o.err, o.hurry = nil, false
	for _, u := range o.order {
		if u.Moved() && u.Err() == nil && (!u.Full() || o.node.stopping.Load()) {
			o.left = append(o.left, u)
		}
	}
}

// proceed starts the next commit of the round if it may, in a hurry as many as
// may be under way.
func (o *owner) proceed(start bool) {
	// What has stopped since the round began may have done so amid a window (I4).
	o.left = slices.DeleteFunc(o.left, func(u unit) bool { return u.Err() != nil })
	for start && len(o.left) > 0 && len(o.flying) < commitsMax {
		c := o.handOver()
		o.flying = append(o.flying, c)
		go o.commit(c)
		start = o.hurry
	}
	if len(o.left) == 0 {
		o.pace.Stop()
	}
	if !o.busy() {
		o.endRound()
	}
}

// hasten has the round wait for nothing but the disk from now on.
func (o *owner) hasten() {
	if !o.hurry {
		o.hurry = true
		o.node.Stats.CheckpointsForced.Add(1)
	}
	o.proceed(true)
}

// wait hastens the round and takes in one commit, unless all that was left has
// stopped.
func (o *owner) wait() {
	if o.hasten(); len(o.flying) > 0 {
		o.settle(<-o.committed)
	}
}

// handOver takes the next shards of the round, as many as make a commit.
func (o *owner) handOver() *commit {
	c := new(commit)
	for len(o.left) > 0 && c.rows < o.rows {
		u := o.left[0]
		c.rows += u.Dirty() + 1 // the state
		o.node.o.Turn(u.HandOver)
		c.units, o.left = append(c.units, u), o.left[1:]
	}
	return c
}

// commit writes what was handed over.
func (o *owner) commit(c *commit) {
	begun := time.Now()
	checkpoint := o.node.store.Begin()
	o.node.o.Turn(func() {
		for _, u := range c.units {
			u.Write(checkpoint)
		}
	})
	o.node.o.Disk(func() { c.err = checkpoint.Commit() })
	o.node.Stats.CheckpointNanos.Add(uint64(time.Since(begun)))
	o.committed <- c
}

// settle takes in what became of a commit. After one that failed the round
// ends with those under way, and the next ones come to its units last.
func (o *owner) settle(c *commit) {
	o.flying = slices.DeleteFunc(o.flying, func(other *commit) bool { return other == c })
	for _, u := range c.units {
		o.node.o.Turn(func() { u.Settle(c.err == nil) })
		u.SetHorizon(o.node.clock.Horizon(u.Kept(), o.node.o.Users.Retention))
	}
	stats := &o.node.Stats
	if c.err != nil {
		o.err, o.failedAt, o.left = c.err, time.Now(), nil
		o.order = append(slices.DeleteFunc(o.order, func(u unit) bool { return slices.Contains(c.units, u) }), c.units...)
		o.node.checkpointErr.Store(&c.err)
		stats.CheckpointErrors.Add(1)
		if errors.Is(c.err, cold.ErrCorrupt) {
			o.stopDamaged(c.units)
		}
		if time.Since(o.told) > tellEvery {
			o.told = time.Now()
			o.node.o.Logger.Error("sinks: checkpoints fail; their rows stay dirty and are tried again", "rows", c.rows, "error", c.err)
		}
	} else {
		stats.Checkpoints.Add(1)
		stats.CheckpointRows.Add(uint64(c.rows))
		stats.LastCheckpoint.Store(time.Now().UnixMilli())
		o.noteDurable()
	}
	o.shed()
	o.proceed(o.hurry)
}

// stopDamaged stops those of a commit's units of which the store has found out
// that they are damaged, in a merge say. The others' changes would never be
// committed beside theirs.
func (o *owner) stopDamaged(units []unit) {
	for _, u := range units {
		if _, err := o.node.store.Stack(u.Section()).State(); err != nil && u.Err() == nil {
			u.Fail(err)
			o.node.o.Logger.Error("sinks: stopped; the others go on", "what", u.Name(), "error", err)
		}
	}
	o.observe()
	o.noteDurable()
}

// endRound reports how it went.
func (o *owner) endRound() {
	if o.err != nil {
		return
	}
	o.node.checkpointErr.Store(nil)
	if !o.told.IsZero() {
		o.told = time.Time{}
		o.node.o.Logger.Info("sinks: checkpoints succeed again")
	}
}

// finish checkpoints the last time. It tries each shard's rows once.
func (o *owner) finish() {
	o.drain()
	for {
		if o.begin(); !o.busy() {
			return
		}
		if o.drain(); o.err != nil {
			return
		}
	}
}

// drain ends the round.
func (o *owner) drain() {
	for o.busy() {
		o.wait()
	}
}
