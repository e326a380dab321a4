package jetlog_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"

	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// "it sends again only what nobody was there to take": as while a cluster's
// stream moves from one server to another. It is stored once.
func TestReadsWaitForALeader(t *testing.T) {
	streams, js := natstest.Streams(t, natstest.Server(t))
	stream, err := js.Stream(t.Context(), jetlog.EventsStream)
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	if err := js.DeleteStream(t.Context(), jetlog.EventsStream); err != nil {
		t.Fatal(err)
	}
	before := streams.Conn().Stats()
	failed := make(chan error, 1)
	go func() {
		_, err := jetlog.NewPublisher(streams).Publish(t.Context(), []byte(`{"type":"read","actor":7,"what":["all"]}`))
		failed <- err
	}()
	e2e.Until(t, "it has been sent in vain", func() bool {
		now := streams.Conn().Stats()
		return now.OutMsgs > before.OutMsgs && now.InMsgs > before.InMsgs
	})
	if stream, err = js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err != nil {
		t.Error(err)
	}
	info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter("events.read"))
	if err != nil || info.State.Msgs != 1 {
		t.Errorf("%d reads are stored: %v", info.State.Msgs, err)
	}
}

// A read that EVENTS has no room for is known not to be stored.
func TestReadIntoAFullStream(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	reads := jetlog.NewPublisher(b.streams)
	at, err := reads.Publish(b.ctx, []byte(`{"actor":7,"what":["all"]}`))
	b.must(err)
	if at != pipeline.At(1, 0) {
		t.Errorf("position %d", at)
	}
	config := b.stream(jetlog.EventsStream).CachedInfo().Config
	config.MaxBytes = 1
	_, err = b.js.UpdateStream(b.ctx, config)
	b.must(err)
	if _, err := reads.Publish(b.ctx, []byte(`{"actor":7,"what":["all"]}`)); !errors.Is(err, pipeline.ErrFull) {
		t.Errorf("a full stream: %v", err)
	}
	if err := b.streams.WriteFault(time.Hour); err != nil {
		t.Errorf("a full stream is no fault of a write: %v", err)
	}
	_, err = b.js.Publish(b.ctx, "events.like", []byte(`{}`))
	if err == nil {
		t.Error("the stream was not full")
	}
	b.must(b.js.DeleteStream(b.ctx, jetlog.EventsStream))
	if _, err := reads.Publish(b.ctx, []byte(`{"actor":7,"what":["all"]}`)); err == nil || errors.Is(err, pipeline.ErrFull) {
		t.Errorf("no stream: %v", err)
	}
	if err := b.streams.WriteFault(time.Hour); err == nil || !strings.Contains(err.Error(), "is not known to be stored") {
		t.Errorf("after a failed write: %v", err)
	}
}
