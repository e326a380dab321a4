package check

import (
	"math/rand/v2"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

// A round is all samples, compared whole: one of which a shard was skipped has to
// come again.
func TestRound(t *testing.T) {
	r := round{samples: 3}
	for i, step := range []struct {
		sample      uint64
		whole, full bool
	}{
		{2, true, false},
		{0, false, false},
		{1, true, false},
		{2, true, false},
		{0, true, true},
		{1, true, false},
		{2, true, false},
		{0, true, true},
	} {
		if full := r.end(step.sample, step.whole); full != step.full {
			t.Errorf("step %d: a full round: %v, want %v", i, full, step.full)
		}
	}
}

// "one sample after the other … until all are done": each id is in one sample of a
// round, channels are in the first, and none has more ids than was said, or other
// shards than it need have.
func TestSamplesOfARound(t *testing.T) {
	for _, c := range []struct{ shards, bits int }{{64, 6}, {1, 6}, {8, 6}, {48, 6}, {100, 6}, {64, 0}, {4, 2}, {3, 1}, {64, 8}} {
		o := &Rounds{Auditor: &Auditor{Shards: c.shards}, Bits: c.bits}
		samples := o.samples()
		var tasks []Task
		for n := range samples {
			task := o.task(n)
			tasks = append(tasks, task)
			if task.Apart != (n != 0) || n == 0 && task.Sample.Residue != 0 {
				t.Errorf("%+v: sample %d is %+v", c, n, task)
			}
			if most := (c.shards + 1<<c.bits - 1) >> c.bits; len(task.Shards) > max(1, most) {
				t.Errorf("%+v: sample %d has %d shards", c, n, len(task.Shards))
			}
		}
		if samples < 1<<c.bits || samples >= 2<<c.bits {
			t.Errorf("%+v: %d samples", c, samples)
		}
		for range 1000 {
			id, in := rand.Uint64(), 0
			for _, task := range tasks {
				for _, s := range task.Shards {
					if s == pipeline.ShardOf(id, c.shards) && task.Sample.Has(id) {
						in++
					}
				}
			}
			if in != 1 {
				t.Fatalf("%+v: id %d is in %d samples", c, id, in)
			}
		}
	}
}
