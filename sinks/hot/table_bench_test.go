package hot

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

const (
	worldRows   = 10_000_000
	worldTables = 64
)

// world is 10^7 rows in 64 tables, made once.
var world = sync.OnceValue(func() (tables []*Table) {
	for range worldTables {
		tables = append(tables, NewTable([]int{16, 16, 8}))
	}
	for id := uint64(1); id <= worldRows; id++ {
		tables[pipeline.ShardOf(id, worldTables)].Put(id, []int64{int64(id & 0x7fff), 2, 3})
	}
	return tables
})

// worldBatches is batches of random ids among the first most, each of one shard.
func worldBatches(most uint64, size int) (batches [][]uint64, shards []int) {
	open := make([][]uint64, worldTables)
	for len(batches) < 1<<20/size {
		id := 1 + rand.Uint64N(most)
		k := int(pipeline.ShardOf(id, worldTables))
		if open[k] = append(open[k], id); len(open[k]) == size {
			batches, shards = append(batches, open[k]), append(shards, k)
			open[k] = nil
		}
	}
	return batches, shards
}

func bytesPerRow(b *testing.B, tables []*Table) {
	bytes, rows := 0, 0
	for _, t := range tables {
		bytes, rows = bytes+t.Bytes(), rows+t.Rows()
	}
	b.ReportMetric(float64(bytes)/float64(rows), "bytes/row")
}

func rowsPerSecond(b *testing.B, rows int) {
	b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
}

// One op is one row, of 10^7 at random.
func BenchmarkTableRead(b *testing.B) {
	tables := world()
	for _, c := range []struct {
		name string
		most uint64
	}{{"hit", worldRows}, {"miss half", 2 * worldRows}} {
		b.Run(c.name, func(b *testing.B) {
			ids := make([]uint64, 1<<20)
			for i := range ids {
				ids[i] = 1 + rand.Uint64N(c.most)
			}
			cells := make([]int64, 3)
			for i := 0; b.Loop(); i++ {
				id := ids[i%len(ids)]
				tables[pipeline.ShardOf(id, worldTables)].Read(id, cells)
			}
			rowsPerSecond(b, b.N)
			bytesPerRow(b, tables)
		})
	}
}

// One op is a batch of one shard.
func BenchmarkTableReadBatch(b *testing.B) {
	tables := world()
	for _, c := range []struct {
		name string
		most uint64
		size int
		mark bool // as after the first eviction
	}{
		{"500", worldRows, 500, false},
		{"500 miss half", 2 * worldRows, 500, false},
		{"500 marked", worldRows, 500, true},
		{"8", worldRows, 8, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			for _, t := range tables {
				t.index.swept = c.mark
			}
			batches, shards := worldBatches(c.most, c.size)
			cells, states := make([]int64, 3*c.size), make([]State, c.size)
			for i := 0; b.Loop(); i++ {
				i := i % len(batches)
				tables[shards[i]].ReadBatch(batches[i], cells, states)
			}
			rowsPerSecond(b, b.N*c.size)
			bytesPerRow(b, tables)
		})
	}
}

// What BenchmarkTableRead is measured against.
func BenchmarkMapRead(b *testing.B) {
	before := heap()
	rows := map[uint64][3]int64{}
	for id := uint64(1); id <= worldRows; id++ {
		rows[id] = [3]int64{int64(id), 2, 3}
	}
	took := heap() - before
	ids := make([]uint64, 1<<20)
	for i := range ids {
		ids[i] = 1 + rand.Uint64N(worldRows)
	}
	var sum int64
	for i := 0; b.Loop(); i++ {
		cells := rows[ids[i%len(ids)]]
		sum += cells[0]
	}
	rowsPerSecond(b, b.N)
	b.ReportMetric(float64(took)/worldRows, "bytes/row")
	_ = sum
}

// One op is one change, of 10^7 rows at random.
func BenchmarkTableChange(b *testing.B) {
	tables := world()
	ids := make([]uint64, 1<<20)
	for i := range ids {
		ids[i] = 1 + rand.Uint64N(worldRows)
	}
	for i := 0; b.Loop(); i++ {
		id := ids[i%len(ids)]
		n := int64(i>>20&1*2 - 1)
		tables[pipeline.ShardOf(id, worldTables)].Change(id, 1, pipeline.Add(n), Whole)
	}
}

// One op is one row made, up to 160,000 in a table.
func BenchmarkTablePut(b *testing.B) {
	var table *Table
	cells := []int64{1, 2, 3}
	for i := 0; b.Loop(); i++ {
		if i%160_000 == 0 {
			table = NewTable([]int{16, 16, 8})
		}
		table.Put(uint64(i+1), cells)
	}
}

// One op is one row evicted and another put in its place.
func BenchmarkTableEvict(b *testing.B) {
	table, cells := NewTable([]int{16, 16, 8}), []int64{1, 2, 3}
	for id := uint64(1); id <= 150_000; id++ {
		table.Put(id, cells)
	}
	for id := uint64(150_001); b.Loop(); id++ {
		table.Evict(1)
		table.Put(id, cells)
	}
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
