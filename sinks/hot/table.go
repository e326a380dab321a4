// Package hot keeps the state of shards in memory, flat and without pointers,
// so that the garbage collector passes it by, and packed: 10^7 counter rows
// are to take some 13.5 bytes each.
//
// A counter's row is its cells, each as wide as it is configured, and what its
// place does not tell of its id's hash:
//
//	bit 0      1         2              18             34            42   … 95
//	    dirty │ partial │ view 16 bits │ like 16 bits │ hide 8 bits │ tag │ 1
//
// Rows lie in an index, in the order of their hashes with a few gaps. A row of
// 12 bytes lies in one cache line or in two that are neighbours, and to read
// its cells takes one load, shift and mask each. What a cell cannot hold is an
// escape: the cell is all ones, and the value stands in a table beside.
package hot

import (
	"encoding/binary"
	"math"
	"runtime"

	"github.com/tidemark-io/tidemark/pipeline"
)

// State says how much of a row is in memory.
type State uint8

// The states of a row.
const (
	None    State = iota // not here
	Partial              // what has come since its base, which is on disk
	Whole                // all of it
)

// Table is the rows of one counter in one shard.
//
// A cell is a pipeline.Delta. In a whole row it is Set(v), and the cell holds
// v; in a partial row it is what has come since the base, as a rule Add(n),
// and the cell holds n. Values from 0 to two less than 2^bits are packed.
// Everything else escapes: larger ones, negative ones, and in a partial row
// any Delta that is not Add(n) of n >= 0. It comes back when it fits again.
//
// A row that was changed stays, also when all its cells are 0 again: it
// remembers that the id has no counts.
//
// One goroutine writes; readers must be kept out by the owner's lock. Read, ReadBatch
// and Deltas may run side by side. Ids are never 0.
type Table struct {
	index   index
	columns []column
	changed Blocks[uint64] // ids of dirty rows, each once

	escaped  *index // (id, column) → Delta; nil until there is one
	escapes  []int  // by column: how many are in escaped
	byWrites bool   // only changes mark rows as used
}

// column is where a column's cell is in a row. Eight bytes loaded from offset
// hold all of it.
type column struct {
	offset int
	shift  uint8
	mask   uint64 // also the value of a cell that escaped
}

const (
	// Bits of a row's first byte.
	dirtyBit   = 1
	partialBit = 2
	stateBits  = 2

	stateByte = 0

	// columnBitsMax is the widest column that any bit of a byte may begin; of
	// a wider one the end could lie beyond the eight bytes loaded.
	columnBitsMax = 56
	// columnBitsMin leaves a value beside 0 and the escape.
	columnBitsMin = 2

	escapeBits = 3 * 64 // From, Low, High, behind the column

	// batchMisses is how many rows a batch asks the memory for at once: the
	// fastest of 8 to 128 as measured.
	batchMisses = 32

	// cacheLine is what the processor loads at once. A search of nine tenths full
	// looks at two or three.
	cacheLine = 64

	// evictSlack is how many places beyond two rounds the hand goes, because
	// rows shift a little when a segment shrinks behind it.
	evictSlack = 100
)

// NewTable makes an empty table with a column for each width in bits, 1 to
// 64. Widths over 56 take 64 bits, and one of 1 takes 2: with the escape it
// could hold no 1.
func NewTable(bits []int) *Table {
	t := &Table{columns: make([]column, len(bits)), escapes: make([]int, len(bits))}
	at := stateBits
	for i, width := range bits {
		width = max(width, columnBitsMin)
		if width > columnBitsMax {
			width, at = 64, (at+7)&^7
		}
		t.columns[i] = column{offset: at / 8, shift: uint8(at % 8), mask: math.MaxUint64 >> (64 - width)}
		at += width
	}
	t.index = *newIndex(1, at, 0)
	return t
}

// KeepWritten has only changes count as use: reads, however many, keep no row
// in memory. To be called before the first row.
func (t *Table) KeepWritten() { t.byWrites = true }

// Rows is the number of rows held.
func (t *Table) Rows() int { return t.index.rows() }

// Bytes is all memory the table takes: rows with their free places, the
// directory, escapes, and the list of dirty ids.
func (t *Table) Bytes() int {
	n := t.index.bytes() + t.changed.Bytes()
	if t.escaped != nil {
		n += t.escaped.bytes()
	}
	return n
}

