package node

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/internal/node/checks"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/sinks/audit"
)

// compares is the job. It ends with the generation that it compares.
func compares(of func(generations.Number) *generation) job.Handler {
	return func(ctx context.Context, request []byte, progress func(any)) (any, error) {
		var ask checks.CompareAsk
		if err := json.Unmarshal(request, &ask); err != nil {
			return nil, job.Bad("the request is not of this form: %v", err)
		}
		sample, err := checks.SampleOf(ask.Share, ask.Residue)
		if err != nil {
			return nil, err
		}
		g := of(ask.Generation)
		if g == nil || !g.open.Load() || g.audits.Auditor == nil {
			return nil, &job.Error{Code: job.CodeGone, Text: "generation " + fmt.Sprint(ask.Generation) + " is not open on this node"}
		}
		return g.whileOpen(ctx, func(ctx context.Context) (any, error) {
			// Also of the one that serves: it is for the rebuild.
			r, err := g.hold(ctx, audit.Task{Sample: sample, Shards: ask.Shards, Except: ask.Except, Stored: true, Turns: g.turns}, progress)
			if err != nil {
				return nil, err
			}
			return g.compared(ask.Generation, r), nil
		})
	}
}

func (g *generation) compared(number generations.Number, r *audit.Report) *checks.Compared {
	c := &checks.Compared{Checked: *g.checked(r), Generation: number, Differing: []uint64{}}
	for _, found := range r.Shards {
		c.Differing = append(c.Differing, found.Differing[:min(len(found.Differing), checks.DifferingMax-len(c.Differing))]...)
	}
	return c
}
