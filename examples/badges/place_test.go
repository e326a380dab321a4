package badges_test

import (
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/tidemark-io/tidemark/examples/badges"
	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node"
	"github.com/tidemark-io/tidemark/query/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place is a node with the page on it, as `tidemark run --demo` has it, but
// with nobody in it.
type place struct {
	t      testing.TB
	node   *node.Node
	client *client.Client
	url    string // of the page
}

func open(t testing.TB) *place {
	t.Helper()
	c := config.Default()
	c.DataDir = filepath.Join(t.TempDir(), "data")
	c.NATS.Listen = "127.0.0.1:0"
	c.HTTP.Listen = "127.0.0.1:0"
	c.Shards = 4
	c.Badger.MemTable = 16 << 20
	c.Checkpoint.Rows = 1024
	c.Channels = []config.Channel{{Name: "games", Kind: config.KindDot}}
	log := slog.New(slog.DiscardHandler)
	n, err := node.Start(t.Context(), c, node.Options{Version: "test", Logger: log, Pages: map[string]func(*nats.Conn) http.Handler{
		"/demo/": func(nc *nats.Conn) http.Handler {
			return badges.Handler(client.New(nc), badges.Options{MadeUp: true, Logger: log})
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	p := &place{t: t, node: n, url: "http://" + n.HTTPAddress() + "/demo/"}
	if p.client, err = client.Connect(n.URL()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.client.Close)
	return p
}

// publish stores events and returns when every answer has them.
func (p *place) publish(events ...client.Event) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 2*time.Minute)
	defer cancel()
	for _, e := range events {
		at, err := p.client.Publish(ctx, e)
		if err == nil {
			err = p.node.WaitApplied(ctx, at)
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
}
