// Package checks has what nodes are asked to compare with the log: the jobs, their requests
// and answers, and how all nodes are asked. Commands ask (verify, recount), nodes ask each
// other (agree), and so does who leads a rebuild (compare, comparison.go). A node compares in
// internal/node/counting; internal/job brings the request there and the answer back.
package checks

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/pipeline"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/sinks/check"
)

// The jobs. All of them take an Ask and answer a Checked.
const (
	VerifyVerb  = "verify"  // a share of all ids
	RecountVerb = "recount" // some ids; without any: by what rules was counted
	AgreeVerb   = "agree"   // the same, of another node: a command that has nodes repair holds their turns of recount
	CompareVerb = "compare" // a generation, whether it serves or not, with what is stored that the log does not name
)

// Ask asks a node to compare what it holds with the log.
type Ask struct {
	Share   string   `json:"share,omitempty"` // of all ids, "1/64", the part with a number
	Residue uint64   `json:"residue,omitempty"`
	IDs     []uint64 `json:"ids,omitempty"`     // or these, IDsMax at most
	Counter string   `json:"counter,omitempty"` // their rows of it; "": all that is known of them
	Repair  bool     `json:"repair,omitempty"`  // have shards that differ be taken again

	Generation generations.Number `json:"generation,omitempty"` // of compare
	Shards     []pipeline.Shard   `json:"shards,omitempty"`     // these alone; none: all that answer
	Except     []string           `json:"except,omitempty"`     // check.Difference.Name of what may differ
}

// IDsMax bounds the ids of a request.
const IDsMax = 10_000

// Task is what a request asks for; an error is a job.Error.
func (a *Ask) Task(schema *pipeline.Schema) (t check.Task, err error) {
	if len(a.IDs) > IDsMax || slices.Contains(a.IDs, 0) {
		return t, job.Bad("%d ids; allowed: %d, none of them 0", len(a.IDs), IDsMax)
	}
	if _, known := schema.Counter(a.Counter); a.Counter != "" && !known {
		return t, job.Bad("there is no counter %q", a.Counter)
	}
	t = check.Task{IDs: a.IDs, Counter: a.Counter, Shards: a.Shards, Except: a.Except}
	if a.Share == "" {
		return t, nil
	}
	if t.Sample.Bits, err = pipeline.ParseShare(a.Share); err != nil {
		return t, job.Bad("%v", err)
	}
	if t.Sample.Residue = a.Residue; a.Residue>>t.Sample.Bits != 0 {
		return t, job.Bad("there is no part %d of %s", a.Residue, a.Share)
	}
	return t, nil
}

// Checked is what a node has found of the shards that it answers for. What was not all counted
// by its rules (mixed) is compared all the same: what differs for that reason is a difference.
type Checked struct {
	Node      string             `json:"node"`
	IDs       int                `json:"ids"`                  // compared
	Differs   int                `json:"differs"`              // of these
	Notices   int                `json:"notices"`              // that differ; 65,536 stands for more too
	Examples  []check.Difference `json:"examples"`             // some of what differs
	Shards    []pipeline.Shard   `json:"shards"`               // compared
	Skipped   map[string]string  `json:"skipped"`              // shards that could not be, and why
	Base      string             `json:"base,omitempty"`       // the backup that it began with; "": the first event
	Mixed     bool               `json:"mixed,omitempty"`      // not all was counted by today's rules
	CountedBy string             `json:"counted_by,omitempty"` // identifies the rules and limits; in answers to requests without ids
	Renewed   []pipeline.Shard   `json:"renewed"`              // shards that are taken again
	Refused   string             `json:"refused,omitempty"`    // why others are not, or none, though asked
	After     *Checked           `json:"after,omitempty"`      // what recount has found once those were there again

	Generation generations.Number `json:"generation,omitempty"` // of compare
	Differing  []uint64           `json:"differing,omitempty"`  // ids, DifferingMax at most; of compare
}

// DifferingMax bounds the ids of an answer, which has to fit into one message.
const DifferingMax = 10_000

// Outcome is what a node said.
type Outcome struct {
	Found *Checked // nil: Err says why
	Err   error
}

// AskAll asks nodes side by side, each its own. tell gets how far a node is, one call at a time.
func AskAll(ctx context.Context, nc *nats.Conn, verb string, asks map[string]*Ask, tell func(node string, p check.Progress)) map[string]Outcome {
	outcomes := make(map[string]Outcome, len(asks))
	var mu sync.Mutex
	var work sync.WaitGroup
	for node, ask := range asks {
		work.Go(func() {
			raw, err := job.Ask(ctx, nc, node, verb, ask, func(raw json.RawMessage) {
				var p check.Progress
				if json.Unmarshal(raw, &p) == nil {
					mu.Lock()
					defer mu.Unlock()
					tell(node, p)
				}
			})
			found := new(Checked)
			if err == nil {
				err = json.Unmarshal(raw, found)
			}
			if err != nil {
				found = nil
			}
			mu.Lock()
			defer mu.Unlock()
			outcomes[node] = Outcome{found, err}
		})
	}
	work.Wait()
	return outcomes
}

// A node that compares for another one is asked again each agreeEvery, and not
// longer than agreeWithin: what differs is found again.
const (
	agreeEvery  = time.Second
	agreeWithin = time.Minute
)

// AskAgree asks a node whether ids agree with the log, and waits while it is busy.
func AskAgree(ctx context.Context, nc *nats.Conn, node string, ids []uint64) (*Checked, error) {
	raw, err := job.AskWhenFree(ctx, nc, node, AgreeVerb, &Ask{IDs: ids}, agreeEvery, agreeWithin)
	if err != nil {
		return nil, err
	}
	r := new(Checked)
	return r, json.Unmarshal(raw, r)
}
