package counting

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/internal/node/checks"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
)

// Jobs are those that compare with the log: by the generation that serves, or by one
// with a number; nil: it is not open here.
func Jobs(serving func() *Generation, of func(generations.Number) *Generation) map[string]job.Handler {
	return map[string]job.Handler{
		"verify":  checksOf(serving, (*Generation).verify),
		"recount": checksOf(serving, (*Generation).recount),
		// What nodes ask each other: a command that has them repair holds their turns
		// of recount.
		checks.AgreeVerb:   checksOf(serving, (*Generation).recount),
		checks.CompareVerb: compares(of),
	}
}

// checksOf is a job that the generation does that serves when it begins. It ends
// with that generation.
func checksOf(serving func() *Generation, do func(g *Generation, ctx context.Context, request []byte, progress func(any)) (any, error)) job.Handler {
	return func(ctx context.Context, request []byte, progress func(any)) (any, error) {
		g := serving()
		return g.whileOpen(ctx, func(ctx context.Context) (any, error) { return do(g, ctx, request, progress) })
	}
}

// compares is the job. It ends with the generation that it compares.
func compares(of func(generations.Number) *Generation) job.Handler {
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
		if g == nil || !g.comparable() {
			return nil, &job.Error{Code: job.CodeGone, Text: "generation " + fmt.Sprint(ask.Generation) + " is not open on this node"}
		}
		return g.whileOpen(ctx, func(ctx context.Context) (any, error) { return g.compare(ctx, &ask, sample, progress) })
	}
}
