package node

import (
	"context"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/internal/node/checks"
)

// StatsVerb asks a node for its figures: it takes {} and answers what tidemark.stats does.
const StatsVerb = "stats"

// openJobs takes jobs: for the figures of this process, about generations, and, if it holds
// shards, for checks, which the generation does that serves.
func (n *Node) openJobs() (err error) {
	jobs := n.rebuildJobs()
	jobs[StatsVerb] = func(context.Context, []byte, func(any)) (any, error) { return n.stats(), nil }
	if n.config.Has(config.RoleHold) {
		jobs["verify"] = n.checks((*generation).verify)
		jobs["recount"] = n.checks((*generation).recount)
		// What nodes ask each other: a command that has them repair holds their turns
		// of recount.
		jobs[checks.AgreeVerb] = n.checks((*generation).recount)
		jobs[checks.CompareVerb] = compares(n.generationOf)
	}
	n.jobs, err = job.Serve(n.queries, n.name, jobs, n.log)
	return err
}

// checks is a job that the generation does that serves when it begins. It ends
// with that generation.
func (n *Node) checks(do func(g *generation, ctx context.Context, request []byte, progress func(any)) (any, error)) job.Handler {
	return func(ctx context.Context, request []byte, progress func(any)) (any, error) {
		g := n.gen()
		return g.whileOpen(ctx, func(ctx context.Context) (any, error) { return do(g, ctx, request, progress) })
	}
}
