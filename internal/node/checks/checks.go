// Package checks has what nodes are asked to compare with the log: the names of the jobs,
// their requests and their answers. Commands ask nodes (verify, recount), and nodes ask each
// other (agree, compare). A node compares in internal/node; internal/job brings the request
// there and the answer back.
//
//	VerifyAsk  ─► a share of all ids                    ─► Checked
//	RecountAsk ─► some ids; AskAgree asks another node  ─► Checked
//	CompareAsk ─► a share, of one generation            ─► Compared
package checks

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/pipeline"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/sinks/check"
)

// Checked is what a node has found of the shards that it answers for: the result
// of the jobs verify and recount.
type Checked struct {
	Node      string             `json:"node"`
	IDs       int                `json:"ids"`                  // compared
	Differs   int                `json:"differs"`              // of these
	Notices   int                `json:"notices"`              // that differ
	Examples  []check.Difference `json:"examples"`             // some of what differs
	Shards    []pipeline.Shard   `json:"shards"`               // compared
	Skipped   map[string]string  `json:"skipped"`              // shards that could not be, and why
	Base      string             `json:"base,omitempty"`       // the backup that they began with; "": the first event
	Mixed     bool               `json:"mixed,omitempty"`      // not all was counted by today's rules
	CountedBy string             `json:"counted_by,omitempty"` // identifies the rules and limits; in answers to requests without ids
	Renewed   []pipeline.Shard   `json:"renewed"`              // shards that are taken again
	Refused   string             `json:"refused,omitempty"`    // why others are not, or none, though asked
	After     *Checked           `json:"after,omitempty"`      // what recount has found once those were there again
}

// VerifyAsk asks a node to verify a share of all ids, "1/64": the part with a
// number.
type VerifyAsk struct {
	Share   string `json:"share"`
	Residue uint64 `json:"residue"`
	Repair  bool   `json:"repair"`
}

// RecountAsk asks a node to compare ids, those of its shards.
type RecountAsk struct {
	Counter string   `json:"counter"` // their rows of it; "": all that is known of them
	IDs     []uint64 `json:"ids"`
	Repair  bool     `json:"repair"`
}

// RecountMax bounds the ids of a request.
const RecountMax = 10_000

// CompareVerb is the job of comparing a generation with the log, whether it serves or not.
const CompareVerb = "compare"

// CompareAsk asks a node to compare what it holds of a generation with the log.
type CompareAsk struct {
	Generation generations.Number `json:"generation"`
	Share      string             `json:"share"` // as in VerifyAsk
	Residue    uint64             `json:"residue"`
	Shards     []pipeline.Shard   `json:"shards,omitempty"` // these alone; none: all that answer
	Except     []string           `json:"except,omitempty"` // check.Difference.Name of what may differ
}

// Compared is what a node has found of a generation. It is compared also if not all of it
// was counted by its rules (mixed): what differs for that reason is a difference.
type Compared struct {
	Checked
	Generation generations.Number `json:"generation"`
	Differing  []uint64           `json:"differing"` // ids, DifferingMax at most
}

// DifferingMax bounds the ids of an answer, which has to fit into one message.
const DifferingMax = 10_000

// Misfit returns what is wrong with an answer; nil: nothing.
func (r *Compared) Misfit(node string, ask *CompareAsk) error {
	if r.Node != node || r.Generation != ask.Generation {
		return fmt.Errorf("it was answered for generation %d by %q", r.Generation, r.Node)
	}
	for _, s := range r.Shards {
		if !slices.Contains(ask.Shards, s) {
			return fmt.Errorf("it was answered for shard %d, which was not asked for", s)
		}
	}
	return nil
}

// WhySkipped returns why a shard that was asked for was not compared; nil: all were.
func (r *Compared) WhySkipped() error {
	for s, why := range r.Skipped {
		return fmt.Errorf("shard %s: %s", s, why)
	}
	return nil
}

// AgreeVerb is what nodes ask each other: do ids agree with the log?
const AgreeVerb = "agree"

// A node that compares for another one is asked again each agreeEvery, and not
// longer than agreeWithin: what differs is found again.
const (
	agreeEvery  = time.Second
	agreeWithin = time.Minute
)

// AskAgree asks a node to compare ids with the log, and waits while it is busy.
func AskAgree(ctx context.Context, nc *nats.Conn, node string, ask *RecountAsk) (*Checked, error) {
	raw, err := job.AskWhenFree(ctx, nc, node, AgreeVerb, ask, agreeEvery, agreeWithin)
	if err != nil {
		return nil, err
	}
	r := new(Checked)
	return r, json.Unmarshal(raw, r)
}

// SampleOf is the sample that a request names; an error is a job.Error.
func SampleOf(share string, residue uint64) (pipeline.Sample, error) {
	bits, err := pipeline.ParseShare(share)
	if err != nil {
		return pipeline.Sample{}, job.Bad("%v", err)
	}
	if residue>>bits != 0 {
		return pipeline.Sample{}, job.Bad("there is no part %d of %s", residue, share)
	}
	return pipeline.Sample{Bits: bits, Residue: residue}, nil
}
