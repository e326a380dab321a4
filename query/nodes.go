package query

import (
	"context"
	"encoding/json"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Cluster is what a process knows of all that make up the system. Its methods
// may be called concurrently and do not block; what they return is the caller's.
type Cluster interface {
	Nodes() Nodes
	Shards() Shards
}

// Nodes are the processes that make up the system, as tidemark.nodes tells it.
type Nodes struct {
	Epoch uint64 `json:"epoch"` // of the assignment of shards; 0: there is none yet
	Nodes []Node `json:"nodes"`
	// SilentMS: the node that answers has heard nothing of any node for so long, itself
	// included. It does not know how the others are and shows them as away. Left out
	// while something was heard within 2 s.
	SilentMS int64 `json:"silent_ms,omitempty"`
}

// Node is one of them.
type Node struct {
	Node    string            `json:"node"`
	Roles   []string          `json:"roles"` // route, hold, answer
	Zone    string            `json:"zone"`  // "": none
	Weight  int               `json:"weight"`
	Version string            `json:"version"`
	State   NodeState         `json:"state"`
	Routes  bool              `json:"routes"` // it is the one that routes now, and was heard within 2 s
	Shards  int               `json:"shards"` // that it holds and answers for
	Applied pipeline.Position `json:"applied,string"`
	// LagMS is the age of the newest event that it has applied, while newer ones wait; nil
	// where that is not known: the node is away, or silent.
	LagMS *int64 `json:"lag_ms"`
	// SilentMS is how long the node was not heard of; left out up to 2 s.
	SilentMS int64 `json:"silent_ms,omitempty"`
	// Config is ConfigDiffers, or left out.
	Config string `json:"config,omitempty"`
}

// ConfigDiffers is said of a node whose file counts something else than what serves. It
// counts by what serves.
const ConfigDiffers = "differs"

// NodeState is how a node is.
type NodeState string

// The states of a node.
const (
	NodeUp       NodeState = "up"
	NodeAway     NodeState = "away"     // it has been silent
	NodeDraining NodeState = "draining" // it gives its shards to others
)

// Shards say who holds which shard, as tidemark.shards tells it.
type Shards struct {
	Epoch    uint64         `json:"epoch"`
	Shards   []ShardHolders `json:"shards"`              // in order
	Next     int            `json:"next,omitempty"`      // where the next page begins; 0: this was the last
	SilentMS int64          `json:"silent_ms,omitempty"` // as in Nodes
	Replicas int            `json:"replicas,omitempty"`  // nodes that are to hold each shard; 0: there is no assignment yet
}

// ShardHolders are those who hold a shard, the most preferred first.
type ShardHolders struct {
	Shard   pipeline.Shard `json:"shard"`
	Holders []ShardHolder  `json:"holders"`
}

// ShardHolder is a node that holds a shard, or is to.
type ShardHolder struct {
	Node    string            `json:"node"`
	State   HolderState       `json:"state"`
	Applied pipeline.Position `json:"applied,string"`
	Loaded  *float64          `json:"loaded,omitempty"` // of HolderLoading: how much of it is there, 0 to 1
}

// HolderState is what a node has of a shard.
type HolderState string

// The states of a holder.
const (
	HolderReady   HolderState = "ready"
	HolderLoading HolderState = "loading"
	HolderAway    HolderState = "away"   // the node is
	HolderFailed  HolderState = "failed" // the shard has stopped there
)

func (s *Service) nodesEndpoint(cluster Cluster) *endpoint {
	return &endpoint{
		name:        "nodes",
		description: "the processes that make up the system, and how they are",
		request:     `{}`,
		reply:       `{"epoch":12,"nodes":[{"node":"a","roles":["route","hold","answer"],"zone":"","weight":1,"version":"…","state":"up","routes":true,"shards":16,"applied":"…","lag_ms":3}]}`,
		advice:      "raise the server's max_payload",
		parse:       parseWait,
		answer: func(_ context.Context, c *call) *failure {
			if cluster == nil {
				return unknownNodes()
			}
			view := cluster.Nodes()
			view.Nodes = orEmpty(view.Nodes)
			for i := range view.Nodes {
				view.Nodes[i].Roles = orEmpty(view.Nodes[i].Roles)
			}
			return s.answerView(c, view)
		},
	}
}

func (s *Service) shardsEndpoint(cluster Cluster) *endpoint {
	return &endpoint{
		name:        "shards",
		description: "who holds which shard",
		request:     `{"from":0,"limit":64}; both are optional; from is the next of the page before`,
		reply:       `{"epoch":12,"shards":[{"shard":0,"holders":[{"node":"a","state":"ready","applied":"…"}]}]}`,
		advice:      "pass a lower limit",
		parse:       parseShards,
		answer: s.views(func(_ context.Context, c *call) *failure {
			if cluster == nil {
				return unknownNodes()
			}
			view := cluster.Shards()
			c.shards.page(&view)
			for i := range view.Shards {
				view.Shards[i].Holders = orEmpty(view.Shards[i].Holders)
			}
			return s.answerView(c, view)
		}),
	}
}

// shardsCall is which of the shards are asked for.
type shardsCall struct{ from, limit int }

// parseShards reads {"from":0,"limit":64}; without them all are asked for.
func parseShards(c *call) *failure {
	c.shards = shardsCall{limit: pipeline.ShardsMax}
	if len(c.body) == 0 {
		return nil
	}
	s := &c.scanner
	s.Reset(c.body)
	for s.Object(); s.Member(); {
		var f *failure
		switch key := s.Key(); string(key) {
		case "from":
			if s.Null() {
				continue
			}
			n, raw, ok := s.Uint()
			if s.Err() == nil && (!ok || n >= pipeline.ShardsMax) {
				return fail(codeBadRequest, "from: %s is not a number from 0 to %d", clip(raw), pipeline.ShardsMax-1)
			}
			c.shards.from = int(n)
		case "limit":
			f = parseLimit(s, &c.shards.limit, pipeline.ShardsMax)
		default:
			f = c.wait.orPass(s, key)
		}
		if f != nil {
			return f
		}
	}
	return notJSON(s.End())
}

// page leaves of all shards those that were asked for.
func (c shardsCall) page(v *Shards) {
	from, end := min(c.from, len(v.Shards)), min(c.from+c.limit, len(v.Shards))
	if end < len(v.Shards) {
		v.Next = end
	}
	v.Shards = orEmpty(v.Shards[from:end])
}

// unknownNodes is the answer of a process that was given no view of the others.
func unknownNodes() *failure {
	return fail(codeNotReady, "not ready: this process does not know which nodes there are")
}

// orEmpty is a list that JSON shows as one.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// answerView writes a view, which is the call's own.
func (s *Service) answerView(c *call, view any) *failure {
	c.clock.lap(stageMemory)
	out, err := json.Marshal(view)
	if err != nil {
		s.log.Error("query: a view of the nodes cannot be written as JSON", "endpoint", c.endpoint.name, "err", err)
		return fail(codeInternal, "the nodes cannot be written as JSON")
	}
	c.out = append(c.out, out...)
	return nil
}