// Escapes is the number of a column's cells that are not packed.
func (t *Table) Escapes(column int) int { return t.escapes[column] }

// Load is rows per place for one, 0 to 12/13.
func (t *Table) Load() float64 { return float64(t.index.rows()) / float64(t.index.slots) }

// Probe says how many places from their own rows stand, in the mean and at
// most. It walks all rows.
func (t *Table) Probe() (mean float64, longest int) { return t.index.probe() }

// Read fills cells, one for each column, with a whole row and marks it used
// (but see KeepWritten).
// Of a row that is not whole cells stay as they are; a partial one is marked
// all the same.
func (t *Table) Read(id uint64, cells []int64) State {
	s, at, ok := t.index.place1(id)
	if !ok {
		return None
	}
	if !t.byWrites {
		t.index.mark(s, at)
	}
	return t.read(id, t.row(s, at), cells)
}

// ReadBatch is Read for every id: its cells begin at cells[i*columns], its
// state is states[i]. It is several times as fast, because it waits for many
// rows to come from memory at once.
func (t *Table) ReadBatch(ids []uint64, cells []int64, states []State) {
	n := len(t.columns)
	for len(ids) > batchMisses {
		t.readBatch(ids[:batchMisses], cells, states)
		ids, cells, states = ids[batchMisses:], cells[batchMisses*n:], states[batchMisses:]
	}
	t.readBatch(ids, cells, states)
}

func (t *Table) readBatch(ids []uint64, cells []int64, states []State) {
	var places [batchMisses]struct {
		segment *segment
		home    int
		hash    uint64
	}
	x, n := &t.index, len(t.columns)
	for i, id := range ids {
		p := &places[i]
		p.hash = pipeline.Mix(id)
		p.segment, p.home = x.home(p.hash)
	}
	// This loop is so short, and waits for nothing it loads, that the misses of
	// many turns overlap. The next one would wait at each wrong guess.
	touched := uint64(0)
	for i := range ids {
		p := &places[i]
		if x.swept && !t.byWrites {
			p.segment.marks.load(p.home)
		}
		touched += p.segment.word(p.home, 0)
	}
	runtime.KeepAlive(touched)
	for i, id := range ids {
		p := &places[i]
		at, ok := x.search(p.segment, p.home, p.hash)
		if !ok {
			states[i] = None
			continue
		}
		if !t.byWrites {
			x.mark(p.segment, at)
		}
		states[i] = t.read(id, t.row(p.segment, at), cells[i*n:(i+1)*n])
	}
}

// Deltas fills deltas, one for each column: Set(v) of a whole row, and of a
// partial one what has come since its base. It does not mark the row used.
func (t *Table) Deltas(id uint64, deltas []pipeline.Delta) State {
	s, at, ok := t.index.place1(id)
	if !ok {
		return None
	}
	row := t.row(s, at)
	for i := range t.columns {
		deltas[i] = t.delta(id, row, i)
	}
	return state(row)
}

// Change applies a change to a cell and marks the row dirty and used. If
// there is no row it makes one, in state missing: Whole with zeros, or Partial
// with nothing come yet. saturated says that a whole row's cell is now at
// ±pipeline.Limit.
func (t *Table) Change(id uint64, column int, d pipeline.Delta, missing State) (saturated bool) {
	row := t.changing(id, missing)
	c := &t.columns[column]
	if v := c.load(row); v != c.mask {
		// Most changes: a little more in a packed cell. Of a partial row only
		// sums upwards are Add again, since less may have met the limit first.
		if n, ok := d.Amount(); ok && (n >= 0 || state(row) == Whole) {
			if sum := v + uint64(n); sum < c.mask && sum <= math.MaxInt64 {
				c.store(row, sum)
				return sum == pipeline.Limit && state(row) == Whole
			}
		}
	}
	next := t.delta(id, row, column).Then(d)
	t.put(id, row, column, next, state(row))
	return state(row) == Whole && (next.Low == pipeline.Limit || next.Low == -pipeline.Limit)
}

// Touch is index.touch of a row's place, before Change.
func (t *Table) Touch(id uint64) uint64 { return t.index.touch(pipeline.Mix(id)) }

