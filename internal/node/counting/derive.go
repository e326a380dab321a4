package counting

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/sinks"
)

// A derivation brings shards that no other node has to where this node is. The shards
// that it holds go on at the same time.
//
//	EVENTS ─► lane ─► node beside ─► DELTAS, until it is as far as this node ─► closed: due
//
// One derivation runs at a time, for all shards that are to be derived: it reads all of
// the log that its lowest shard lacks. After a failure the next one takes fewer shards
// (togetherLocked). Checkpoints stay: the next one goes on from there.
const (
	// derivedNear is how long a derivation may take to come to where this node was:
	// what came in that time, the shards catch up when they are held.
	derivedNear = time.Second
	// deriveLook is how often its progress is looked at.
	deriveLook     = 100 * time.Millisecond
	deriveRetryMin = time.Second
	deriveRetryMax = 5 * time.Minute
	// derivedShareMax is the part of the memory budget that it may have at most.
	derivedShareMax = 0.5
	// wholeWindowsMax bounds the windows in DELTAS, about a second of them, up to which
	// shards may begin with the first one while other shards are further.
	wholeWindowsMax = 1000
)

// deriveLocked begins to derive shards, unless others are being derived.
func (g *Generation) deriveLocked(shards []pipeline.Shard) {
	h := &g.holdings
	if len(shards) == 0 || h.derived.Len() > 0 {
		return
	}
	shards = g.togetherLocked(shards)
	for _, s := range shards {
		m := h.moves[s]
		if m == nil {
			m = &moving{pause: deriveRetryMin / 2, cancel: func() {}}
			h.moves[s] = m
		}
		m.failed, m.loaded, m.needs = time.Time{}, 0, 0
		h.derived.Add(s)
	}
	var ctx context.Context
	ctx, h.stopDerived = context.WithCancel(g.ctx)
	g.work.Go(func() { g.derive(ctx, shards) })
}

// togetherLocked returns which of some shards are derived next: all whose derivation has
// not failed yet, if there are any. Else it returns the furthest ones, half as many after
// each failure: where EVENTS has lost what the lowest shard needs, that shard must not keep
// the others from coming.
func (g *Generation) togetherLocked(shards []pipeline.Shard) []pipeline.Shard {
	faults := func(s pipeline.Shard) int {
		if m := g.holdings.moves[s]; m != nil {
			return m.faults
		}
		return 0
	}
	untried := slices.DeleteFunc(slices.Clone(shards), func(s pipeline.Shard) bool { return faults(s) > 0 })
	if len(untried) > 0 {
		return untried
	}
	at := make(map[pipeline.Shard]pipeline.Position, len(shards))
	for _, s := range shards {
		if state, err := g.store.Stack(s).State(); err == nil {
			at[s] = state.Applied
		}
	}
	shards = slices.Clone(shards)
	slices.SortStableFunc(shards, func(a, b pipeline.Shard) int { return cmp.Compare(at[b], at[a]) })
	return shards[:max(1, len(shards)>>faults(shards[0]))]
}

// derive derives shards. Those that have come are then due to be held.
func (g *Generation) derive(ctx context.Context, shards []pipeline.Shard) {
	h := &g.holdings
	begun := time.Now()
	g.Log.Info("tidemark: shards that no other node has are derived from EVENTS; the others go on meanwhile", "shards", shardSet(shards).String())
	stopped, err := g.bringBeside(ctx, shards)
	wanted := ctx.Err() == nil
	if err != nil && wanted {
		g.Log.Error("tidemark: shards could not be derived from EVENTS; trying again", "shards", shardSet(shards).String(), "error", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopDerived()
	h.derived = cluster.ShardSet{}
	var come []pipeline.Shard
	for _, s := range shards {
		m, fault := h.moves[s], cmp.Or(err, stopped[s])
		switch {
		case m == nil: // it is no longer wanted
		case !wanted: // another one is not: the next derivation goes on with it
			m.failed, m.needs = time.Now().Add(-m.pause), 0
		case fault == nil, g.damaged(s): // the node that holds it reports that it has stopped
			come = append(come, s)
		default:
			m.fault, m.failed, m.loaded, m.needs = fault, time.Now(), 0, 0
			m.foreign = false // another node may have a newer one by now
			m.faults++
			m.pause = min(2*m.pause, deriveRetryMax)
		}
	}
	if len(come) > 0 {
		g.Log.Info("tidemark: shards have been derived", "shards", shardSet(come).String(), "took", time.Since(begun).Round(time.Millisecond))
		h.take = append(h.take, come...)
		h.wakeLocked()
	}
	h.wakeArrange()
}

func shardSet(shards []pipeline.Shard) (set cluster.ShardSet) {
	for _, s := range shards {
		set.Add(s)
	}
	return set
}

// damaged says that what is stored of a shard cannot be read.
func (g *Generation) damaged(s pipeline.Shard) bool {
	_, err := g.store.Stack(s).State()
	return err != nil
}

// bringBeside brings shards to where this node is, from where they are stored, and
// checkpoints them there. stopped are the shards that did not come that far.
func (g *Generation) bringBeside(ctx context.Context, shards []pipeline.Shard) (stopped map[pipeline.Shard]error, err error) {
	held := g.heldNow()
	share := min(derivedShareMax, float64(len(shards))/float64(len(shards)+held.Len()))
	o := g.sinksOptions(shards, g.sequenceMax())
	o.Beside, o.Owners, o.MemoryBytes = true, max(1, o.Owners/2), int(float64(o.MemoryBytes)*share)
	g.sinks.Lend(o.MemoryBytes)
	defer g.sinks.Lend(0)
	beside, err := sinks.NewNode(g.store, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, beside.Close()) }()

	following, stop := context.WithCancel(ctx)
	var fault error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		fault = g.followBeside(following, beside, shards)
	}()
	near := g.untilNear(ctx, beside, shards, ended)
	stop()
	<-ended
	if !near {
		return nil, errors.Join(ctx.Err(), fault, beside.Err())
	}
	stopped = make(map[pipeline.Shard]error)
	for _, s := range beside.Standings() {
		if s.Err != nil {
			stopped[s.Shard] = s.Err
		}
	}
	return stopped, nil
}

