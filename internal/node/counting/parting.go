package counting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/move"
)

// A shard that is assigned to other nodes is given up in steps. What members and the
// assignment say begins it, and is never enough: any client may have written that.
//
//	all nodes that it is assigned to say that they answer (View.LetGo)
//	  ─► this node asks each of them, and compares what it serves     (parting)
//	  ─► Release; it stays stored                                     (change, spare)
//	  ─► nothing has changed for spareStands, and they answer ─► Drop (spare.go)
//
// docs/decisions/0035-copies-are-compared.md has the reasons and the costs.
type parting struct {
	epoch   uint64   // of the assignment by which it was compared last
	ids     []uint64 // the sample; nil: it is not drawn yet
	under   bool     // it is being compared
	agreed  bool     // all nodes that it is assigned to have the same
	at      time.Time
	pause   time.Duration // until it is compared again
	differs int           // comparisons in a row that found another copy to differ
	fault   error         // why the last one did not agree
	since   time.Time     // of the first of those that did not agree, in a row
}

const (
	// partingIDs is how many ids of a shard are compared. If a copy differs in one id of a
	// hundred, 512 ids find a difference with a probability of 99.4 %.
	partingIDs = 512
	// compareTries bounds how often ids are read that events change during a comparison.
	compareTries = 8
	// compareRest is how long the first pause between two tries is.
	compareRest = 20 * time.Millisecond
	// compareWithin bounds the wait for this node to come as far as the other one.
	compareWithin = 2 * time.Second
	// agreedFor is how long after a comparison the shard may be given up.
	agreedFor = 10 * time.Second
	// partAgainMin and partAgainMax pace comparisons that did not agree.
	partAgainMin, partAgainMax = 250 * time.Millisecond, 30 * time.Second
	// differsMax is after how many comparisons in a row a difference is reported: an id
	// that changes and changes back between two readings seems to differ once.
	differsMax = 3
	// keptTold is how long a shard may wait to be given up before /readyz says why.
	keptTold = 15 * time.Second
)

// errCopyDiffers: another node serves something else.
var errCopyDiffers = errors.New("it serves something else")

// partLocked begins to compare the shards that may be given up by what members say. It
// wakes the follower if some have been compared.
func (g *Generation) partLocked(view *cluster.View, letGo cluster.ShardSet) {
	h, epoch := &g.holdings, view.Assignment.Epoch
	under := 0
	for s, p := range h.partings {
		if p.under {
			under++
		} else if !letGo.Has(s) {
			delete(h.partings, s)
		}
	}
	for s := range letGo.All() {
		p := h.partings[s]
		if p == nil {
			p = &parting{}
			h.partings[s] = p
		}
		if p.epoch != epoch && !p.under {
			p.epoch, p.agreed, p.pause = epoch, false, 0
		}
		switch {
		case p.agreedNow(epoch):
			h.wakeLocked()
		case p.under || under >= g.Config.Cluster.Moves || time.Since(p.at) < p.pause:
		default:
			p.under, p.agreed = true, false
			under++
			holders := slices.Clone(view.Assignment.Holders(s))
			g.work.Go(func() { g.compareCopies(s, p, epoch, holders) })
		}
	}
}

// agreedNow says that the shard may be given up by an assignment.
func (p *parting) agreedNow(epoch uint64) bool {
	return p.agreed && !p.under && p.epoch == epoch && time.Since(p.at) < agreedFor
}

// agreedLocked are, of the shards held, those that are to be given up.
func (g *Generation) agreedLocked(held cluster.ShardSet) (set cluster.ShardSet) {
	view := g.members.View()
	letGo := g.letGo(view, held)
	for s := range letGo.All() {
		if p := g.holdings.partings[s]; p != nil && p.agreedNow(view.Assignment.Epoch) {
			set.Add(s)
		}
	}
	return set
}

// compareCopies compares a shard with all nodes that it is assigned to, and notes the
// outcome.
func (g *Generation) compareCopies(s pipeline.Shard, p *parting, epoch uint64, holders []string) {
	err := g.agree(g.ctx, s, p, epoch, holders)
	h := &g.holdings
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.wakeArrange()
	p.under, p.at, p.fault = false, time.Now(), err
	if err == nil {
		p.agreed, p.differs, p.pause, p.since = true, 0, 0, time.Time{}
		return
	}
	if p.since.IsZero() {
		p.since = p.at
	}
	p.pause = min(max(2*p.pause, partAgainMin), partAgainMax)
	if !errors.Is(err, errCopyDiffers) {
		p.differs = 0
	} else if p.differs++; p.differs == differsMax && g.ctx.Err() == nil {
		g.Lines.Say(slog.LevelError, "tidemark: shards are not given up: the copy of a node that they are assigned to differs", s, err)
	}
}

// agree compares a sample of a shard with all nodes that it is assigned to. nil: all of
// them hold it, have come as far as this node, and serve the same.
func (g *Generation) agree(ctx context.Context, s pipeline.Shard, p *parting, epoch uint64, holders []string) (err error) {
	if p.ids == nil {
		if p.ids, err = g.sinks.Sample(s, partingIDs); err != nil {
			return err
		}
	}
	channels := g.sinks.ChannelNames()
	slices.Sort(channels)
	ask := move.Digest{
		Epoch: epoch, Shard: s, Horizon: g.sinks.ListedFrom(g.sinks.Applied()),
		Channels: channels[:min(len(channels), move.DigestChannelsMax)],
	}
	for _, node := range holders {
		if err := g.agreesWith(ctx, node, ask, nil); err != nil { // a new shard has no ids
			return err
		}
		for ids := range slices.Chunk(p.ids, move.DigestIDsMax) {
			if err := g.agreesWith(ctx, node, ask, ids); err != nil {
				return err
			}
		}
	}
	return nil
}

