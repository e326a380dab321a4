package bucket_test

import (
	"testing"

	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

// Two generations on one EVENTS know nothing of each other's windows, members,
// assignment, lease and checkpoints; what people tell all nodes holds for both.
func TestSlots(t *testing.T) {
	b := newBench(t)
	o := natstest.Options()
	o.Slot = 1
	second, err := jetlog.OpenStreams(b.ctx, b.connect(), o)
	b.must(err)

	// Members of the same name, other shards and counters.
	p1 := b.process(nil)
	b.must(p1.Join(b.ctx, member("a")))
	p1.beats(member("a"))
	other := member("a")
	other.Shards, other.Fingerprint = 64, 8
	p2 := b.processOn(second, nil, nil)
	b.must(p2.Join(b.ctx, other))
	p2.beats(other)
	p1.sees("a up")
	if v := p2.sees("a up"); v.Members[0].Shards != 64 {
		t.Errorf("the second slot shows a member with %d shards", v.Members[0].Shards)
	}

	b.must(p1.Assign(b.ctx, p1.View(), cluster.Assignment{Epoch: 1, Replicas: 1, ByShard: [][]string{{"a"}}}))
	p1.until("the assignment", func(v *cluster.View) bool { return v.Assignment.Epoch == 1 })
	b.must(p1.Drain(b.ctx, "a"))
	b.must(p1.Degrade(b.ctx, cluster.Degrade{Reads: cluster.ReadsMemory, Writes: cluster.WritesOn}))
	v := p2.until("the drain and the degradation", func(v *cluster.View) bool {
		return len(v.Drained) == 1 && v.Degrade.Reads == cluster.ReadsMemory
	})
	if v.Assignment.Epoch != 0 {
		t.Errorf("the second slot has the first one's assignment, epoch %d", v.Assignment.Epoch)
	}

	// Both are led at once.
	for _, s := range []*jetlog.Streams{b.streams, second} {
		lease, err := bucket.NewLease(s, bucket.LeaseOptions{Owner: "a"})
		b.must(err)
		_, release, err := lease.Acquire(b.ctx)
		b.must(err)
		defer release()
	}

	b.must(bucket.NewCheckpoints(b.streams).Report(b.ctx, "a", 9))
	b.must(bucket.NewCheckpoints(second).Report(b.ctx, "a", 7))
	for want, s := range map[uint64]*jetlog.Streams{9: b.streams, 7: second} {
		if got, err := bucket.NewCheckpoints(s).Lowest(b.ctx, 0); err != nil || got != want {
			t.Errorf("the lowest checkpoint of slot %d is %d, not %d: %v", s.Slot(), got, want, err)
		}
	}

	windows := func(s *jetlog.Streams, want uint64) {
		t.Helper()
		if _, last, err := jetlog.NewDeltaLog(s).Tail(b.ctx); err != nil || last != want {
			t.Errorf("slot %d has %d windows, not %d: %v", s.Slot(), last, want, err)
		}
	}
	first, behind := jetlog.NewDeltaLog(b.streams), jetlog.NewDeltaLog(second)
	for i := range uint64(3) {
		_, err := first.Append(b.ctx, i, window(pipeline.Position(i), pipeline.Position(i+1)))
		b.must(err)
	}
	windows(second, 0)
	_, err = behind.Append(b.ctx, 0, window(0, 2))
	b.must(err)
	windows(b.streams, 3)
	windows(second, 1)

	// One that was deleted is made anew, the other stands.
	b.must(b.js.DeleteStream(b.ctx, second.Slot().Deltas()))
	b.must(second.Restore(b.ctx))
	windows(second, 0)
	windows(b.streams, 3)
}