// followBeside derives what DELTAS does not hold, then follows that.
func (g *Generation) followBeside(ctx context.Context, beside *sinks.Node, shards []pipeline.Shard) error {
	f := &pipeline.Follower{Guard: g.guard.Beside(beside), Tailer: g.tailer, Lane: g.lane}
	return f.Run(ctx, func(sequence uint64) { g.holdings.need(shards, sequence) })
}

// untilNear returns when a node beside this one has come to where this one was a
// moment ago; false: it will not.
func (g *Generation) untilNear(ctx context.Context, beside *sinks.Node, shards []pipeline.Shard, ended <-chan struct{}) bool {
	look := time.NewTicker(deriveLook)
	defer look.Stop()
	target, since := g.sinks.Applied(), time.Now()
	for {
		switch at := beside.Applied(); {
		case beside.Stopped():
			return false
		case at >= target && time.Since(since) <= derivedNear:
			return true
		case at >= target:
			target, since = g.sinks.Applied(), time.Now()
			continue
		default:
			g.holdings.progress(shards, float64(at)/float64(target))
		}
		select {
		case <-ctx.Done():
			return false
		case <-ended:
			return false
		case <-look.C:
		}
	}
}

// need says after which window of DELTAS shards on their way here go on.
func (h *holdings) need(shards []pipeline.Shard, sequence uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range shards {
		if m := h.moves[s]; m != nil {
			m.needs = sequence
		}
	}
}

// progress says how much of shards on their way here has come.
func (h *holdings) progress(shards []pipeline.Shard, loaded float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range shards {
		if m := h.moves[s]; m != nil {
			m.loaded = loaded
		}
	}
}

// old are the stored shards that DELTAS does not bring on: what they lack has to be
// derived from EVENTS. While DELTAS is empty no shard is old. whole says that DELTAS holds
// all windows that there were, so a shard of which nothing is stored is not old either; and
// that they are few, or nothing else is stored. The second condition is there because
// answers are as old as the shard held that lags most.
func (g *Generation) old() (old cluster.ShardSet, commons, whole bool) {
	first, oldest, err := g.deltas.First(g.ctx)
	if err != nil || oldest == 0 {
		return old, false, false
	}
	lacks := func(s pipeline.Shard) bool {
		state, err := g.store.Stack(s).State()
		return err == nil && g.store.Stack(s).Stored() && state.Applied < first.From
	}
	stored := false
	for i := range g.Config.Shards {
		s := pipeline.Shard(i)
		if lacks(s) {
			old.Add(s)
		}
		stored = stored || g.store.Stack(s).Stored()
	}
	few := g.state.Load().Deltas.Last < oldest+wholeWindowsMax
	return old, lacks(pipeline.Shard(g.Config.Shards)), first.From == 0 && (few || !stored)
}

// late says whether DELTAS does not bring on what is stored of a shard. If the shard was
// held all the same, all shards would wait until what it lacks is derived from EVENTS.
func (g *Generation) late(ctx context.Context, s pipeline.Shard) (bool, error) {
	first, oldest, err := g.deltas.First(ctx)
	if err != nil || oldest == 0 {
		return false, err
	}
	state, err := g.store.Stack(s).State()
	return state.Applied < first.From, err
}

// unwantedLocked says whether a shard that is being derived is not wanted. Then the
// derivation ends, so that the shard can be taken from another node; the next derivation
// goes on with the others.
func (h *holdings) unwantedLocked() bool {
	return h.derived.Len() > 0 && slices.ContainsFunc(slices.Collect(h.derived.All()), func(s pipeline.Shard) bool { return h.moves[s] == nil })
}
