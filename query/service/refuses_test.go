package service_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
	"github.com/tidemark-io/tidemark/query/service"
)

// "reads off": what is answered from counters is 503 with words; what tells how the node
// is goes on, and so does tidemark.read. docs/degradation.md: "producers: an error
// instead of the acknowledgement": the other way round.
func TestRefuses(t *testing.T) {
	var reads, writes atomic.Bool
	r := start(t, func(o *service.Options, _ *server.Options) {
		o.Schema = querytest.SetsSchema(t)
		o.Refuses = func(write bool) error {
			switch {
			case write && writes.Load():
				return errors.New("writes are refused")
			case !write && reads.Load():
				return errors.New("reads are off")
			}
			return nil
		}
	})
	queries := map[string]string{
		"get":       `{"counter":"post","ids":[42],"columns":["like"]}`,
		"unread":    `{"users":[7]}`,
		"feed":      `{"user":7}`,
		"following": `{"user":7}`,
		"followers": `{"user":7}`,
		"members":   `{"column":"post.like","id":42}`,
		"page":      `{"ids":[42],"viewer":7}`,
	}
	answer := func(name, body string) {
		t.Helper()
		if got := r.ask("tidemark."+name, body); len(got) == 0 || got[0] != '{' {
			t.Errorf("%s: %s", name, got)
		}
	}
	read := `{"user":"7","what":["feed"]}`

	reads.Store(true)
	for name, body := range queries {
		r.refuses(name, body, "503", "reads are off")
	}
	for _, name := range []string{"stats", "schema", "slowlog"} {
		answer(name, `{}`)
	}
	answer("read", read)

	reads.Store(false)
	writes.Store(true)
	for name, body := range queries {
		answer(name, body)
	}
	r.refuses("read", read, "503", "writes are refused; nothing was stored")

	// The log was first to know.
	writes.Store(false)
	r.events.Before = func(ctx context.Context) error {
		writes.Store(true)
		return fmt.Errorf("no room: %w", pipeline.ErrFull)
	}
	r.refuses("read", read, "503", "writes are refused; nothing was stored")
}
