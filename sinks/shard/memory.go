package shard

import "github.com/tidemark-io/tidemark/sinks/hot"

// cacheShare is how much of a shard's memory the cache of read rows may take,
// as one part in so many.
const cacheShare = 8

// cacheBytesMin is what the cache of read rows may take in any case.
const cacheBytesMin = 16 << 10

// boundCacheLocked makes room in the cache of read rows for some that came.
func (s *Shard) boundCacheLocked(counter, came int) {
	cache := s.cache[counter]
	if most := s.residentBytesLocked() / cacheShare; cache.Bytes() > max(most, cacheBytesMin) {
		cache.Evict(max(came, cache.Rows()/16))
	}
}

// Tables of rows are loose while memory is not short: they are doubled when they are full,
// and fitted to their rows when few come.

const (
	// fitSegments are fitted at a time: a millisecond or two under the lock.
	fitSegments = 8
	// fitAfter says when few come: a table is fitted where its free places are more than
	// fitAfter times the rows that came since the last call of Fit.
	fitAfter = 16
)

// fit is where a counter's table is being fitted.
type fit struct {
	rows int // at the last call
	next uint64
}

// Fit gives back memory of tables that grow slowly, a little at a time. Owner only.
func (s *Shard) Fit() {
	for i := range s.rows {
		s.fitSlow(i)
	}
}

func (s *Shard) fitSlow(counter int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows, f := s.rows[counter], &s.fits[counter]
	came := rows.Rows() - f.rows
	if f.rows = rows.Rows(); came*fitAfter < rows.Free() {
		f.next, _ = rows.Fit(f.next, fitSegments)
		s.measureLocked()
	}
}

// Tighten has tables grow in small steps from now on.
func (s *Shard) Tighten() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rows := range s.rows {
		rows.Loosen(false)
	}
}

// FitAll gives back memory of all tables.
func (s *Shard) FitAll() {
	for _, rows := range s.rows {
		for next, done := uint64(0), false; !done; {
			next, done = s.fitSome(rows, next)
		}
	}
}

func (s *Shard) fitSome(rows *hot.Table, from uint64) (next uint64, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.measureLocked()
	return rows.Fit(from, fitSegments)
}

// Bytes is the memory of what the shard holds, as of its last change. It may
// be called from any goroutine.
func (s *Shard) Bytes() int { return int(s.bytes.Load()) }

func (s *Shard) residentBytesLocked() int {
	// What is free within the slabs serves the next ones, and is given back once it is much.
	n := s.users.Bytes() - s.users.Free() + s.outboxes.Bytes() - s.outboxes.Free() + s.newest.Bytes() + s.setBytesLocked() + s.following.Bytes() + s.cursorNames.bytes()
	for i := range s.rows {
		n += s.rows[i].Bytes() + s.cache[i].Bytes()
	}
	return n
}

func (s *Shard) measureLocked() {
	dirty := s.changed.list.Len()
	for _, t := range s.rows {
		dirty += t.Dirty()
	}
	s.dirty.Store(int64(dirty))
	s.bytes.Store(int64(s.residentBytesLocked() + s.changed.bytes() + s.flight.bytes()))
}
