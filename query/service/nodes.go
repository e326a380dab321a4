package service

import (
	"context"
	"encoding/json"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

func (s *Service) nodesEndpoint(cluster query.Cluster) *endpoint {
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

func (s *Service) shardsEndpoint(cluster query.Cluster) *endpoint {
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
func (c shardsCall) page(v *query.Shards) {
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
		s.log.Error("query: a view of the nodes cannot be written as JSON", "endpoint", c.endpoint.name, "error", err)
		return fail(codeInternal, "the nodes cannot be written as JSON")
	}
	c.out = append(c.out, out...)
	return nil
}
