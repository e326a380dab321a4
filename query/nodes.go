package query

import "github.com/tidemark-io/tidemark/pipeline"

// Cluster is what a process knows of all that make up the system. Its methods
// may be called concurrently and do not block; what they return is the caller's.
type Cluster interface {
	Nodes() Nodes
	Shards() Shards
}

// Nodes are the processes that make up the system, as tidemark.nodes shows it.
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

// Shards are the holders of each shard, as tidemark.shards shows it.
type Shards struct {
	Epoch    uint64         `json:"epoch"`
	Shards   []ShardHolders `json:"shards"`              // in order
	Next     int            `json:"next,omitempty"`      // where the next page begins; 0: this was the last
	SilentMS int64          `json:"silent_ms,omitempty"` // as in Nodes
	Replicas int            `json:"replicas,omitempty"`  // nodes that are to hold each shard; 0: there is no assignment yet
}

// ShardHolders are the holders of a shard, the most preferred first.
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
