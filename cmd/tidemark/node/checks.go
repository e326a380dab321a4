package node

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/tidemark-io/tidemark/cmd/tidemark/job"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/audit"
)

// Checked is what a node has found of the shards that it answers for: the result
// of the jobs verify and recount.
type Checked struct {
	Node      string             `json:"node"`
	IDs       int                `json:"ids"`                  // compared
	Differs   int                `json:"differs"`              // of these
	Notices   int                `json:"notices"`              // that differ
	Examples  []audit.Difference `json:"examples"`             // some of what differs
	Shards    []pipeline.Shard   `json:"shards"`               // compared
	Skipped   map[string]string  `json:"skipped"`              // shards that could not be, and why
	Passes    int                `json:"passes"`               // over EVENTS
	Base      string             `json:"base,omitempty"`       // the backup that they began with; "": the first event
	Mixed     bool               `json:"mixed,omitempty"`      // not all was counted by today's rules
	CountedBy string             `json:"counted_by,omitempty"` // tells the rules and limits; of a request without ids
	Renewed   []pipeline.Shard   `json:"renewed"`              // shards that are taken again
	Refused   string             `json:"refused,omitempty"`    // why others are not, or none, though asked
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

func (n *generation) verify(ctx context.Context, request []byte, progress func(any)) (any, error) {
	var ask VerifyAsk
	if err := json.Unmarshal(request, &ask); err != nil {
		return nil, job.Bad("the request is not of this form: %v", err)
	}
	sample, err := sampleOf(ask.Share, ask.Residue)
	if err != nil {
		return nil, err
	}
	return n.check(ctx, audit.Task{Sample: sample}, ask.Repair, progress)
}

func sampleOf(share string, residue uint64) (audit.Sample, error) {
	bits, err := audit.ParseShare(share)
	if err != nil {
		return audit.Sample{}, job.Bad("%v", err)
	}
	if residue>>bits != 0 {
		return audit.Sample{}, job.Bad("there is no part %d of %s", residue, share)
	}
	return audit.Sample{Bits: bits, Residue: residue}, nil
}

func (n *generation) recount(ctx context.Context, request []byte, progress func(any)) (any, error) {
	ask := RecountAsk{IDs: []uint64{}}
	if err := json.Unmarshal(request, &ask); err != nil {
		return nil, job.Bad("the request is not of this form: %v", err)
	}
	if len(ask.IDs) > RecountMax || slices.Contains(ask.IDs, 0) {
		return nil, job.Bad("%d ids; allowed: %d, none of them 0", len(ask.IDs), RecountMax)
	}
	if len(ask.IDs) == 0 {
		c := n.checked(&audit.Report{})
		c.CountedBy, _ = n.counted()
		return c, nil
	}
	if _, known := n.store.Schema().Counter(ask.Counter); ask.Counter != "" && !known {
		return nil, job.Bad("there is no counter %q", ask.Counter)
	}
	return n.check(ctx, audit.Task{IDs: ask.IDs, Counter: ask.Counter}, ask.Repair, progress)
}

// check does a task; with repair, shards that differ are taken again.
func (n *generation) check(ctx context.Context, t audit.Task, repair bool, progress func(any)) (*Checked, error) {
	r, err := n.hold(ctx, t, progress)
	if err != nil {
		return nil, err
	}
	c := n.checked(r)
	if repair && r.Differ+r.Channels > 0 {
		renewed, err := n.repair(r)
		c.Renewed = append(c.Renewed, renewed...)
		if c.Mixed = n.mixed(); c.Mixed {
			err = errMixed
		}
		if err != nil {
			c.Refused = err.Error()
		}
	}
	return c, nil
}

// hold holds what is served to the log.
func (n *generation) hold(ctx context.Context, t audit.Task, progress func(any)) (*audit.Report, error) {
	t.Memory, t.Progress = int(n.config.Audit.Memory), func(p audit.Progress) { progress(p) }
	return n.audits.Run(ctx, t)
}

// checked is a report as JSON has it: a list of nothing is [].
func (n *generation) checked(r *audit.Report) *Checked {
	c := &Checked{
		Node: n.name, IDs: r.IDs, Differs: r.Differ, Notices: r.Channels, Passes: r.Passes, Base: r.Base, Mixed: n.mixed(),
		Examples: append([]audit.Difference{}, r.Examples...), Shards: []pipeline.Shard{}, Skipped: map[string]string{}, Renewed: []pipeline.Shard{},
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
