package service_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/service"
)

// counting counts the questions that a Reader works on at once.
type counting struct {
	query.Reader
	now, most atomic.Int64
	hold      chan struct{} // nil: each question takes a millisecond; else they wait for it
}

func (c *counting) work() {
	now := c.now.Add(1)
	for most := c.most.Load(); now > most && !c.most.CompareAndSwap(most, now); {
		most = c.most.Load()
	}
	if c.hold != nil {
		<-c.hold
	} else {
		time.Sleep(time.Millisecond)
	}
	c.now.Add(-1)
}

func (c *counting) Rows(ctx context.Context, counter int, columns []pipeline.Column, ids []uint64, rows *query.Rows, disk bool) error {
	if len(ids) > 1 {
		c.work()
	}
	return c.Reader.Rows(ctx, counter, columns, ids, rows, disk)
}

func (c *counting) Unread(ctx context.Context, users []uint64, channels []string, out *query.Unreads, disk bool) error {
	c.work()
	return c.Reader.Unread(ctx, users, channels, out, disk)
}

func (c *counting) Feed(ctx context.Context, user uint64, before pipeline.Position, limit int, out *query.FeedPage, disk bool) error {
	c.work()
	return c.Reader.Feed(ctx, user, before, limit, out, disk)
}

func (c *counting) Followers(ctx context.Context, user, after uint64, limit int, out *query.UserPage, disk bool) error {
	c.work()
	return c.Reader.Followers(ctx, user, after, limit, out, disk)
}

// Large requests of all kinds together keep as many goroutines computing as there
// are workers: more would take the processors from the small ones.
func TestLongRequestsComputeInTurns(t *testing.T) {
	reader, kinds := new(counting), long()
	r := start(t, func(o *service.Options, _ *server.Options) {
		reader.Reader, o.Reader, o.Limits.Workers = o.Reader, reader, 1
		o.Stats = func() map[string]any { reader.work(); return map[string]any{} }
	})
	r.service.SetTurnPatience(time.Minute)
	var asking sync.WaitGroup
	for i := range 8 * len(kinds) {
		asking.Go(func() {
			k := kinds[i%len(kinds)]
			for range 5 {
				if got := r.ask("tidemark."+k.endpoint, k.body); !strings.HasPrefix(got, "{") {
					t.Errorf("%s: %.200s", k.endpoint, got)
				}
			}
		})
	}
	asking.Wait()
	if most := reader.most.Load(); most != 1 {
		t.Errorf("%d large requests were worked on at once, by 1 worker", most)
	}
}

// A request that has its turn for very long does not stop those of other lanes.
func TestNoTurnIsWaitedForForLong(t *testing.T) {
	reader := &counting{hold: make(chan struct{})}
	r := start(t, func(o *service.Options, _ *server.Options) {
		reader.Reader, o.Reader, o.Limits.Workers = o.Reader, reader, 1
	})
	var asking sync.WaitGroup
	for _, k := range long()[:3] {
		asking.Go(func() {
			if got := r.ask("tidemark."+k.endpoint, k.body); !strings.HasPrefix(got, "{") {
				t.Errorf("%s: %.200s", k.endpoint, got)
			}
		})
	}
	until(t, "a large request and a page are worked on", func() bool { return reader.now.Load() == 2 })
	r.get(`{"counter":"post","ids":[1],"columns":["like"]}`, `{"rows":[{"id":"1","like":0}],"as_of":"0"}`)
	close(reader.hold)
	asking.Wait()
}

type longRequest struct{ endpoint, body string }

func long() []longRequest {
	return []longRequest{
		{"feed", `{"user":7}`},
		{"unread", `{"users":[` + strings.Repeat("1,", 100) + `1]}`},
		{"get", `{"counter":"post","columns":["like"],"ids":[` + strings.Repeat("1,", 2000) + `1]}`},
		{"followers", `{"user":7}`},
		{"stats", `{}`},
	}
}
