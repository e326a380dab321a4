package shard

import (
	"cmp"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// Batch is the memory that reads of rows work in; it is reused.
type Batch struct {
	cells  []int64
	states []hot.State

	// What a read has captured of rows that are not, or not whole, in memory.
	counter   int
	cold      []coldRow
	deltas    []pipeline.Delta // what has come to them
	below     []pipeline.Delta // of one row: what is in flight
	published uint64

	ids []uint64 // of cold, ascending, each once
	row []int64  // of one of them

	// Sets is set by the caller: what else is looked for in rows of these ids.
	Sets    []pipeline.MemberOf
	has     []bool // the j-th of Sets in the i-th id's at [i*len(Sets)+j]
	members wanted
}

// coldRow is a row that was asked for.
type coldRow struct {
	id    uint64
	place int // among those asked for
	at    int // its deltas, or -1: nothing has come
}

// Cold is how many of the ids asked for were not in memory.
func (b *Batch) Cold() int { return len(b.cold) }

// Whole says that all that was asked for was in memory, or is nowhere.
func (b *Batch) Whole() bool { return len(b.cold)+len(b.members.places) == 0 }

// Left are the places, among the ids asked for, of those of which a part was not in
// memory, ascending, each once.
func (b *Batch) Left() (left []int) {
	for _, c := range b.cold {
		left = append(left, c.place)
	}
	for _, p := range b.members.places {
		left = append(left, p.at/len(b.Sets))
	}
	slices.Sort(left)
	return slices.Compact(left)
}

// Read calls row for each id whose row is in memory, or nowhere, with its
// cells, and returns the state that the answer reflects: all of it is as of one
// window's end. An id without a row has zeros. cells are valid during the call.
// It looks for b.Sets at the same moment: see Batch.Has. If memory does not know all of
// it (b.Whole), pin is called at that moment, too; Batch.Missing and Batch.Lay answer for
// the other rows, Batch.Wanted and Batch.LayMembers for members. nil: they are left.
func (s *Shard) Read(counter int, ids []uint64, b *Batch, pin func(), row func(i int, cells []int64)) (State, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.failed != nil {
		return State{}, s.failed
	}
	s.rowsLocked(counter, ids, b, row)
	s.hasLocked(ids, b)
	c := &s.counts[counter]
	c.gets.Add(uint64(len(ids)))
	c.hits.Add(uint64(len(ids) - len(b.cold)))
	c.colds.Add(uint64(len(b.cold)))
	if !b.Whole() && pin != nil {
		s.captureRowsLocked(b)
		pin()
	}
	return s.state, nil
}

// rowsLocked answers what is in memory and lists the rest in b.cold.
func (s *Shard) rowsLocked(counter int, ids []uint64, b *Batch, row func(i int, cells []int64)) {
	n := s.schema.Counters[counter].Count
	b.cells, b.states = grown(b.cells, n*len(ids)), grown(b.states, len(ids))
	b.counter, b.cold = counter, b.cold[:0]
	s.rows[counter].ReadBatch(ids, b.cells, b.states)
	r, cache := &s.residency.rows[counter], s.cache[counter]
	for i, state := range b.states {
		cells := b.cells[i*n : i*n+n]
		switch {
		case state == hot.Whole:
		case state == hot.None && r.all:
			clear(cells)
		case state == hot.None && cache.Read(ids[i], cells) == hot.Whole:
		case state == hot.None && r.has(ids[i]):
			clear(cells)
		default:
			b.cold = append(b.cold, coldRow{id: ids[i], place: i, at: -1})
			continue
		}
		row(i, cells)
	}
}

// captureRowsLocked keeps what has come to the cold rows since what is on disk.
func (s *Shard) captureRowsLocked(b *Batch) {
	n := s.schema.Counters[b.counter].Count
	b.deltas, b.below = b.deltas[:0], grown(b.below, n)
	for i := range b.cold {
		c := &b.cold[i]
		at := len(b.deltas)
		b.deltas = append(b.deltas, make([]pipeline.Delta, n)...)
		if s.cameLocked(b.counter, c.id, b.deltas[at:], b.below) {
			c.at = at
		} else {
			b.deltas = b.deltas[:at]
		}
	}
	b.published = s.residency.published
}

// cameLocked fills in what has come to a row that is not whole in memory. below
// is working space.
func (s *Shard) cameLocked(counter int, id uint64, deltas, below []pipeline.Delta) (some bool) {
	some = s.rows[counter].Deltas(id, deltas) != hot.None
	if !s.flight.deltas(counter, id, below) {
		return some
	}
	for i, d := range below {
		if some {
			d = d.Then(deltas[i])
		}
		deltas[i] = d
	}
	return true
}

// Missing are the ids of the rows that must be read from the disk, ascending,
// each once.
func (b *Batch) Missing() []uint64 {
	slices.SortFunc(b.cold, func(p, q coldRow) int { return cmp.Or(cmp.Compare(p.id, q.id), cmp.Compare(p.place, q.place)) })
	b.ids = b.ids[:0]
	for _, c := range b.cold {
		b.ids = append(b.ids, c.id)
	}
	b.ids = slices.Compact(b.ids)
	return b.ids
}

// Lay calls row for the rows that were missing, as they were when they were
// asked for. base are their cells on the disk, in the order of Missing.
func (b *Batch) Lay(base []int64, row func(i int, cells []int64)) {
	if len(b.ids) == 0 {
		return
	}
	n := len(base) / len(b.ids)
	b.row = grown(b.row, n)
	next := -1
	for i, c := range b.cold {
		if i == 0 || c.id != b.cold[i-1].id {
			next++
		}
		copy(b.row, base[next*n:next*n+n])
		if c.at >= 0 {
			for j, d := range b.deltas[c.at : c.at+n] {
				b.row[j] = d.Apply(b.row[j])
			}
		}
		row(c.place, b.row)
	}
}

// InstallRows puts the rows that were missing into memory, unless something
// was published since they were asked for.
func (s *Shard) InstallRows(b *Batch, base []int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.currentLocked(b.published) {
		return false
	}
	n := s.schema.Counters[b.counter].Count
	l := s.layer(b.counter)
	for i, id := range b.ids {
		s.installRowLocked(l, id, base[i*n:i*n+n])
	}
	s.boundCacheLocked(b.counter, len(b.ids))
	s.measureLocked()
	return true
}

// installRowLocked puts a row into the cache, or under what has come since.
func (s *Shard) installRowLocked(l *layer, id uint64, base []int64) {
	rows, cache := s.rows[l.counter], s.cache[l.counter]
	switch rows.Deltas(id, l.deltas) {
	case hot.Partial:
		rows.Complete(id, l.overFlight(id, base))
	case hot.None:
		if !s.residency.rows[l.counter].has(id) && cache.Deltas(id, l.deltas) == hot.None {
			cache.Put(id, l.overFlight(id, base))
		}
	}
}

// layer lays what is in flight over rows of one counter as they are on disk.
type layer struct {
	flight  *flight
	counter int
	deltas  []pipeline.Delta
	cells   []int64
}

func (s *Shard) layer(counter int) *layer {
	n := s.schema.Counters[counter].Count
	return &layer{&s.flight, counter, make([]pipeline.Delta, n), make([]int64, n)}
}

// overFlight is a row that is not whole in memory as it will be on disk. It is
// valid until the next call.
func (l *layer) overFlight(id uint64, base []int64) []int64 {
	if !l.flight.deltas(l.counter, id, l.deltas) {
		return base
	}
	for i, d := range l.deltas {
		l.cells[i] = d.Apply(base[i])
	}
	return l.cells
}

// takeCachedLocked moves a row from the cache to the rows, to be written.
func (s *Shard) takeCachedLocked(counter int, id uint64) {
	cache := s.cache[counter]
	if cache.Rows() == 0 {
		return
	}
	var room [16]int64
	cells := room[:]
	if n := s.schema.Counters[counter].Count; n > len(cells) {
		cells = make([]int64, n)
	}
	cells = cells[:s.schema.Counters[counter].Count]
	if cache.Read(id, cells) == hot.Whole {
		s.rows[counter].Put(id, cells)
		cache.Remove(id)
	}
}

// CountReads counts rows of a counter that were read from the disk, or could
// not be.
func (s *Shard) CountReads(counter, rows int, err error) {
	if err != nil {
		s.counts[counter].errors.Add(1)
		return
	}
	s.counts[counter].reads.Add(uint64(rows))
}

func grown[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
