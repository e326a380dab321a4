package node

import (
	"context"
	"maps"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/internal/node/counting"
)

// StatsVerb asks a node for its figures: it takes {} and answers what tidemark.stats does.
const StatsVerb = "stats"

// openJobs takes jobs: for the figures of this process, about generations, and, if it holds
// shards, for checks, which the generation does that serves.
func (n *Node) openJobs() (err error) {
	jobs := n.rebuildJobs()
	jobs[StatsVerb] = func(context.Context, []byte, func(any)) (any, error) { return n.stats(), nil }
	if n.config.Has(config.RoleHold) {
		maps.Copy(jobs, counting.Jobs(n.Serving, n.generationOf))
	}
	n.jobs, err = job.Serve(n.queries, n.name, jobs, n.log)
	return err
}
