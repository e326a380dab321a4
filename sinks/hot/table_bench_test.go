package hot

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

// worldTables are as many as there are shards.
const worldTables = 64

func bytesPerRow(b *testing.B, tables []*Table) {
	bytes, rows := 0, 0
	for _, t := range tables {
		bytes, rows = bytes+t.Bytes(), rows+t.Rows()
	}
	b.ReportMetric(float64(bytes)/float64(rows), "bytes/row")
}

// sizedTables is so many rows in so many tables, as shards have them.
func sizedTables(tables, rows int) (list []*Table) {
	for range tables {
		list = append(list, NewTable([]int{16, 16, 8}))
	}
	for id := uint64(1); id <= uint64(rows); id++ {
		list[pipeline.ShardOf(id, tables)].Put(id, []int64{1, 2, 3})
	}
	return list
}

// One op is one row, of 10^4 to 10^7 in 64 tables.
func BenchmarkTableSizes(b *testing.B) {
	for _, rows := range []int{1e4, 1e6, 1e7} {
		tables := sizedTables(worldTables, rows)
		ids, shards := make([]uint64, 1<<20), make([]pipeline.Shard, 1<<20)
		for i := range ids {
			ids[i] = 1 + rand.Uint64N(uint64(rows))
			shards[i] = pipeline.ShardOf(ids[i], worldTables)
		}
		batches := make([][]uint64, worldTables)
		for i, id := range ids {
			batches[shards[i]] = append(batches[shards[i]], id)
		}
		name := strconv.Itoa(rows)
		b.Run(name+"/ReadBatch", func(b *testing.B) {
			const size = 500
			cells, states := make([]int64, 3*size), make([]State, size)
			done, from := 0, 0
			for b.Loop() {
				if done++; done%size == 0 {
					k := done / size % worldTables
					if k == 0 {
						from = (from + size) % (len(batches[0]) / 2)
					}
					tables[k].ReadBatch(batches[k][from:from+size], cells, states)
				}
			}
			bytesPerRow(b, tables)
		})
		b.Run(name+"/Change", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				i := i % len(ids)
				tables[shards[i]].Change(ids[i], 1, pipeline.Add(1), Whole)
			}
		})
		b.Run(name+"/Put", func(b *testing.B) {
			cells := []int64{1, 2, 3}
			for left := b.N; left > 0; left -= rows {
				list := make([]*Table, worldTables)
				for k := range list {
					list[k] = NewTable([]int{16, 16, 8})
				}
				for id := uint64(1); id <= uint64(min(left, rows)); id++ {
					list[pipeline.ShardOf(id, worldTables)].Put(id, cells)
				}
			}
		})
	}
}
