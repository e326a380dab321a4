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

// Jobs are those that compare with the log: by the generation that serves when they begin,
// or by one with a number; nil: it is not open here. They end with that generation.
func Jobs(serving func() *Generation, of func(generations.Number) *Generation) map[string]job.Handler {
	jobs := map[string]job.Handler{}
	for _, verb := range []string{checks.VerifyVerb, checks.RecountVerb, checks.AgreeVerb, checks.CompareVerb} {
		jobs[verb] = func(ctx context.Context, request []byte, progress func(any)) (any, error) {
			var ask checks.Ask
			if err := json.Unmarshal(request, &ask); err != nil {
				return nil, job.Bad("the request is not of this form: %v", err)
			}
			g := serving()
			if verb == checks.CompareVerb {
				if g = of(ask.Generation); g == nil || !g.open.Load() || g.audits.Auditor == nil {
					return nil, &job.Error{Code: job.CodeGone, Text: "generation " + ask.Generation.String() + " is not open on this node"}
				}
			}
			return g.whileOpen(ctx, func(ctx context.Context) (any, error) { return g.answerCheck(ctx, verb, &ask, progress) })
		}
	}
	return jobs
}

// answerCheck does a job.
func (g *Generation) answerCheck(ctx context.Context, verb string, ask *checks.Ask, progress func(any)) (any, error) {
	if recounts := verb == checks.RecountVerb || verb == checks.AgreeVerb; recounts && len(ask.IDs) == 0 {
		c := g.checked(&check.Report{})
		c.CountedBy, _ = g.counted()
		return c, nil
	} else if recounts == (ask.Share != "") {
		return nil, job.Bad("%s takes ids or a share, and not both: %q and %d ids", verb, ask.Share, len(ask.IDs))
	}
	t, err := ask.Task(g.store.Schema())
	if err != nil {
		return nil, err
	}
	if verb == checks.CompareVerb { // in turns, also if it serves
		t.Stored, t.Turns = true, g.Turns
	}
	c, err := g.check(ctx, t, ask.Repair, progress)
	if err != nil {
		return nil, err
	}
	for verb == checks.RecountVerb && len(c.Renewed) > 0 && err == nil && !g.lookedAgain(c) { // what answered may be given up again before it was compared
		if err = g.untilRenewed(ctx, c.Renewed); err == nil {
			c.After, err = g.check(ctx, t, false, progress)
		}
	}
	if verb == checks.CompareVerb {
		c.Generation = ask.Generation
	} else {
		c.Differing = nil
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
	if repair && r.Differ+len(r.Notices) > 0 {
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
		Node: g.Name, IDs: r.IDs, Differs: r.Differ, Notices: len(r.Notices), Base: r.Base, Mixed: g.mixed(),
		Examples: append([]check.Difference{}, r.Examples...), Shards: []pipeline.Shard{}, Skipped: map[string]string{}, Renewed: []pipeline.Shard{},
	}
	for _, s := range slices.Sorted(maps.Keys(r.Shards)) {
		if why, skipped := r.Skipped[s]; skipped {
			c.Skipped[strconv.Itoa(int(s))] = why
		} else {
			c.Shards = append(c.Shards, s)
		}
		differing := r.Shards[s].Differing
		c.Differing = append(c.Differing, differing[:min(len(differing), checks.DifferingMax-len(c.Differing))]...)
	}
	return c
}
