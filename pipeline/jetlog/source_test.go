package jetlog_test

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// Two requests may end at one message, which is too large for what is left of both: it is not
// lost, and the consumer goes on.
func TestSourceOfLargeMessages(t *testing.T) {
	b := newBench(t)
	const messages = 60 // of three requests
	line := []byte(`{"x":"` + strings.Repeat("x", 450_000) + `"}`)
	for range messages {
		_, err := b.js.Publish(b.ctx, jetlog.PackSubject, line)
		b.must(err)
	}
	var log bytes.Buffer
	b.read(b.source(0, jetlog.RunOptions{BytesMax: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))}), messages)
	if log.Len() > 0 {
		t.Error(log.String())
	}
}

// It never waits in silence for a stream that is gone.
func TestSourceEndsWithItsStream(t *testing.T) {
	b := newBench(t)
	b.publish(3)
	s := b.source(0, jetlog.RunOptions{Heartbeat: 200 * time.Millisecond})
	b.read(s, 3)
	b.must(b.js.DeleteStream(b.ctx, jetlog.EventsStream))
	if _, err := s.Next(b.ctx); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("got %v", err)
	}
}

// Silence is not peace: a consumer that the server forgot is recreated.
func TestSourceNoticesAForgottenConsumer(t *testing.T) {
	b := newBench(t)
	s := b.source(0, jetlog.RunOptions{Heartbeat: 100 * time.Millisecond})
	names := b.stream(jetlog.EventsStream).ConsumerNames(b.ctx)
	for name := range names.Name() {
		b.must(b.js.DeleteConsumer(b.ctx, jetlog.EventsStream, name))
	}
	b.publish(2)
	if got := sequences(b.read(s, 2)); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("got %v", got)
	}
}

func TestSourceCloseTakesItsConsumerAway(t *testing.T) {
	b := newBench(t)
	s := b.source(0, jetlog.RunOptions{})
	b.must(s.Close())
	e2e.Until(t, "its consumer is gone", func() bool { return b.stream(jetlog.EventsStream).CachedInfo().State.Consumers == 0 })
}
