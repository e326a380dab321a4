// Package hot keeps counter rows in memory, flat and without pointers, so
// that the garbage collector passes them by.
package hot

import "github.com/tidemark-io/tidemark/pipeline"

// Table is the rows of one counter in one shard: open addressing with linear
// probing, grown by doubling at three quarters full. One goroutine writes;
// readers must be kept out meanwhile by the owner's lock.
//
//	keys   id │ 0 = free │ id │ …
//	cells  column 0 … column n-1 of keys[0] │ of keys[1] │ …
//
// A row that was touched stays, also when all its cells are 0 again: it
// remembers that the id has no counts.
type Table struct {
	columns int
	keys    []uint64
	cells   []int64
	dirty   []bool
	rows    int

	changed []uint64 // ids of dirty rows, each once
}

const tableMin = 16

// NewTable makes a table of rows of so many columns.
func NewTable(columns int) *Table {
	t := &Table{columns: columns}
	t.resize(tableMin)
	return t
}

// Rows is the number of rows held.
func (t *Table) Rows() int { return t.rows }

// Bytes is the memory the rows take, free places included.
func (t *Table) Bytes() int {
	return 8*len(t.keys) + 8*len(t.cells) + len(t.dirty)
}

// Row is the cells of an id, or nil when there is no row. It is valid until
// the next Touch.
func (t *Table) Row(id uint64) []int64 {
	at, ok := t.find(id)
	if !ok {
		return nil
	}
	return t.row(at)
}

// Touch is the cells of an id to be written: a row is made when there is
// none, and marked dirty. id is not 0.
func (t *Table) Touch(id uint64) []int64 {
	at := t.place(id)
	if !t.dirty[at] {
		t.dirty[at] = true
		t.changed = append(t.changed, id)
	}
	return t.row(at)
}

// Load puts a row as it is on disk: clean.
func (t *Table) Load(id uint64) []int64 { return t.row(t.place(id)) }

// Dirty is the number of dirty rows.
func (t *Table) Dirty() int { return len(t.changed) }

// Clean calls visit for every dirty row and marks it clean.
func (t *Table) Clean(visit func(id uint64, cells []int64)) {
	for _, id := range t.changed {
		at, _ := t.find(id)
		t.dirty[at] = false
		visit(id, t.row(at))
	}
	t.changed = t.changed[:0]
}

// MarkDirty marks a row dirty again, after a checkpoint that failed.
func (t *Table) MarkDirty(id uint64) { t.Touch(id) }

func (t *Table) row(at uint64) []int64 {
	n := uint64(t.columns)
	return t.cells[at*n : at*n+n : at*n+n]
}

// find is the slot of an id, or the free slot it would take.
func (t *Table) find(id uint64) (at uint64, ok bool) {
	mask := uint64(len(t.keys) - 1)
	// A shard's ids agree in Mix modulo the number of shards: use the high bits.
	at = pipeline.Mix(id) >> 20 & mask
	for t.keys[at] != id {
		if t.keys[at] == 0 {
			return at, false
		}
		at = (at + 1) & mask
	}
	return at, true
}

func (t *Table) place(id uint64) uint64 {
	at, ok := t.find(id)
	if ok {
		return at
	}
	if 4*(t.rows+1) > 3*len(t.keys) {
		t.resize(2 * len(t.keys))
		at, _ = t.find(id)
	}
	t.keys[at] = id
	t.rows++
	return at
}

func (t *Table) resize(size int) {
	old := *t
	t.keys = make([]uint64, size)
	t.cells = make([]int64, size*t.columns)
	t.dirty = make([]bool, size)
	for i, id := range old.keys {
		if id == 0 {
			continue
		}
		at, _ := t.find(id)
		t.keys[at] = id
		t.dirty[at] = old.dirty[i]
		copy(t.row(at), old.row(uint64(i)))
	}
}
