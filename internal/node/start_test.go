package node

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/internal/node/led"
	"github.com/tidemark-io/tidemark/internal/nodetest"
)

// "or ctx ends first": an operator who stops a node that waits for its server's cluster
// to choose a leader does not wait for that too.
func TestStopWhileStarting(t *testing.T) {
	server := natstest.NewOutside(t, "jetstream: false\n")
	nc, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	asked := make(chan struct{}, 1000)
	_, err = nc.Subscribe("$JS.API.>", func(m *nats.Msg) {
		_ = m.Respond([]byte(`{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}`))
		asked <- struct{}{}
	})
	if err := errors.Join(err, nc.Flush()); err != nil {
		t.Fatal(err)
	}
	c := nodetest.EachLikeCounts()
	c.DataDir, c.NATS.URL, c.HTTP.Listen, c.Shards = t.TempDir(), server.URL(), "", 4
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		<-asked
		stop()
	}()
	begun := time.Now()
	if _, err := Start(ctx, c, Options{Logger: slog.New(slog.DiscardHandler)}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(begun); took > led.StartWithin/2 {
		t.Errorf("it took %v", took)
	}
}
