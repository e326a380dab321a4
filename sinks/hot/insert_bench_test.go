package hot

import (
	"fmt"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

// BenchmarkTableBulk is what a row costs that is loaded, one of all in a shard.
func BenchmarkTableBulk(b *testing.B) {
	const rows = 160_000
	ids := make([]uint64, 0, rows)
	for id := uint64(1); len(ids) < rows; id++ {
		if pipeline.ShardOf(id, worldTables) == 3 {
			ids = append(ids, id)
		}
	}
	for _, bulk := range []bool{false, true} {
		b.Run(fmt.Sprint(bulk), func(b *testing.B) {
			t := &Table{}
			for b.Loop() {
				t = NewTable([]int{16, 16, 8})
				load(t, ids, bulk)
			}
			bytesPerRow(b, []*Table{t})
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*rows), "ns/row")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func load(t *Table, ids []uint64, bulk bool) {
	if bulk {
		t.Bulk()
	}
	for _, id := range ids {
		t.Put(id, []int64{1, 2, 3})
	}
	if bulk {
		for from, done := uint64(0), false; !done; {
			from, done = t.Fit(from, 8)
		}
	}
}

// Rows that were loaded at once take no more memory than those that came one by one.
func TestTableBulk(t *testing.T) {
	skipRaced(t)
	ids := make([]uint64, 200_000)
	for i := range ids {
		ids[i] = uint64(i + 1)
	}
	for _, rows := range []int{1, 100, 10_000, len(ids)} {
		one, all := NewTable([]int{16, 16, 8}), NewTable([]int{16, 16, 8})
		load(one, ids[:rows], false)
		load(all, ids[:rows], true)
		if a, b := one.Bytes(), all.Bytes(); b > a+a/10 {
			t.Errorf("%d rows: %d bytes, loaded at once %d", rows, a, b)
		}
	}
}
