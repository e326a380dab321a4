package natstest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// Publish stores n events by js, whose bodies are their sequences.
func Publish(ctx context.Context, tb testing.TB, s *jetlog.Streams, js jetstream.JetStream, n int) {
	tb.Helper()
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	state, err := s.State(ctx, jetlog.EventsStream)
	must(err)
	for i := range n {
		_, err := js.PublishAsync("events.like", fmt.Append(nil, state.Last+uint64(i)+1), jetstream.WithStallWait(time.Minute))
		must(err)
		if i%2000 == 1999 || i == n-1 {
			<-js.PublishAsyncComplete()
		}
	}
}

// Read takes messages until n have come, and checks that they are in order and their own.
func Read(ctx context.Context, tb testing.TB, s *jetlog.Source, n int) []pipeline.Message {
	tb.Helper()
	var all []pipeline.Message
	for len(all) < n {
		run, err := s.Next(ctx)
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, run...)
	}
	for i, m := range all {
		if i > 0 && m.Sequence <= all[i-1].Sequence {
			tb.Fatalf("sequence %d comes after %d", m.Sequence, all[i-1].Sequence)
		}
		if got := fmt.Sprint(m.Sequence); m.Subject == "events.like" && string(m.Data) != got {
			tb.Fatalf("sequence %s has the body of %s", got, m.Data)
		}
	}
	return all
}
