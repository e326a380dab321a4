package hot

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

// BenchmarkTableInsert is what a new row costs while its table grows, with all
// that moves for it.
func BenchmarkTableInsert(b *testing.B) {
	for _, rows := range []int{1 << 14, 1 << 20} {
		b.Run(fmt.Sprint(rows), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				t, r := NewTable([]int{16, 16, 8}), rand.New(rand.NewPCG(1, 1))
				b.StartTimer()
				for range rows {
					t.Change(1+r.Uint64N(1<<60), 0, pipeline.Add(1), Whole)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*rows), "ns/row")
			b.ReportMetric(0, "ns/op")
		})
	}
}
