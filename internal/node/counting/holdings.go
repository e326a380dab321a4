package counting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/move"
)

// holdings are the shards on their way to this process and away from it.
//
//	assigned ─► fetch: runs of a node that has it ─► due ─► Hold ─► follow ─► ready
//	  ▲ └─► nobody has it: derived beside (derive.go) ─┘                        │
//	  └── Release, it stays stored ◄── a node has it (heal.go) ◄── stopped ◄────┘
//	not assigned, and all it is assigned to answer for it (View.LetGo) ─► leaving ─► Release
//	  ─► stored, in case of need (spare.go) ─► Drop
//
// What is held changes between two runs of the follower. A goroutine that has something
// due interrupts it.
type holdings struct {
	mu        sync.Mutex
	moves     map[pipeline.Shard]*moving // on their way here
	take      []pipeline.Shard           // due to be held
	leaving   cluster.ShardSet           // being given up: this process does not say that it has them
	interrupt context.CancelCauseFunc    // of the follower; nil: it does not run

	derived     cluster.ShardSet // are being derived: nothing else may use what is stored of them
	stopDerived context.CancelFunc

	mend  cluster.ShardSet            // stopped, and to be taken again
	heals map[pipeline.Shard]*healing // of those that were

	spares map[pipeline.Shard]*spare // stored, and neither held nor assigned here
	given  uint64                    // times that a shard was given up
	healed uint64                    // times that a stopped shard was taken again

	changed chan struct{} // room for one: something is held or given up
}

func newHoldings() holdings {
	return holdings{
		moves: make(map[pipeline.Shard]*moving), heals: make(map[pipeline.Shard]*healing),
		spares: make(map[pipeline.Shard]*spare), changed: make(chan struct{}, 1),
	}
}

// moving is a shard on its way here.
type moving struct {
	loaded  float64 // 0 to 1
	needs   uint64  // the window of DELTAS that it goes on after; 0: none, or it is not known yet
	cancel  context.CancelFunc
	failed  time.Time // when it failed to come; zero: it is under way, or due
	foreign bool      // no copy of another node can be taken: it is derived
	fault   error     // why it could not be derived; nil: that was not tried
	faults  int       // derivations of it that failed
	pause   time.Duration
}

const (
	fetchRetryMin = time.Second
	fetchRetryMax = 30 * time.Second
)

// errHoldings interrupts the follower.
var errHoldings = errors.New("what is held changes")

// loadedLocked is how much of each shard on its way has come. It leaves out shards of
// which nothing has come: when all shards are derived, they would be most of what a member
// says.
func (h *holdings) loadedLocked() map[pipeline.Shard]float64 {
	out := make(map[pipeline.Shard]float64)
	for s, m := range h.moves {
		if m.loaded > 0 {
			out[s] = math.Floor(m.loaded*100) / 100
		}
	}
	return out
}

// come says that a shard has come, unless it is no longer wanted.
func (h *holdings) come(s pipeline.Shard, m *moving) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.moves[s] == m {
		h.take = append(h.take, s)
		h.wakeLocked()
	}
}

// derive says that a shard cannot be taken from another node, and is to be derived.
func (h *holdings) derive(s pipeline.Shard, m *moving) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.moves[s] == m {
		m.cancel()
		m.foreign, m.failed, m.needs, m.loaded = true, time.Now().Add(-m.pause), 0, 0
		h.wakeArrange()
	}
}

// wakeLocked interrupts the follower. If it is between two runs it looks anyway.
func (h *holdings) wakeLocked() {
	if h.interrupt != nil {
		h.interrupt(errHoldings)
	}
}

// wakeArrange has arrange look again.
func (h *holdings) wakeArrange() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// following is the context of a run of the follower, which ends when something
// is due.
func (h *holdings) following(ctx context.Context, renewals *renewals) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.interrupt = cancel
	if len(h.take) > 0 || len(renewals.due) > 0 || h.mend.Len() > 0 {
		cancel(errHoldings)
	}
	return ctx, cancel
}

