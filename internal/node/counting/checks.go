package counting

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/internal/node/checks"
	"github.com/tidemark-io/tidemark/pipeline"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/sinks/check"
)

func (g *Generation) verify(ctx context.Context, request []byte, progress func(any)) (any, error) {
	var ask checks.VerifyAsk
	if err := json.Unmarshal(request, &ask); err != nil {
		return nil, job.Bad("the request is not of this form: %v", err)
	}
	sample, err := checks.SampleOf(ask.Share, ask.Residue)
	if err != nil {
		return nil, err
	}
	return g.check(ctx, check.Task{Sample: sample}, ask.Repair, progress)
}

func (g *Generation) recount(ctx context.Context, request []byte, progress func(any)) (any, error) {
	ask := checks.RecountAsk{IDs: []uint64{}}
	if err := json.Unmarshal(request, &ask); err != nil {
		return nil, job.Bad("the request is not of this form: %v", err)
	}
	if len(ask.IDs) > checks.RecountMax || slices.Contains(ask.IDs, 0) {
		return nil, job.Bad("%d ids; allowed: %d, none of them 0", len(ask.IDs), checks.RecountMax)
	}
	if len(ask.IDs) == 0 {
		c := g.checked(&check.Report{})
		c.CountedBy, _ = g.counted()
		return c, nil
	}
	if _, known := g.store.Schema().Counter(ask.Counter); ask.Counter != "" && !known {
		return nil, job.Bad("there is no counter %q", ask.Counter)
	}
	task := check.Task{IDs: ask.IDs, Counter: ask.Counter}
	c, err := g.check(ctx, task, ask.Repair, progress)
	if err != nil || len(c.Renewed) == 0 {
		return c, err
	}
	for err == nil && !g.lookedAgain(c) { // what answered may be given up again before it was compared
		if err = g.untilRenewed(ctx, c.Renewed); err == nil {
			c.After, err = g.check(ctx, task, false, progress)
		}
	}
	return c, err
}

// lookedAgain says that all renewed shards were compared again, except those that other
// nodes hold by now.
func (g *Generation) lookedAgain(c *checks.Checked) bool {
	return c.After != nil && !slices.ContainsFunc(c.Renewed, func(s pipeline.Shard) bool {
		_, skipped := c.After.Skipped[strconv.Itoa(int(s))]
		return !skipped && !slices.Contains(c.After.Shards, s) && !g.heldElsewhere(s)
	})
}

// heldElsewhere says that a shard is assigned to other nodes, and not to this one.
func (g *Generation) heldElsewhere(s pipeline.Shard) bool {
	view := g.members.View()
	if view.Assignment.Shards() != g.Config.Shards {
		return false
	}
	holders := view.Assignment.Holders(s)
	return len(holders) > 0 && !slices.Contains(holders, g.Name)
}

// check does a task; with repair, shards that differ are taken again.
func (g *Generation) check(ctx context.Context, t check.Task, repair bool, progress func(any)) (*checks.Checked, error) {
	r, err := g.hold(ctx, t, progress)
	if err != nil {
		return nil, err
	}
	c := g.checked(r)
	if repair && r.Differ+r.Channels > 0 {
		renewed, err := g.repair(r)
		c.Renewed = append(c.Renewed, renewed...)
		if c.Mixed = g.mixed(); c.Mixed {
			err = errMixed
		}
		if err != nil {
			c.Refused = err.Error()
		}
	}
	return c, nil
}

// renewedEvery is how often it is looked whether shards are there again.
const renewedEvery = 100 * time.Millisecond

// untilRenewed waits until shards that were to be taken again answer here, or are
// assigned to other nodes. That takes as long as fetching or deriving them.
func (g *Generation) untilRenewed(ctx context.Context, shards []pipeline.Shard) error {
	for {
		if !slices.ContainsFunc(shards, func(s pipeline.Shard) bool {
			return g.givingUp(s) || !g.sinks.Holds(s) && !g.heldElsewhere(s)
		}) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(renewedEvery):
		}
	}
}

// hold compares what is served with the log.
func (g *Generation) hold(ctx context.Context, t check.Task, progress func(any)) (*check.Report, error) {
	t.Memory, t.Progress = int(g.Config.Audit.Memory), func(p check.Progress) { progress(p) }
	return g.audits.Run(ctx, t)
}

// checked is a report as JSON has it: an empty list is [].
func (g *Generation) checked(r *check.Report) *checks.Checked {
	c := &checks.Checked{
		Node: g.Name, IDs: r.IDs, Differs: r.Differ, Notices: r.Channels, Base: r.Base, Mixed: g.mixed(),
		Examples: append([]check.Difference{}, r.Examples...), Shards: []pipeline.Shard{}, Skipped: map[string]string{}, Renewed: []pipeline.Shard{},
	}
	for _, s := range slices.Sorted(maps.Keys(r.Shards)) {
		if why, skipped := r.Skipped[s]; skipped {
			c.Skipped[strconv.Itoa(int(s))] = why
		} else {
			c.Shards = append(c.Shards, s)
		}
	}
	return c
}

// comparable says whether it can be compared with the log.
func (g *Generation) comparable() bool { return g.open.Load() && g.audits.Auditor != nil }

// compare compares it with the log, for a rebuild: in turns, also if it serves.
func (g *Generation) compare(ctx context.Context, ask *checks.CompareAsk, sample pipeline.Sample, progress func(any)) (any, error) {
	r, err := g.hold(ctx, check.Task{Sample: sample, Shards: ask.Shards, Except: ask.Except, Stored: true, Turns: g.Turns}, progress)
	if err != nil {
		return nil, err
	}
	return g.compared(ask.Generation, r), nil
}

func (g *Generation) compared(number generations.Number, r *check.Report) *checks.Compared {
	c := &checks.Compared{Checked: *g.checked(r), Generation: number, Differing: []uint64{}}
	for _, found := range r.Shards {
		c.Differing = append(c.Differing, found.Differing[:min(len(found.Differing), checks.DifferingMax-len(c.Differing))]...)
	}
	return c
}
