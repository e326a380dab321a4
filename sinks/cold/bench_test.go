//go:build unix

package cold

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// processorTime is what the process has used.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

const benchRows = 60_000

func benchIDs() []uint64 {
	r := rand.New(rand.NewPCG(1, 2))
	ids := make([]uint64, benchRows)
	for i := range ids {
		ids[i] = 1 + r.Uint64N(1<<26)
	}
	return ids
}

// A checkpoint of 60,000 rows of three columns that changed, synced.
func BenchmarkCheckpoint(b *testing.B) {
	s := open(b, b.TempDir(), "post: like repost view")
	defer closeStore(b, s)
	ids := benchIDs()
	deltas := []pipeline.Delta{pipeline.Add(1), pipeline.Add(2), pipeline.Add(300)}
	begun := processorTime(b)
	for at := 0; b.Loop(); at++ {
		c := s.Begin()
		to := c.Shard(0)
		for _, id := range ids {
			to.Change(0, id, deltas)
		}
		to.State(State{Applied: pipeline.Position(at)})
		if err := c.Commit(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(processorTime(b)-begun)/float64(b.N)/benchRows, "cpu-ns/row")
}
