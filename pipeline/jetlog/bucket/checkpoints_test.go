package bucket_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

func TestLowestCheckpoint(t *testing.T) {
	b := newBench(t)
	c := bucket.NewCheckpoints(b.streams)
	lowest := func(silentFor time.Duration, want uint64) {
		t.Helper()
		got, err := c.Lowest(b.ctx, silentFor)
		if b.must(err); got != want {
			t.Errorf("lowest %d, want %d", got, want)
		}
	}
	lowest(time.Hour, 0)
	b.must(c.Report(b.ctx, "slow", 10))
	b.must(c.Report(b.ctx, "fast", 90))
	b.must(c.Report(b.ctx, "fast", 100))
	lowest(time.Hour, 10)
	e2e.Until(t, "slow is silent, fast is not", func() bool {
		b.must(c.Report(b.ctx, "fast", 100))
		got, err := c.Lowest(b.ctx, 50*time.Millisecond)
		b.must(err)
		return got == 100
	})
	b.must(c.Report(b.ctx, "slow", 20))
	kv, err := b.js.KeyValue(b.ctx, jetlog.Bucket)
	b.must(err)
	_, err = kv.PutString(b.ctx, "node.stranger", "oops") // it kept DELTAS from being purged
	b.must(err)
	lowest(time.Hour, 20)
	b.must(c.Forget(b.ctx, "slow"))
	lowest(time.Hour, 100)
	if err := c.Report(b.ctx, "a.b c", 1); err == nil {
		t.Error("an impossible node name is accepted")
	}
}

// However many keys somebody makes, a bounded number is looked at.
func TestTooManyCheckpoints(t *testing.T) {
	b := newBench(t)
	c := bucket.NewCheckpoints(b.streams)
	for i := range 1000 {
		_, err := b.js.PublishAsync(fmt.Sprintf("$KV.TIDEMARK.node.n%d", i), []byte("7"), jetstream.WithStallWait(time.Minute))
		b.must(err)
	}
	<-b.js.PublishAsyncComplete()
	if lowest, err := c.Lowest(b.ctx, time.Hour); err != nil || lowest != 7 {
		t.Errorf("lowest is %d, %v", lowest, err)
	}
	b.must(c.Report(b.ctx, "more", 7))
	if _, err := c.Lowest(b.ctx, time.Hour); err == nil || !strings.Contains(err.Error(), "more than 1000") {
		t.Errorf("one too many: %v", err)
	}
}
