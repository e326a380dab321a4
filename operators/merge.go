package operators

import (
	"github.com/tidemark-io/tidemark/pipeline"
)

// merger gathers what one window does: every cell once, in the order in which
// the window first touched it, so that the bytes do not depend on anything
// but the events (I5).
type merger struct {
	shards int
	cells  []cell
	table  []uint32 // open addressing: index in cells plus one; 0 is free
	mask   uint64

	ordered [][]byte // per section: changes that keep their log order
	touched []int    // per section: the most rows and entries that its changes change
	most    int      // of touched, but for the last section
	bytes   int      // upper bound of the encoded sections
	changes int      // of cells, before merging
}

type cell struct {
	id     uint64
	delta  pipeline.Delta
	column pipeline.Column
	shard  pipeline.Shard
}

// The most bytes a change takes in a section: tag, id, one small number; and
// what wide numbers add to that.
const (
	changeBytes     = 3 + 10 + 4
	changeWideBytes = 3 * 10
	// narrow amounts sum to at most four bytes over a window's events.
	narrow = 1000
)

func newMerger(shards int) *merger {
	m := &merger{shards: shards, ordered: make([][]byte, shards+1), touched: make([]int, shards+1)}
	m.resize(1 << 12)
	return m
}

func (m *merger) reset() {
	m.cells = m.cells[:0]
	clear(m.table)
	for i := range m.ordered {
		m.ordered[i] = m.ordered[i][:0]
	}
	clear(m.touched)
	m.bytes, m.changes, m.most = 0, 0, 0
}

func (m *merger) resize(size int) {
	m.table = make([]uint32, size)
	m.mask = uint64(size - 1)
	for i := range m.cells {
		*m.find(m.cells[i].id, m.cells[i].column, pipeline.Mix(m.cells[i].id)) = uint32(i + 1)
	}
}

// find is the table's slot for a cell: its own, or the free one it would take.
func (m *merger) find(id uint64, column pipeline.Column, hash uint64) *uint32 {
	at := (hash>>16 + uint64(column)*0x9e3779b1) & m.mask
	for {
		slot := &m.table[at]
		if *slot == 0 {
			return slot
		}
		if c := &m.cells[*slot-1]; c.id == id && c.column == column {
			return slot
		}
		at = (at + 1) & m.mask
	}
}

// add merges one change. wide says that its numbers, or those of what it is
// merged with, may need more than four bytes: that is everything but setting
// or adding a small number that is not negative. (Adding 1 and then -1 is not
// adding 0: a saturated cell loses one.)
func (m *merger) add(column pipeline.Column, id uint64, d pipeline.Delta, wide bool) {
	m.changes++
	if wide {
		m.bytes += changeWideBytes
	}
	hash := pipeline.Mix(id)
	slot := m.find(id, column, hash)
	if *slot != 0 {
		c := &m.cells[*slot-1]
		c.delta = c.delta.Then(d)
		return
	}
	m.cells = append(m.cells, cell{id, d, column, pipeline.Shard(hash % uint64(m.shards))})
	*slot = uint32(len(m.cells))
	m.bytes += changeBytes
	m.touch(int(m.cells[len(m.cells)-1].shard), 1)
	if len(m.cells)*2 > len(m.table) {
		m.resize(len(m.table) * 2)
	}
}

// addOrdered keeps one change in its place.
func (m *merger) addOrdered(column pipeline.Column, id uint64, d pipeline.Delta) {
	shard := pipeline.ShardOf(id, m.shards)
	was := len(m.ordered[shard])
	m.ordered[shard] = pipeline.AppendChange(m.ordered[shard], int(column), id, d)
	m.bytes += len(m.ordered[shard]) - was
	m.touch(int(shard), 1)
}

// touch notes that a section changes more rows and entries.
func (m *merger) touch(section, more int) {
	if m.touched[section] += more; section < m.shards {
		m.most = max(m.most, m.touched[section])
	}
}

// operate keeps one operation in its place, in the section of a shard.
func (m *merger) operate(section int, from pipeline.Position, o *pipeline.Operation) {
	was := len(m.ordered[section])
	m.ordered[section] = pipeline.AppendOperation(m.ordered[section], from, o)
	m.bytes += len(m.ordered[section]) - was
	m.touch(section, o.Changes())
}

// sections encodes everything gathered, reusing dst.
func (m *merger) sections(dst [][]byte) [][]byte {
	for len(dst) <= m.shards {
		dst = append(dst, nil)
	}
	for i := range dst {
		dst[i] = dst[i][:0]
	}
	for i := range m.cells {
		c := &m.cells[i]
		dst[c.shard] = pipeline.AppendChange(dst[c.shard], int(c.column), c.id, c.delta)
	}
	for i, ordered := range m.ordered {
		dst[i] = append(dst[i], ordered...)
	}
	return dst
}
