package sim

import (
	"context"
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/sinks"
)

// agrees compares a shard with all to whom it is assigned, by the rules of
// internal/node: nothing happens between two steps, so all stand still meanwhile.
func (p *process) agrees(ctx context.Context, s pipeline.Shard) bool {
	if p.w.nodeFault().unseen {
		return true
	}
	view := p.view
	var has cluster.ShardSet
	has.Add(s)
	if letGo := view.LetGo(p.name(), has); !letGo.Has(s) {
		return false
	}
	ids, err := p.node.Sample(s, idsCompared)
	if err != nil {
		return false
	}
	mine, err := p.node.Digests(ctx, &sinks.DigestAsk{Shard: s, IDs: ids})
	return err == nil && !slices.ContainsFunc(view.Assignment.Holders(s), func(node string) bool {
		q := p.w.processNamed(node)
		if !q.up() || q.view == nil || q.view.Assignment.Epoch < view.Assignment.Epoch || slices.Contains(q.leaving, s) ||
			!slices.Contains(q.view.Assignment.Holders(s), node) {
			return true
		}
		there, err := q.node.Digests(ctx, &sinks.DigestAsk{Shard: s, IDs: ids})
		return err != nil || there.From != mine.To || there.To != mine.From || !slices.Equal(there.Sums, mine.Sums)
	})
}

// idsCompared are all that a shard of this world has.
const idsCompared = 1 << 16

// seen says whether a copy that is dropped is somewhere else: as far, and held.
func (p *process) seen(s pipeline.Shard) {
	stands := func(q *process) (at pipeline.Position, held bool) {
		for _, standing := range q.node.Standings() {
			if standing.Shard == s && standing.Err == nil {
				return standing.Applied, true
			}
		}
		return 0, false
	}
	at, _ := stands(p)
	if !slices.ContainsFunc(p.w.processes, func(q *process) bool {
		if q == p || !q.up() {
			return false
		}
		there, held := stands(q)
		return held && there >= at
	}) {
		p.w.broken(fmt.Errorf("process %d: shard %d is dropped, and no other process has it as far as %d", p.number, s, at))
	}
}

// forge has a stranger write an assignment: one of earlier, or one that gives all shards to
// one node, which says with a far epoch that it has them.
func (w *world) forge() error {
	now, _ := w.server.Assignment()
	if now.Epoch == 0 {
		return nil
	}
	w.forged = true
	if w.stale.Epoch == 0 || w.rand.IntN(3) == 0 {
		w.stale = now
	}
	a := w.stale
	if p := w.processes[w.rand.IntN(len(w.processes))]; p.up() && p.view != nil && w.rand.IntN(2) == 0 {
		me := p.self()
		a = cluster.Assignment{Epoch: now.Epoch + []uint64{0, 1, 1 << 30}[w.rand.IntN(3)], Replicas: w.replicas, ByShard: make([][]string, w.shards)}
		for s := range a.ByShard {
			a.ByShard[s] = []string{p.name()}
			me.Ready.Add(pipeline.Shard(s))
		}
		me.Epoch, me.Loading, me.Failed = 1<<39, nil, cluster.ShardSet{}
		value, err := me.Encode()
		if err != nil {
			return err
		}
		w.server.Forge(cluster.MemberPrefix+p.name(), value)
	}
	w.note("forge an assignment of epoch %d", a.Epoch)
	value, err := a.Encode()
	if err == nil {
		w.server.Forge(cluster.AssignmentKey, value)
	}
	return err
}
