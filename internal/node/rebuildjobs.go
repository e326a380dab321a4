package node

import (
	"encoding/json"

	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/sinks/check"
)

// What tidemark rebuild asks of the node that routes the generation that serves.
// All but the first two take {} and answer a RebuildStatus.
const (
	RebuildPlanVerb   = "rebuild.plan" // takes a RebuildAsk, answers a RebuildPlan; nothing begins
	RebuildVerb       = "rebuild"      // takes a RebuildAsk, answers a RebuildBegun
	RebuildStatusVerb = "rebuild.status"
	RebuildAbortVerb  = "rebuild.abort"
	RebuildBackVerb   = "rebuild.back"
	RebuildAcceptVerb = "rebuild.accept"
)

// RebuildAsk asks for a generation more.
type RebuildAsk struct {
	Counting json.RawMessage `json:"counting,omitempty"` // config.Counting of what it is to count by; none: what serves counts by
	Accept   bool            `json:"accept,omitempty"`   // switch although they differ
	// Confirm is that of the RebuildPlan which the operator has confirmed: needed where it
	// drops something. A plan that is another one by now is refused.
	Confirm string `json:"confirm,omitempty"`
	// DropKept gives up the generation that is kept although it alone counts something.
	DropKept generations.Number `json:"drop_kept,omitempty"`
}

// RebuildBegun says which generation is building.
type RebuildBegun struct {
	Building generations.Number `json:"building"`
	Changes  []string           `json:"changes"` // config.Changes: what it counts differently
}

// RebuildStatus is how the newest rebuild stands.
type RebuildStatus struct {
	Serving  generations.Number `json:"serving"`
	Building generations.Number `json:"building"` // 0: none
	Kept     generations.Number `json:"kept"`     // served before; 0: none
	Newest   generations.Number `json:"newest"`   // of all that there ever were, as far as this node has heard
	State    generations.State  `json:"state"`
	Position uint64             `json:"position,string"` // that the new one has come to, of all its shards; it serves: where it is
	Of       uint64             `json:"of,string"`       // the newest of EVENTS
	ETA      float64            `json:"eta_s"`           // seconds until it has caught up, as fast as now; 0: it has, or nothing is known
	Differs  uint64             `json:"differs"`         // ids
	Waits    bool               `json:"waits,omitempty"` // compared, and it differs: for --accept or --abort
	Lost     bool               `json:"lost,omitempty"`  // the one that serves, or that is kept, has counted events that EVENTS has lost
	Why      string             `json:"why"`             // it was aborted, or does not go on; "": nothing to say
	Examples []check.Difference `json:"examples"`        // some of what differs
	Nodes    []RebuildNode      `json:"nodes"`           // that hold shards of the new one
}

// RebuildNode is how far a node is with the new generation.
type RebuildNode struct {
	Node     string `json:"node"`
	Shards   int    `json:"shards"`          // that it holds
	Position uint64 `json:"position,string"` // that they have come to
	Trouble  string `json:"trouble,omitempty"`
}
