package bucket_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

// fill writes keys into the bucket until it takes no more.
func (b *bench) fill(format string) {
	b.Helper()
	for size := 256 << 10; size >= 16; size /= 2 {
		for i := 0; ; i++ {
			m := &nats.Msg{Subject: "$KV.TIDEMARK." + fmt.Sprintf(format, fmt.Sprintf("%d-%d", size, i)), Data: make([]byte, size)}
			if _, err := b.js.PublishMsg(b.ctx, m); err != nil {
				break // it is full, for this size
			}
		}
	}
}

// Where the bucket is full, a node that is not heard
// of says so, and one that cannot join says why.
func TestFullBucketIsSaid(t *testing.T) {
	b := newBench(t)
	a, c := b.process(nil), b.process(nil)
	me := member("a")
	b.must(a.Join(b.ctx, me))
	b.fill("node.%s")
	if err := c.Join(b.ctx, member("c")); !errors.Is(err, bucket.ErrFull) {
		t.Errorf("c joins: %v", err)
	}
	me.Version = "1.2.3-what-the-node-says-of-itself-grows"
	a.beats(me)
	e2e.Until(t, "a says that it is not heard of", func() bool {
		since, why := a.Unheard()
		return errors.Is(why, bucket.ErrFull) && since > 2*beat
	})
}
