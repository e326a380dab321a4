package node

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/pipeline"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/sinks/audit"
)

// compareVerb is the job of comparing a generation with the log, whether it serves or not.
const compareVerb = "compare"

// CompareAsk asks a node to compare what it holds of a generation with the log.
type CompareAsk struct {
	Generation generations.Number `json:"generation"`
	Share      string             `json:"share"` // as in VerifyAsk
	Residue    uint64             `json:"residue"`
	Shards     []pipeline.Shard   `json:"shards,omitempty"` // these alone; none: all that answer
	Except     []string           `json:"except,omitempty"` // audit.Difference.Name of what may differ
}

// Compared is what a node has found of a generation. It is compared also if not all of it
// was counted by its rules (mixed): what differs for that reason is a difference.
type Compared struct {
	Checked
	Generation generations.Number `json:"generation"`
	Differing  []uint64           `json:"differing"` // ids, differingMax at most
}

// differingMax bounds the ids of an answer, which has to fit into one message.
const differingMax = 10_000

// compares is the job. It ends with the generation that it compares.
func compares(of func(generations.Number) *generation) job.Handler {
	return func(ctx context.Context, request []byte, progress func(any)) (any, error) {
		var ask CompareAsk
		if err := json.Unmarshal(request, &ask); err != nil {
			return nil, job.Bad("the request is not of this form: %v", err)
		}
		sample, err := sampleOf(ask.Share, ask.Residue)
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

func (g *generation) compared(number generations.Number, r *audit.Report) *Compared {
	c := &Compared{Checked: *g.checked(r), Generation: number, Differing: []uint64{}}
	for _, found := range r.Shards {
		c.Differing = append(c.Differing, found.Differing[:min(len(found.Differing), differingMax-len(c.Differing))]...)
	}
	return c
}
