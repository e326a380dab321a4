package main

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
)

// BenchmarkBacklog: a backlog of EVENTS until queryable, against a bare
// ordered consumer that reads the same stream.
func BenchmarkBacklog(b *testing.B) {
	const events = 500_000
	ctx := context.Background()
	for _, pack := range []int{1, 256} {
		b.Run(fmt.Sprintf("pack=%d", pack), func(b *testing.B) {
			l, err := openBacklog(ctx, filepath.Join(b.TempDir(), "backlog"), events, pack, newCommunity(1).event)
			if err != nil {
				b.Fatal(err)
			}
			defer l.close()
			var counted, read sample
			for b.Loop() {
				b.StopTimer()
				reading, err := l.bare(ctx)
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				counting, err := l.count(ctx, nil)
				if err != nil {
					b.Fatal(err)
				}
				counted, read = append(counted, l.rate(counting)), append(read, l.rate(reading))
			}
			b.ReportMetric(counted.median(), "events/s")
			b.ReportMetric(read.median(), "bare-events/s")
			b.ReportMetric(counted.over(read).median(), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}
