package counting

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
)

// spare is a shard that is stored here and neither held nor assigned to this node: it was
// given up, or left by an earlier process. When it is assigned to this node again, or no
// other node answers for it, it is held again at once, from where it stands.
type spare struct {
	since  time.Time // from when on all nodes that it is assigned to have answered for it
	given  time.Time // when it was first seen: the oldest go first where there is no room
	under  bool      // it is being deleted
	failed time.Time // when that failed the last time
}

const (
	// spareStands is how long the assignment must have stood, and been followed, before a
	// spare is deleted.
	spareStands = 10 * time.Minute
	// spareRetry is how long a spare that could not be deleted is left alone.
	spareRetry = 10 * time.Second
	// spareShare is the part of the disk, one in spareShare of what is free without spares,
	// that spares may take. If they take more, the oldest is deleted before its time.
	spareShare = 2
)

// disk is what is free on a node's disk, in bytes, if the file system knows. It is read
// before a lock is taken: so a disk that hangs does not hold up the node's beat.
type disk struct {
	free  uint64
	known bool
}

// sparesLocked notes what is stored and neither held nor assigned here. It begins to delete
// what has been so for long enough, or has no room, and returns what is to be held again.
func (g *Generation) sparesLocked(view *cluster.View, assigned, held cluster.ShardSet, room disk) (back cluster.ShardSet) {
	h, now := &g.holdings, time.Now()
	var spares cluster.ShardSet
	for s := range pipeline.Shard(g.Config.Shards) {
		_, comes := h.moves[s]
		if !held.Has(s) && !comes && !h.derived.Has(s) && g.store.Stack(s).Stored() {
			spares.Add(s)
		}
	}
	answered := view.LetGo(g.Name, spares)
	for s := range pipeline.Shard(g.Config.Shards) {
		if !spares.Has(s) {
			delete(h.spares, s)
			continue
		}
		sp := h.spares[s]
		if sp == nil && assigned.Has(s) { // it has stopped, and comes from another node
			continue
		}
		if sp == nil {
			sp = &spare{since: now, given: now}
			h.spares[s] = sp
		}
		if !answered.Has(s) {
			sp.since = now
		}
		if !assigned.Has(s) && !h.leaving.Has(s) && len(g.elsewhere(view, s)) == 0 {
			back.Add(s)
		}
	}
	g.dropSparesLocked(answered, g.crowdedLocked(room))
	return back
}

// crowdedLocked are the spares that the disk has no room for, the oldest ones.
func (g *Generation) crowdedLocked(room disk) (set cluster.ShardSet) {
	free := room.free
	if !room.known || len(g.holdings.spares) == 0 {
		return set
	}
	shards, bytes := []pipeline.Shard{}, uint64(0)
	for s := range g.holdings.spares {
		shards, bytes = append(shards, s), bytes+uint64(g.store.Stack(s).Bytes())
	}
	slices.SortFunc(shards, func(a, b pipeline.Shard) int {
		return cmp.Or(g.holdings.spares[a].given.Compare(g.holdings.spares[b].given), cmp.Compare(a, b))
	})
	for _, s := range shards {
		if spareShare*bytes <= free+bytes {
			break
		}
		set.Add(s)
		bytes, free = bytes-uint64(g.store.Stack(s).Bytes()), free+uint64(g.store.Stack(s).Bytes())
	}
	return set
}

// dropSparesLocked begins to delete spares whose time has come, one at a time.
func (g *Generation) dropSparesLocked(answered, crowded cluster.ShardSet) {
	h := &g.holdings
	for s, sp := range h.spares {
		if sp.under && h.leaving.Has(s) {
			return
		}
	}
	for s := range answered.All() {
		sp := h.spares[s]
		if sp == nil || h.leaving.Has(s) || time.Since(sp.failed) < spareRetry || !crowded.Has(s) && time.Since(sp.since) < spareStands {
			continue
		}
		sp.under = true
		h.leaving.Add(s) // nothing begins from what is stored of it
		g.work.Go(func() { g.dropSpare(s, sp) })
		return
	}
}

// dropSpare deletes what is stored of a spare.
func (g *Generation) dropSpare(s pipeline.Shard, sp *spare) {
	err := g.store.Drop(s)
	h := &g.holdings
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leaving.Remove(s)
	sp.under = false
	if err != nil {
		sp.failed = time.Now()
		g.Lines.Say(slog.LevelWarn, "tidemark: shards that were given up stay stored", s, err)
		return
	}
	g.Lines.Say(slog.LevelInfo, "tidemark: shards that were given up are deleted", s, nil)
	h.wakeArrange()
}

// back takes up a spare as it is stored, if DELTAS brings it on. It returns false if not.
func (g *Generation) back(ctx context.Context, s pipeline.Shard, m *moving) bool {
	if late, err := g.late(ctx, s); late || err != nil {
		return false
	}
	g.Lines.Say(slog.LevelInfo, "tidemark: shards that were given up are taken back", s, nil)
	g.holdings.come(s, m)
	return true
}

// spareFigures are how many spares there are, and what they take.
func (g *Generation) spareFigures() (shards int, bytes int64) {
	h := &g.holdings
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.spares {
		bytes += g.store.Stack(s).Bytes()
	}
	return len(h.spares), bytes
}