// changing is a row that is about to be changed.
func (t *Table) changing(id uint64, missing State) []byte {
	s, at, ok := t.index.place1(id)
	if !ok {
		s, at = t.index.insertAt(keyWords{id})
	}
	t.index.mark(s, at)
	row := t.row(s, at)
	if !ok && missing == Partial {
		row[stateByte] |= partialBit
	}
	t.soil(id, row)
	return row
}

// Put makes a row as it is on disk: whole, clean, and not marked used. The id
// has no row yet.
func (t *Table) Put(id uint64, cells []int64) {
	s, at := t.index.insertAt(keyWords{id})
	row := t.row(s, at)
	for i, v := range cells {
		t.put(id, row, i, pipeline.Set(v), Whole)
	}
}

// Loosen says whether the table may take up to twice the memory of its rows, so that a new
// one costs less time. Else it grows in small steps, and takes a tenth more.
func (t *Table) Loosen(loose bool) { t.index.loose = loose }

// Free is the number of free places.
func (t *Table) Free() int { return t.index.slots - t.index.rows() }

// Fit gives back memory, in so many segments from one on. A segment takes 0.2 ms. next is
// the next one, 0 when all are done; the first is 0.
func (t *Table) Fit(from uint64, segments int) (next uint64, done bool) {
	return t.index.fit(from, segments)
}

// Complete makes a partial row whole: what has come is applied to its base,
// nil for zeros. It stays as dirty as it was. Other ids are left alone.
func (t *Table) Complete(id uint64, base []int64) {
	s, at, ok := t.index.place1(id)
	if !ok {
		return
	}
	row := t.row(s, at)
	if state(row) == Whole {
		return
	}
	for i := range t.columns {
		v := int64(0)
		if base != nil {
			v = base[i]
		}
		d := t.delta(id, row, i)
		t.put(id, row, i, pipeline.Set(d.Apply(v)), Whole)
	}
	row[stateByte] &^= partialBit
}

// Dirty is the number of dirty rows.
func (t *Table) Dirty() int { return t.changed.Len() }

// Changed visits the ids of the dirty rows, in no order. No row may become dirty, or clean,
// meanwhile.
func (t *Table) Changed(visit func(id uint64) bool) {
	for _, id := range t.changed.All {
		if !visit(*id) {
			return
		}
	}
}

// Under puts under a row what had come to it before, one Delta for each
// column: in a partial row the older changes precede what it has, a whole row
// has them in it already, and where there is no row it makes a partial one. The
// row is dirty then.
func (t *Table) Under(id uint64, older []pipeline.Delta) {
	s, at, ok := t.index.place1(id)
	if !ok {
		s, at = t.index.insertAt(keyWords{id})
	}
	row := t.row(s, at)
	if !ok {
		row[stateByte] |= partialBit
	}
	t.soil(id, row)
	if state(row) == Whole {
		return
	}
	for i, d := range older {
		t.put(id, row, i, d.Then(t.delta(id, row, i)), Partial)
	}
}

// Clean marks every dirty row clean and visits it, once; cells, one for each
// column, are filled with a whole one. visit may read the table, mark rows dirty
// again, and remove the row that it visits. It does not mark rows used.
func (t *Table) Clean(cells []int64, visit func(id uint64, state State)) {
	changed := t.changed
	t.changed = Blocks[uint64]{}
	for _, batch := range changed.inBlocks {
		touched := uint64(0) // they lie anywhere, and have been out of the caches for long
		for _, id := range batch {
			touched += t.Touch(id)
		}
		runtime.KeepAlive(touched)
		for _, id := range batch {
			s, at, _ := t.index.place1(id)
			row := t.row(s, at)
			row[stateByte] &^= dirtyBit
			visit(id, t.read(id, row, cells))
		}
	}
	if t.changed.Len() == 0 {
		changed.Clear()
		t.changed = changed
	}
}

// MarkDirty marks a row dirty, again after a checkpoint that failed. The row
// is there.
func (t *Table) MarkDirty(id uint64) {
	s, at, _ := t.index.place1(id)
	t.soil(id, t.row(s, at))
}

// Remove takes a clean row out. A dirty one stays.
func (t *Table) Remove(id uint64) {
	s, at, ok := t.index.place1(id)
	if !ok {
		return
	}
	if row := t.row(s, at); row[stateByte]&dirtyBit == 0 {
		t.forget(id, row)
		t.index.removeAt(s, at)
		t.index.shrink(s)
	}
}

