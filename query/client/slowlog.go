package client

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tidemark-io/tidemark/query"
)

// SlowLog asks for the requests that took long. With reset the node forgets
// them behind its answer.
func (c *Client) SlowLog(ctx context.Context, reset bool) (log query.SlowLog, err error) {
	body := []byte(`{}`)
	if reset {
		body = []byte(`{"reset":true}`)
	}
	reply, err := c.ask(ctx, "tidemark.slowlog", body, wait{})
	if err != nil {
		return log, err
	}
	if err := json.Unmarshal(reply, &log); err != nil {
		return log, fmt.Errorf("client: the reply of tidemark.slowlog: %w", err)
	}
	return log, nil
}
