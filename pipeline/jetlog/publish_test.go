package jetlog_test

import (
	"errors"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// A read that EVENTS has no room for is known not to be stored.
func TestReadIntoAFullStream(t *testing.T) {
	b := newBench(t)
	reads := jetlog.NewReads(b.streams)
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
	_, err = b.js.Publish(b.ctx, "events.like", []byte(`{}`))
	if err == nil {
		t.Error("the stream was not full")
	}
	b.must(b.js.DeleteStream(b.ctx, jetlog.EventsStream))
	if _, err := reads.Publish(b.ctx, []byte(`{"actor":7,"what":["all"]}`)); err == nil || errors.Is(err, pipeline.ErrFull) {
		t.Errorf("no stream: %v", err)
	}
}