// arrange brings what is held to what is assigned, and decides what is assigned
// if this process routes, until the generation ends.
func (g *Generation) arrange() {
	var decided time.Time
	var layout uint64
	for {
		changed := g.members.Changed()
		// Every member's beat is a change; to decide costs more than to look.
		if v := g.members.View(); v.Layout != layout || time.Since(decided) >= bucket.MemberBeat {
			layout, decided = v.Layout, time.Now()
			if err := g.decide(g.ctx); err != nil && g.ctx.Err() == nil {
				g.Log.Warn("tidemark: the shards could not be assigned; trying again", "error", err)
			}
		}
		g.arrangeOnce()
		select {
		case <-g.ctx.Done():
			return
		case <-changed:
		case <-g.holdings.changed:
		case <-time.After(bucket.MemberBeat):
		}
	}
}

func (g *Generation) arrangeOnce() {
	view := g.members.View()
	if view.Assignment.Shards() != g.Config.Shards {
		return
	}
	assigned, held := view.Assignment.HeldSet(g.Name), g.heldNow()
	var room disk
	room.free, room.known = kit.DiskFree(g.Dir.Path)
	h := &g.holdings
	h.mu.Lock()
	defer h.mu.Unlock()
	under := 0
	for s, m := range h.moves {
		from, _ := g.audits.sourcesLocked(s, g.elsewhere(view, s))
		switch due := slices.Contains(h.take, s); {
		case held.Has(s), !assigned.Has(s) && !due && (len(from) > 0 || !g.store.Stack(s).Stored()):
			m.cancel()
			delete(h.moves, s)
			g.audits.endLocked(s)
		case h.derived.Has(s) && !m.foreign && len(from) > 0:
			m.cancel()
			delete(h.moves, s)
		case m.failed.IsZero() && !due && !h.derived.Has(s):
			under++
		}
	}
	if h.unwantedLocked() {
		h.stopDerived()
	}
	g.healLocked(view, assigned)
	back := g.sparesLocked(view, assigned, held, room)
	var derive []pipeline.Shard
	for s := range pipeline.Shard(g.Config.Shards) {
		if !assigned.Has(s) && !back.Has(s) {
			continue
		}
		m := h.moves[s]
		if held.Has(s) || h.leaving.Has(s) || h.derived.Has(s) || m != nil && (m.failed.IsZero() || time.Since(m.failed) < m.pause) {
			continue
		}
		from, alone := g.audits.sourcesLocked(s, g.elsewhere(view, s))
		spared := h.spares[s]
		if h.heals[s].due() { // what is stored may be what had stopped
			spared = nil
		}
		switch {
		case !alone && len(from) == 0 && !g.store.Stack(s).Stored() && view.MayHave(s, g.Name, g.Config.Cluster.ReplaceAfter):
			continue
		case spared == nil && len(from) == 0 || m != nil && m.foreign:
			derive = append(derive, s)
			continue
		case under >= g.Config.Cluster.Moves:
			continue
		case m == nil:
			m = &moving{pause: fetchRetryMin}
			h.moves[s] = m
		}
		var ctx context.Context
		ctx, m.cancel = context.WithCancel(g.ctx)
		m.failed, m.fault, m.needs = time.Time{}, nil, g.sinks.Checkpointed()
		under++
		delete(h.spares, s)
		g.work.Go(func() {
			switch {
			case spared != nil && g.back(ctx, s, m):
			case len(from) == 0:
				h.derive(s, m)
			default:
				g.bring(ctx, s, m, from)
			}
		})
	}
	g.deriveLocked(derive)
	if letGo := g.letGo(view, held); letGo.Len() > 0 {
		h.wakeLocked()
	}
}

// heldNow are the shards held.
func (g *Generation) heldNow() (held cluster.ShardSet) {
	for _, s := range g.sinks.Standings() {
		held.Add(s.Shard)
	}
	return held
}

// letGo are the shards held that this node need not hold, by what members say.
func (g *Generation) letGo(view *cluster.View, held cluster.ShardSet) (set cluster.ShardSet) {
	if view.Assignment.Shards() != g.Config.Shards {
		return set
	}
	return view.LetGo(g.Name, held)
}