// Evict takes out so many rows that are clean, whole, and were not used since
// the clock hand last passed them, or as many as it finds in two rounds of the
// hand. Before the first call, which may be Evict(0), use is not recorded.
func (t *Table) Evict(rows int) (evicted int) {
	return t.index.sweepFor(func(s *segment, at int, used bool) bool {
		row := t.row(s, at)
		if used || row[stateByte]&(dirtyBit|partialBit) != 0 {
			return false
		}
		t.forget(t.index.id(s, at), row)
		return true
	}, 2*t.index.slots+evictSlack, rows)
}

// row is a row and the 8 bytes behind it: what the load of a cell may reach.
func (t *Table) row(s *segment, at int) []byte {
	row := s.row(at)
	return row[:cap(row)]
}

func state(row []byte) State {
	if row[stateByte]&partialBit != 0 {
		return Partial
	}
	return Whole
}

// soil marks a row dirty.
func (t *Table) soil(id uint64, row []byte) {
	if row[stateByte]&dirtyBit == 0 {
		row[stateByte] |= dirtyBit
		t.changed.Add(id)
	}
}

func (t *Table) read(id uint64, row []byte, cells []int64) State {
	if state(row) != Whole {
		return Partial
	}
	for i := range t.columns {
		c := &t.columns[i]
		v := c.load(row)
		if v == c.mask {
			v = uint64(t.escapedDelta(id, i).Low)
		}
		cells[i] = int64(v)
	}
	return Whole
}

// delta is a cell.
func (t *Table) delta(id uint64, row []byte, column int) pipeline.Delta {
	c := &t.columns[column]
	v := c.load(row)
	switch {
	case v == c.mask:
		return t.escapedDelta(id, column)
	case state(row) == Whole:
		return pipeline.Set(int64(v))
	}
	return pipeline.Add(int64(v))
}

// put replaces a cell by one of a row in state as.
func (t *Table) put(id uint64, row []byte, column int, d pipeline.Delta, as State) {
	c := &t.columns[column]
	was := c.load(row) == c.mask
	v, fits := d.Value()
	if as == Partial {
		v, fits = d.Amount()
	}
	if fits && v >= 0 && uint64(v) < c.mask {
		c.store(row, uint64(v))
		if was {
			t.unescape(id, column)
		}
		return
	}
	c.store(row, c.mask)
	t.escape(id, column, d, was)
}

// escape puts a cell into the table beside, or replaces it there.
func (t *Table) escape(id uint64, column int, d pipeline.Delta, was bool) {
	if t.escaped == nil {
		t.escaped = newIndex(2, escapeBits, 0)
	}
	key := keyWords{id, uint64(column)}
	var row []byte
	if was {
		row, _ = t.escaped.find(key)
	} else {
		row = t.escaped.insert(key)
		t.escapes[column]++
	}
	binary.LittleEndian.PutUint64(row[8:], uint64(d.From))
	binary.LittleEndian.PutUint64(row[16:], uint64(d.Low))
	binary.LittleEndian.PutUint64(row[24:], uint64(d.High))
}

func (t *Table) unescape(id uint64, column int) {
	t.escaped.remove(keyWords{id, uint64(column)})
	t.escapes[column]--
}

func (t *Table) escapedDelta(id uint64, column int) pipeline.Delta {
	row, _ := t.escaped.find(keyWords{id, uint64(column)})
	return pipeline.Delta{
		From: int64(binary.LittleEndian.Uint64(row[8:])),
		Low:  int64(binary.LittleEndian.Uint64(row[16:])),
		High: int64(binary.LittleEndian.Uint64(row[24:])),
	}
}

// forget takes a row's cells out of the table beside, before the row goes.
func (t *Table) forget(id uint64, row []byte) {
	for i := range t.columns {
		if c := &t.columns[i]; c.load(row) == c.mask {
			t.unescape(id, i)
		}
	}
}

func (c *column) load(row []byte) uint64 {
	return binary.LittleEndian.Uint64(row[c.offset:]) >> (c.shift & 7) & c.mask
}

func (c *column) store(row []byte, v uint64) {
	b := row[c.offset:]
	rest := binary.LittleEndian.Uint64(b) &^ (c.mask << (c.shift & 7))
	binary.LittleEndian.PutUint64(b, rest|v<<(c.shift&7))
}
