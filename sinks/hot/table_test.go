package hot_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// unmix is the id whose Mix is m.
func unmix(m uint64) uint64 {
	m ^= m>>31 ^ m>>62
	m *= inverse(0x94d049bb133111eb)
	m ^= m>>27 ^ m>>54
	m *= inverse(0xbf58476d1ce4e5b9)
	m ^= m>>30 ^ m>>60
	return m - 0x9e3779b97f4a7c15
}

// inverse of an odd number modulo 2^64, by Newton's iteration.
func inverse(a uint64) uint64 {
	x := a
	for range 6 {
		x *= 2 - a*x
	}
	return x
}

// ids are few enough to meet again, and of every sort that is hard on a table.
func ids() *rapid.Generator[uint64] {
	few := rapid.Uint64Range(1, 40)
	nonzero := func(id uint64) bool { return id != 0 }
	return rapid.OneOf(
		few, // small
		rapid.Map(few, func(n uint64) uint64 { return -n }),             // huge
		rapid.Map(few, func(n uint64) uint64 { return unmix(n << 52) }), // all in one slot, in tables up to 2^32
		rapid.Map(few, func(n uint64) uint64 { return unmix(n << 20) }), // in a row of slots
		rapid.Map(few, func(n uint64) uint64 { return unmix(n<<52 | 1<<20 - 1<<12) }),
		rapid.Map(few, func(n uint64) uint64 { return unmix(n<<20 | 0x7) }), // the low bits, by which shards are chosen
		rapid.Uint64(),
	).Filter(nonzero)
}

// "The hot table against map" (STYLE 21): rows, and which of them are dirty.
func TestTableTwin(t *testing.T) {
	if pipeline.Mix(unmix(12345678901234567)) != 12345678901234567 {
		t.Fatal("unmix is not Mix's inverse")
	}
	rapid.Check(t, func(t *rapid.T) {
		columns := rapid.IntRange(1, 4).Draw(t, "columns")
		table := hot.NewTable(columns)
		rows, dirty := map[uint64][]int64{}, map[uint64]bool{}
		known := func(t *rapid.T) uint64 {
			if len(rows) == 0 {
				t.Skip("no rows yet")
			}
			var list []uint64
			for id := range rows {
				list = append(list, id)
			}
			slices.Sort(list)
			return rapid.SampledFrom(list).Draw(t, "known")
		}
		touch := func(t *rapid.T, id uint64) {
			cells := table.Touch(id)
			if rows[id] == nil {
				rows[id] = make([]int64, columns)
			}
			if !slices.Equal(cells, rows[id]) {
				t.Fatalf("Touch(%d): %v, want %v", id, cells, rows[id])
			}
			at := rapid.IntRange(0, columns-1).Draw(t, "column")
			cells[at] = rapid.Int64().Draw(t, "value")
			rows[id][at] = cells[at]
			dirty[id] = true
		}
		t.Repeat(map[string]func(*rapid.T){
			"touch":      func(t *rapid.T) { touch(t, ids().Draw(t, "id")) },
			"touchKnown": func(t *rapid.T) { touch(t, known(t)) },
			"touchMany": func(t *rapid.T) { // growth
				for _, id := range rapid.SliceOfN(ids(), 1, 60).Draw(t, "ids") {
					touch(t, id)
				}
			},
			"load": func(t *rapid.T) {
				id := ids().Draw(t, "id")
				if rows[id] != nil {
					t.Skip("rows are loaded once, first")
				}
				rows[id] = rapid.SliceOfN(rapid.Int64(), columns, columns).Draw(t, "cells")
				copy(table.Load(id), rows[id])
			},
			"row": func(t *rapid.T) {
				id := ids().Draw(t, "id")
				if got := table.Row(id); !slices.Equal(got, rows[id]) || (got == nil) != (rows[id] == nil) {
					t.Fatalf("Row(%d): %v, want %v", id, got, rows[id])
				}
			},
			"markDirty": func(t *rapid.T) {
				id := known(t)
				table.MarkDirty(id)
				dirty[id] = true
			},
			"clean": func(t *rapid.T) {
				table.Clean(func(id uint64, cells []int64) {
					if !dirty[id] {
						t.Fatalf("row %d is clean, or was reported twice", id)
					}
					delete(dirty, id)
					if !slices.Equal(cells, rows[id]) {
						t.Fatalf("dirty row %d: %v, want %v", id, cells, rows[id])
					}
				})
				if len(dirty) > 0 {
					t.Fatalf("dirty rows were not reported: %v", dirty)
				}
			},
			"": func(t *rapid.T) {
				if table.Rows() != len(rows) || table.Dirty() != len(dirty) {
					t.Fatalf("%d rows, %d dirty; want %d, %d", table.Rows(), table.Dirty(), len(rows), len(dirty))
				}
			},
		})
		for id, want := range rows {
			if got := table.Row(id); !slices.Equal(got, want) {
				t.Fatalf("Row(%d): %v, want %v", id, got, want)
			}
		}
	})
}

func TestTableNeverFull(t *testing.T) {
	table := hot.NewTable(1)
	for n := uint64(1); n <= 3000; n++ {
		table.Touch(unmix(n << 52 & ^uint64(1)))[0]++ // 4096 slots' worth of one place
		table.Touch(n)[0]++
	}
	if got := table.Row(77)[0]; got != 1 {
		t.Fatalf("row 77 is %d", got)
	}
	if table.Row(1<<40) != nil {
		t.Fatal("a row that nobody made")
	}
}