// bring fetches a shard from a node that has it. A shard that cannot be fetched is derived
// from what is stored of it here. What has come before an error is complete in itself, and
// is used if DELTAS brings it on.
func (g *Generation) bring(ctx context.Context, s pipeline.Shard, m *moving, from []string) {
	h := &g.holdings
	for _, node := range from {
		state, err := move.Fetch(ctx, g.NC, node, g.store, s, move.Options{
			Generation: g.Number,
			Version:    g.members.View().Reads(node, pipeline.FormatMoves),
			Limit:      g.MoveLimit,
			Needs:      func(sequence uint64) { h.need([]pipeline.Shard{s}, sequence) },
			Progress: func(loaded float64) {
				h.mu.Lock()
				m.loaded = loaded
				h.mu.Unlock()
			},
			Logger: g.Log,
		})
		late, came := false, err == nil || state != (cold.State{})
		if came && ctx.Err() == nil {
			var unknown error
			if late, unknown = g.late(ctx, s); unknown != nil {
				came, err = false, errors.Join(err, unknown)
			}
		}
		switch {
		case ctx.Err() != nil:
			return
		case late && err == nil: // that node has nothing newer
			g.Lines.Say(slog.LevelWarn, "tidemark: shards have come, and DELTAS does not bring them on any more; they are derived from EVENTS", s, nil, "from", node)
			h.derive(s, m)
			return
		case late:
			err = fmt.Errorf("DELTAS does not bring on any more what has come: %w", err)
		case came && err == nil:
			g.Lines.Say(slog.LevelInfo, "tidemark: shards have come", s, nil, "from", node)
			h.come(s, m)
			return
		case came:
			g.Lines.Say(slog.LevelWarn, "tidemark: shards have come, but for what was checkpointed there meanwhile: DELTAS has that", s, err, "from", node)
			h.come(s, m)
			return
		case errors.Is(err, cold.ErrDictionary), errors.Is(err, cold.ErrForeign):
			g.Lines.Say(slog.LevelWarn, "tidemark: shards cannot be taken from another node; they are derived from EVENTS", s, err, "from", node)
			h.derive(s, m)
			return
		}
		g.Lines.Say(slog.LevelWarn, "tidemark: shards could not be taken from another node; trying again", s, err, "from", node)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	m.cancel()
	m.failed, m.loaded, m.needs = time.Now(), 0, 0
	m.pause = min(2*m.pause, fetchRetryMax)
}

// change takes up the shards that are due and gives up those that are to be given up. Those
// are in leaving from the moment they are chosen until it is done, so that this process
// does not say that it has them: another node that they are assigned to must not rely on
// it (cluster.View.LetGo).
func (g *Generation) change() error {
	if err := g.giveUp(); err != nil {
		return err
	}
	h := &g.holdings
	held := g.heldNow()
	h.mu.Lock()
	leaving := g.letGo(g.members.View(), held)
	for s := range leaving.All() { // giveUp has put others there
		h.leaving.Add(s)
	}
	due := slices.Clone(h.take)
	mend := h.mend
	take := slices.DeleteFunc(slices.Clone(due), held.Has)
	h.mu.Unlock()

	err := g.releaseStopped(mend)
	if err == nil {
		err = g.exchange(take, leaving, g.heldNow())
	}

	h.mu.Lock()
	for s := range leaving.All() {
		h.leaving.Remove(s)
	}
	for s := range mend.All() {
		h.mend.Remove(s)
	}
	if err == nil { // what has come since is still due
		h.take = slices.DeleteFunc(h.take, func(s pipeline.Shard) bool { return slices.Contains(due, s) })
	}
	h.mu.Unlock()
	if len(take) > 0 || mend.Len() > 0 {
		h.wakeArrange()
	}
	return err
}

func (g *Generation) exchange(take []pipeline.Shard, leaving, held cluster.ShardSet) error {
	if err := g.sinks.Hold(g.ctx, take...); err != nil {
		return err
	}
	for s := range leaving.All() {
		if !held.Has(s) { // it had stopped
			continue
		}
		if err := g.sinks.Release(g.ctx, s); err != nil {
			return err
		}
		g.holdings.mu.Lock()
		g.holdings.given++
		g.holdings.mu.Unlock()
		g.Lines.Say(slog.LevelInfo, "tidemark: shards are given up, and stay stored for a while", s, nil, "for", spareStands)
	}
	return nil
}

// needs is the window of DELTAS up to which this node no longer needs any: for what is
// held, and for what is on its way here from another node or about to be held.
// What is derived from EVENTS needs nothing of DELTAS before that takes over.
func (g *Generation) needs() uint64 {
	if g.pressed() {
		return g.sinks.CheckpointedGoing()
	}
	sequence := g.sinks.Checkpointed()
	h := &g.holdings
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.moves {
		if m.needs > 0 {
			sequence = min(sequence, m.needs)
		}
	}
	return sequence
}
