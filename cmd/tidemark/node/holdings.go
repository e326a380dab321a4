package node

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/move"
)

// holdings are the shards on their way to this process and away from it.
//
//	assigned ─► fetch: runs of a node that has it ─► due ─► Hold ─► follow ─► ready
//	    └─► nobody has it ────────────────────────────┘
//	not assigned, and all it is assigned to answer ─► leaving ─► Release, Drop
//
// What is held changes between two runs of the follower: who has something due
// interrupts it.
type holdings struct {
	mu        sync.Mutex
	moves     map[pipeline.Shard]*moving // on their way here
	take      []pipeline.Shard           // due to be held
	leaving   cluster.ShardSet           // being given up: this process does not say that it has them
	interrupt context.CancelCauseFunc    // of the follower; nil: it does not run

	changed chan struct{} // room for one: something is held or given up
	needed  uint64        // the window of DELTAS that a move holds back; 0: none. keep's
}

func newHoldings() holdings {
	return holdings{moves: make(map[pipeline.Shard]*moving), changed: make(chan struct{}, 1)}
}

// moving is a shard on its way here.
type moving struct {
	loaded float64 // 0 to 1
	cancel context.CancelFunc
	failed time.Time // when a fetch failed; zero: one is under way, or it is due
	pause  time.Duration
}

const (
	fetchRetryMin = time.Second
	fetchRetryMax = 30 * time.Second
)

// errHoldings interrupts the follower.
var errHoldings = errors.New("what is held changes")

// loadedLocked is how much of each shard that is on its way is here. It leaves
// out those of which nothing is: when all shards are derived, they would be most
// of what a member says.
func (h *holdings) loadedLocked() map[pipeline.Shard]float64 {
	out := make(map[pipeline.Shard]float64)
	for s, m := range h.moves {
		if m.loaded > 0 {
			out[s] = math.Floor(m.loaded*100) / 100
		}
	}
	return out
}

// come says that a shard has come, unless it is not wanted any more.
func (h *holdings) come(s pipeline.Shard, m *moving) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.moves[s] == m {
		h.take = append(h.take, s)
		h.wakeLocked()
	}
}

// wakeLocked interrupts the follower. If it is between two runs it looks anyway.
func (h *holdings) wakeLocked() {
	if h.interrupt != nil {
		h.interrupt(errHoldings)
	}
}

// following is the context of a run of the follower, which ends when something
// is due.
func (h *holdings) following(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.interrupt = cancel
	if len(h.take) > 0 {
		cancel(errHoldings)
	}
	return ctx, cancel
}

// arrange brings what is held to what is assigned, and decides what is assigned
// if this process routes, until the node closes.
func (n *Node) arrange() {
	var decided time.Time
	var layout uint64
	for {
		changed := n.members.Changed()
		// Every member's beat is a change; to decide costs more than to look.
		if v := n.members.View(); v.Layout != layout || time.Since(decided) >= memberBeat {
			layout, decided = v.Layout, time.Now()
			if err := n.decide(n.ctx); err != nil && n.ctx.Err() == nil {
				n.log.Warn("tidemark: the shards could not be assigned; trying again", "error", err)
			}
		}
		n.arrangeOnce()
		select {
		case <-n.ctx.Done():
			return
		case <-changed:
		case <-n.holdings.changed:
		case <-time.After(memberBeat):
		}
	}
}

func (n *Node) arrangeOnce() {
	view := n.members.View()
	if view.Assignment.Shards() != n.config.Shards {
		return
	}
	assigned, held := view.Assignment.HeldSet(n.name), n.heldNow()
	h := &n.holdings
	h.mu.Lock()
	defer h.mu.Unlock()
	under := 0
	for s, m := range h.moves {
		switch due := slices.Contains(h.take, s); {
		case held.Has(s), !assigned.Has(s) && !due:
			m.cancel()
			delete(h.moves, s)
		case m.failed.IsZero() && !due:
			under++
		}
	}
	for s := range assigned.All() {
		m := h.moves[s]
		if held.Has(s) || h.leaving.Has(s) || m != nil && (m.failed.IsZero() || time.Since(m.failed) < m.pause) {
			continue
		}
		from := n.elsewhere(view, s)
		switch {
		case len(from) == 0 && view.MayHave(s, n.name, n.config.Cluster.ReplaceAfter):
			continue
		case len(from) == 0:
			// All of them at once: each time the log is read from its beginning.
			h.moves[s] = &moving{cancel: func() {}}
			h.take = append(h.take, s)
			h.wakeLocked()
			continue
		case under >= n.config.Cluster.Moves:
			continue
		case m == nil:
			m = &moving{pause: fetchRetryMin}
			h.moves[s] = m
		}
		var ctx context.Context
		ctx, m.cancel = context.WithCancel(n.ctx)
		m.failed = time.Time{}
		under++
		n.work.Go(func() { n.bring(ctx, s, m, from) })
	}
	letGo := n.letGo(held)
	for s := range letGo.All() {
		if held.Has(s) { // what is only stored can wait
			h.wakeLocked()
			break
		}
	}
}

// heldNow are the shards held.
func (n *Node) heldNow() (held cluster.ShardSet) {
	for _, s := range n.sinks.Standings() {
		held.Add(s.Shard)
	}
	return held
}