// agreesWith compares some ids. This node reads them, asks the other node, and reads them
// again once it has come as far as that one had. An id that is the same both times had
// this value at the position at which the other node read it. What events change in between is compared again, a few times; the
// outcome must be known for more than half of the ids.
func (g *Generation) agreesWith(ctx context.Context, node string, ask move.Digest, ids []uint64) error {
	left, rest := ids, compareRest
	var lags error
	for range compareTries {
		ask.IDs = left
		before, err := g.digests(ctx, &ask)
		if err != nil {
			return err
		}
		there, err := move.Compare(ctx, g.NC, node, &ask, move.Options{Generation: g.Number, Logger: g.Log})
		if err != nil {
			return err
		}
		if lags = nil; there.From < before.To {
			lags = fmt.Errorf("node %s has come to position %d of shard %d, and this one to %d", node, there.From, ask.Shard, before.To)
		} else if left, err = g.sameAgain(ctx, &ask, before, there); err != nil {
			return fmt.Errorf("shard %d of node %s: %w", ask.Shard, node, err)
		}
		if lags == nil && len(left) == 0 {
			return nil
		}
		select {
		case <-time.After(rest):
			rest *= 2
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if lags == nil && 2*len(left) > len(ids) {
		lags = fmt.Errorf("events change %d of %d ids of shard %d all the time: they cannot be compared with node %s", len(left), len(ids), ask.Shard, node)
	}
	return lags
}

// sameAgain reads ids a second time, and returns those that events have changed since the
// first time: nothing is known of these. The other node must serve the same of all others.
func (g *Generation) sameAgain(ctx context.Context, ask *move.Digest, before, there *move.Digested) (changed []uint64, err error) {
	waiting, cancel := context.WithTimeout(ctx, compareWithin)
	defer cancel()
	if err := g.sinks.WaitApplied(waiting, there.To); err != nil {
		return nil, fmt.Errorf("it has come to position %d, and this node has not within %v", there.To, compareWithin)
	}
	after, err := g.digests(ctx, ask)
	if err != nil {
		return nil, err
	}
	for i, id := range ask.IDs {
		switch {
		case before.Sums[i] != after.Sums[i]:
			changed = append(changed, id)
		case before.Sums[i] != there.Sums[i]:
			return nil, fmt.Errorf("%w of id %d at position %d", errCopyDiffers, id, there.From)
		}
	}
	return changed, nil
}

func (g *Generation) digests(ctx context.Context, ask *move.Digest) (*move.Digested, error) {
	d, err := g.sinks.Digests(ctx, &sinks.DigestAsk{Shard: ask.Shard, IDs: ask.IDs, Horizon: ask.Horizon, Channels: ask.Channels})
	if err != nil {
		return nil, err
	}
	return &move.Digested{Sums: d.Sums, From: d.From, To: d.To}, nil
}

// digest answers a node that wants to give up a shard. This node must act on the same
// assignment or a later one, have the shard assigned by it, and not be about to give it up.
// So no two nodes give up their copies because of each other.
func (g *Generation) digest(ctx context.Context, ask *move.Digest) (*move.Digested, error) {
	if err := g.answersFor(ask); err != nil {
		return nil, err
	}
	d, err := g.digests(ctx, ask)
	if errors.Is(err, query.ErrElsewhere) {
		err = move.NotHeld("this node does not hold shard %d", ask.Shard)
	}
	return d, err
}

func (g *Generation) answersFor(ask *move.Digest) error {
	h := &g.holdings
	h.mu.Lock()
	defer h.mu.Unlock()
	view := g.members.View()
	switch {
	case view.Assignment.Epoch < ask.Epoch:
		return move.NotHeld("this node acts on assignment %d, and not on %d", view.Assignment.Epoch, ask.Epoch)
	case !slices.Contains(view.Assignment.Holders(ask.Shard), g.Name):
		return move.NotHeld("by assignment %d shard %d is not assigned to this node", view.Assignment.Epoch, ask.Shard)
	case h.leaving.Has(ask.Shard):
		return move.NotHeld("this node is giving up shard %d", ask.Shard)
	}
	return nil
}

// keptBack says which shards are not given up, and why: copies that differ, and copies
// of which no other node confirms that it has them.
func (g *Generation) keptBack() string {
	h := &g.holdings
	h.mu.Lock()
	defer h.mu.Unlock()
	differ, wait := 0, 0
	var differs, waits error
	for _, p := range h.partings {
		switch {
		case p.differs >= differsMax:
			differ, differs = differ+1, p.fault
		case p.fault != nil && time.Since(p.since) > keptTold:
			wait, waits = wait+1, p.fault
		}
	}
	text := ""
	if differ > 0 {
		text += fmt.Sprintf("shards: %d that are assigned to other nodes are not given up, because copies differ; 'tidemark verify' finds which one is wrong, with --repair it is taken again: %v\n", differ, differs)
	}
	if wait > 0 {
		text += fmt.Sprintf("shards: %d that are assigned to other nodes are not given up yet, because not all of these nodes have confirmed their copies: %v\n", wait, waits)
	}
	return text
}

// differing is how many shards are kept because another node's copy differs.
func (h *holdings) differing() (shards int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.partings {
		if p.differs >= differsMax {
			shards++
		}
	}
	return shards
}
