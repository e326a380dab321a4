package service

import (
	"context"
	"encoding/json"
)

func (s *Service) statsEndpoint() *endpoint {
	return &endpoint{
		name:        "stats",
		description: "the node's figures, the same as /metrics holds",
		request:     `{}`,
		reply:       `{"name":value,…}`,
		parse:       parseWait,
		answer:      s.views(s.answerStats),
	}
}

func (s *Service) answerStats(_ context.Context, c *call) *failure {
	figures := map[string]any{}
	if s.stats != nil {
		figures = s.stats()
	}
	c.clock.lap(stageMemory)
	out, err := json.Marshal(figures)
	if err != nil {
		s.log.Error("query: stats cannot be written as JSON", "error", err)
		return fail(codeInternal, "the figures cannot be written as JSON")
	}
	c.out = append(c.out, out...)
	return nil
}