// letGo are the shards held, or stored by an earlier process or a move that was
// broken off, that are to be given up.
func (n *Node) letGo(held cluster.ShardSet) (set cluster.ShardSet) {
	view := n.members.View()
	if view.Assignment.Shards() != n.config.Shards {
		return set
	}
	for i := range n.config.Shards {
		if s := pipeline.Shard(i); n.store.Stack(s).Stored() {
			held.Add(s)
		}
	}
	return view.LetGo(n.name, held)
}

// takeCommons takes what every node holds whole, and how columns are numbered,
// from another node where nothing of it is stored here: to derive it is to read
// all of EVENTS. Where nobody has it, it is derived.
func (n *Node) takeCommons() {
	number := pipeline.Shard(n.config.Shards)
	if n.store.Stack(number).Stored() {
		return
	}
	for _, m := range n.members.View().Members {
		if m.Node == n.name || m.Status == cluster.Away || !m.Roles.Has(cluster.Hold) || m.Applied == 0 {
			continue
		}
		there, err := move.Describe(n.ctx, n.nc, m.Node)
		if err == nil {
			err = n.store.Adopt(there.Dictionary)
		}
		if err == nil {
			_, err = move.Fetch(n.ctx, n.nc, m.Node, n.store, number, move.Options{Logger: n.log})
		}
		if err == nil {
			n.log.Info("tidemark: channels and log time have come", "from", m.Node)
			return
		}
		n.log.Warn("tidemark: channels and log time could not be taken from another node", "from", m.Node, "error", err)
	}
}

// bring fetches a shard from a node that has it. One that cannot be fetched is
// held as it is stored here, from where the log goes on.
func (n *Node) bring(ctx context.Context, s pipeline.Shard, m *moving, from []string) {
	h := &n.holdings
	for _, node := range from {
		begun := time.Now()
		_, err := move.Fetch(ctx, n.nc, node, n.store, s, move.Options{
			Limit: n.moveLimit,
			Progress: func(loaded float64) {
				h.mu.Lock()
				m.loaded = loaded
				h.mu.Unlock()
			},
			Logger: n.log,
		})
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			n.log.Info("tidemark: a shard has come", "shard", s, "from", node, "took", time.Since(begun).Round(time.Millisecond))
			h.come(s, m)
			return
		case errors.Is(err, cold.ErrDictionary), errors.Is(err, cold.ErrForeign):
			n.log.Warn("tidemark: a shard cannot be taken from another node; it is derived from EVENTS", "shard", s, "from", node, "error", err)
			h.come(s, m)
			return
		}
		n.log.Warn("tidemark: a shard could not be taken from another node", "shard", s, "from", node, "error", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	m.cancel()
	m.failed, m.loaded = time.Now(), 0
	m.pause = min(2*m.pause, fetchRetryMax)
}

// change holds what is due and gives up what is to be given up. From before it is
// looked what that is, until it is done, this process does not say that it has
// the latter: another one that it is assigned to by then must not rely on it
// (cluster.View.LetGo).
func (n *Node) change() error {
	h := &n.holdings
	held := n.heldNow()
	h.mu.Lock()
	h.leaving = n.letGo(held)
	for s := range h.moves { // what is on its way here is not what was given up
		if !held.Has(s) {
			h.leaving.Remove(s)
		}
	}
	leaving, due := h.leaving, slices.Clone(h.take)
	take := slices.DeleteFunc(slices.Clone(due), held.Has)
	h.mu.Unlock()

	err := n.exchange(take, leaving, held)

	h.mu.Lock()
	h.leaving = cluster.ShardSet{}
	if err == nil { // what has come meanwhile is still due
		h.take = slices.DeleteFunc(h.take, func(s pipeline.Shard) bool { return slices.Contains(due, s) })
	}
	h.mu.Unlock()
	if len(take) > 0 {
		select {
		case h.changed <- struct{}{}:
		default:
		}
	}
	return err
}

func (n *Node) exchange(take []pipeline.Shard, leaving, held cluster.ShardSet) error {
	if err := n.sinks.Hold(n.ctx, take...); err != nil {
		return err
	}
	for s := range leaving.All() {
		if held.Has(s) {
			if err := n.sinks.Release(n.ctx, s); err != nil {
				return err
			}
			n.log.Info("tidemark: a shard is given up", "shard", s)
		}
		if err := n.store.Drop(s); err != nil { // it is stored still: tried again with the next change
			n.log.Warn("tidemark: a shard that was given up is still stored", "shard", s, "error", err)
		}
	}
	return nil
}

// loading says whether any shard is on its way here.
func (h *holdings) loading() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.moves)+len(h.take) > 0
}

// needs is the window of DELTAS up to which this node needs nothing any more.
// While shards are on their way here it stays where it was: what is fetched goes
// on from about there.
func (n *Node) needs() uint64 {
	h, sequence := &n.holdings, n.sinks.Checkpointed()
	switch {
	case n.pressed():
		h.needed, sequence = 0, n.sinks.CheckpointedGoing()
	case !h.loading():
		h.needed = 0
	case h.needed == 0:
		h.needed = sequence
	default:
		sequence = min(sequence, h.needed)
	}
	return sequence
}
