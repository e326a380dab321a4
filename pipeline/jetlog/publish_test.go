package jetlog_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/natstest"
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
	failed := make(chan error, 1)
	go func() {
		_, err := jetlog.NewReads(streams).Publish(t.Context(), []byte(`{"type":"read","actor":7,"what":["all"]}`))
		failed <- err
	}()
	time.Sleep(100 * time.Millisecond) // it has been sent in vain
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
