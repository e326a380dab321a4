package jetlog_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// Whoever deletes a stream is heard of, also a second time soon after: the line
// that would come too soon comes later. So is a stream that is missing when
// EVENTS is there.
func TestRecreatedStreamsAreReported(t *testing.T) {
	b := newBench(t)
	var log bytes.Buffer
	o := natstest.Options()
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	lines := func(text string, want int) {
		t.Helper()
		if got := strings.Count(log.String(), text); got != want {
			t.Fatalf("%d lines with %q, want %d:\n%s", got, text, want, log.String())
		}
	}
	b.must(b.js.DeleteStream(b.ctx, jetlog.DeadLetterStream))
	streams, err := jetlog.OpenStreams(b.ctx, natstest.Connect(t, b.server), o)
	b.must(err)
	lines("stream DEADLETTER was not there, and EVENTS was: it is created", 1)
	lines("was not there", 1)

	defer jetlog.TellRemadeEvery(jetlog.TellRemadeEvery(time.Hour))
	for range 2 {
		b.must(b.js.DeleteKeyValue(b.ctx, jetlog.Bucket))
		b.must(streams.Restore(b.ctx))
	}
	lines("stream KV_TIDEMARK is recreated", 1)
	jetlog.TellRemadeEvery(0)
	for range 2 {
		b.must(streams.Restore(b.ctx))
	}
	lines("stream KV_TIDEMARK is recreated", 2)
	lines("times=2", 1)
}
