package client

import (
	"context"
	"fmt"
	"time"
)

// Nodes are the processes that make up the system, as the one that answered
// knows them.
type Nodes struct {
	Epoch uint64 // of the assignment of shards; 0: there is none yet
	Nodes []Node
	// Silent: the node that answered has heard nothing of any node for so long, itself
	// included. It does not know how the others are and shows them as away. 0 while
	// something was heard within 2 s.
	Silent time.Duration
}

// Node is one of them.
type Node struct {
	Node    string
	Roles   []string // "route", "hold", "answer"
	Zone    string   // "": none
	Weight  int      // its share of the shards beside the others'
	Version string
	State   string        // "up", "away", "draining"; a later version may have more
	Routes  bool          // it is the one that routes now, and was heard within 2 s
	Shards  int           // that it holds and answers for
	Applied Position      // how far it is
	Lag     time.Duration // age of the newest event that it has applied, while newer ones wait; only with LagKnown
	// LagKnown: not of a node that is away or silent.
	LagKnown bool
	Silent   time.Duration // how long the node was not heard of; 0 up to 2 s
	Config   string        // "differs": its file counts something else than what serves, by which it counts; "" otherwise
}

// Shards are the holders of each shard.
type Shards struct {
	Epoch  uint64
	Shards []Shard       // in order
	Silent time.Duration // as in Nodes
	// Replicas is how many nodes are to hold each shard; 0: there is no assignment yet.
	Replicas int
}

// Shard is one of them.
type Shard struct {
	Shard   int
	Holders []Holder // the most preferred first
}

// Holder is a node that holds a shard, or is to.
type Holder struct {
	Node    string
	State   string   // "ready", "loading", "away", "failed"; a later version may have more
	Applied Position // how far its copy is
	Loaded  float64  // how much of the shard is there, 0 to 1; 1 unless State is "loading"
}

// Nodes asks which processes there are, and how they are.
func (c *Client) Nodes(ctx context.Context, options ...Option) (Nodes, error) {
	var reply struct {
		Epoch uint64 `json:"epoch"`
		Nodes []struct {
			Node    string   `json:"node"`
			Roles   []string `json:"roles"`
			Zone    string   `json:"zone"`
			Weight  int      `json:"weight"`
			Version string   `json:"version"`
			State   string   `json:"state"`
			Routes  bool     `json:"routes"`
			Shards  int      `json:"shards"`
			Applied Position `json:"applied,string"`
			LagMS   *int64   `json:"lag_ms"`
			Silent  int64    `json:"silent_ms"`
			Config  string   `json:"config"`
		} `json:"nodes"`
		SilentMS int64 `json:"silent_ms"`
	}
	if err := c.view(ctx, "nodes", "", options, &reply); err != nil {
		return Nodes{}, err
	}
	nodes := Nodes{Epoch: reply.Epoch, Silent: time.Duration(reply.SilentMS) * time.Millisecond}
	for _, n := range reply.Nodes {
		node := Node{
			Node: n.Node, Roles: n.Roles, Zone: n.Zone, Weight: n.Weight, Version: n.Version, State: n.State,
			Routes: n.Routes, Shards: n.Shards, Applied: n.Applied, Silent: time.Duration(n.Silent) * time.Millisecond, Config: n.Config,
		}
		if n.LagMS != nil {
			node.Lag, node.LagKnown = time.Duration(*n.LagMS)*time.Millisecond, true
		}
		nodes.Nodes = append(nodes.Nodes, node)
	}
	return nodes, nil
}

const (
	// shardsPage is how many shards are asked for at a time where they do not all fit
	// into one message of the server's.
	shardsPage = 64
	// shardsAgain is how often it is begun again because the pages are of more than one
	// assignment: of two nodes that answer in turns, one may know an old one for long.
	shardsAgain = 8
)

// Shards asks for the holders of each shard.
func (c *Client) Shards(ctx context.Context, options ...Option) (Shards, error) {
	all, _, err := c.shards(ctx, "", options)
	if !isCode(err, codeTooMuch) {
		return all, err
	}
	all = Shards{}
	for from, again := 0, 0; ; {
		page, next, err := c.shards(ctx, fmt.Sprintf(`"from":%d,"limit":%d`, from, shardsPage), options)
		switch {
		case err != nil:
			return Shards{}, err
		case from > 0 && page.Epoch != all.Epoch: // others hold what was asked for before
			if again++; again > shardsAgain {
				return Shards{}, fmt.Errorf("client: who holds which shard does not fit into a message, and came of another assignment %d times while it was read", again)
			}
			from = 0
			continue
		case from > 0:
			page.Shards = append(all.Shards, page.Shards...)
		}
		if all = page; next <= from {
			return all, nil
		}
		from = next
	}
}

// shards asks for some; next is 0 where there are no more.
func (c *Client) shards(ctx context.Context, fields string, options []Option) (all Shards, next int, err error) {
	var reply struct {
		Epoch  uint64 `json:"epoch"`
		Shards []struct {
			Shard   int `json:"shard"`
			Holders []struct {
				Node    string   `json:"node"`
				State   string   `json:"state"`
				Applied Position `json:"applied,string"`
				Loaded  *float64 `json:"loaded"`
			} `json:"holders"`
		} `json:"shards"`
		Next     int   `json:"next"`
		SilentMS int64 `json:"silent_ms"`
		Replicas int   `json:"replicas"`
	}
	if err := c.view(ctx, "shards", fields, options, &reply); err != nil {
		return Shards{}, 0, err
	}
	shards := Shards{Epoch: reply.Epoch, Silent: time.Duration(reply.SilentMS) * time.Millisecond, Replicas: reply.Replicas}
	for _, s := range reply.Shards {
		shard := Shard{Shard: s.Shard}
		for _, h := range s.Holders {
			holder := Holder{Node: h.Node, State: h.State, Applied: h.Applied, Loaded: 1}
			if h.Loaded != nil {
				holder.Loaded = *h.Loaded
			}
			shard.Holders = append(shard.Holders, holder)
		}
		shards.Shards = append(shards.Shards, shard)
	}
	return shards, reply.Next, nil
}

func (c *Client) view(ctx context.Context, endpoint, fields string, options []Option, reply any) error {
	body, err := c.simple(ctx, "tidemark."+endpoint, fields, options)
	if err != nil {
		return err
	}
	if err := decode(body, reply); err != nil {
		return fmt.Errorf("client: the reply of tidemark.%s: %w", endpoint, err)
	}
	return nil
}
