package shard

import (
	"sync/atomic"

	"github.com/tidemark-io/tidemark/pipeline"
)

// counts are what happened to the rows of one counter since the start. Readers
// count with atomics; the rest stands under the shard's lock.
type counts struct {
	gets, hits, colds atomic.Uint64
	reads, errors     atomic.Uint64
	evictions         uint64
}

// columnCounts are what happened to one column since the start.
type columnCounts struct{ sets, saturated uint64 }

// CounterStats are one counter's figures in one shard. Bytes are of memory.
type CounterStats struct {
	Rows, Cached, Dirty int
	Bytes               int
	Gets, Hits, Cold    uint64
	Reads               uint64 // from disk, of rows that were cold
	Errors, Evictions   uint64
}

// Add adds another shard's.
func (c *CounterStats) Add(o CounterStats) {
	c.Rows, c.Cached, c.Dirty, c.Bytes = c.Rows+o.Rows, c.Cached+o.Cached, c.Dirty+o.Dirty, c.Bytes+o.Bytes
	c.Gets, c.Hits, c.Cold, c.Reads = c.Gets+o.Gets, c.Hits+o.Hits, c.Cold+o.Cold, c.Reads+o.Reads
	c.Errors, c.Evictions = c.Errors+o.Errors, c.Evictions+o.Evictions
}

// ColumnStats are one column's figures in one shard.
type ColumnStats struct {
	Sets, Saturated uint64
	Escapes         int
}

// Add adds another shard's.
func (c *ColumnStats) Add(o ColumnStats) {
	c.Sets, c.Saturated, c.Escapes = c.Sets+o.Sets, c.Saturated+o.Saturated, c.Escapes+o.Escapes
}

// Stats are one shard's figures. Bytes are of memory.
type Stats struct {
	Counters []CounterStats // by the schema's counter index
	Columns  []ColumnStats

	Users, UserBytes     int // with marks, cursors and followees, in memory
	Authors, OutboxBytes int // with their posts, in memory
	Edges, EdgeBytes     int // of followers, of whom memory has something
	Members, MemberBytes int // of columns' sets

	Bytes     int
	Dirty     int
	Evictions uint64
	Whole     bool // nothing is only on disk, but for members of sets that have prints
}

// Counts are of the figures those that count since the start: they are true of a
// shard that is held no more.
func (s Stats) Counts() Stats {
	counts := Stats{Evictions: s.Evictions}
	for _, c := range s.Counters {
		counts.Counters = append(counts.Counters, CounterStats{Gets: c.Gets, Hits: c.Hits, Cold: c.Cold, Reads: c.Reads, Errors: c.Errors, Evictions: c.Evictions})
	}
	for _, c := range s.Columns {
		counts.Columns = append(counts.Columns, ColumnStats{Sets: c.Sets, Saturated: c.Saturated})
	}
	return counts
}

// Stats counts. It may be called from any goroutine.
func (s *Shard) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := &s.residency
	stats := Stats{
		Users: s.users.Count(), UserBytes: s.users.Bytes(),
		Authors: s.outboxes.Count(), OutboxBytes: s.outboxes.Bytes(),
		Edges: s.followers().known(), EdgeBytes: s.followers().bytes() + s.following.Bytes(),
		Bytes: s.residentBytesLocked(), Dirty: int(s.dirty.Load()),
		Evictions: r.evictions, Whole: s.wholeLocked(),
	}
	for _, t := range s.sets[1:] {
		stats.Members += t.known()
		stats.MemberBytes += t.bytes()
	}
	for i, t := range s.rows {
		c, cache := &s.counts[i], s.cache[i]
		stats.Counters = append(stats.Counters, CounterStats{
			Rows: t.Rows(), Cached: cache.Rows(), Dirty: t.Dirty(), Bytes: t.Bytes() + cache.Bytes(),
			Gets: c.gets.Load(), Hits: c.hits.Load(), Cold: c.colds.Load(), Reads: c.reads.Load(), Errors: c.errors.Load(), Evictions: c.evictions,
		})
		first := s.schema.Counters[i].First
		for j := range s.schema.Counters[i].Count {
			column := s.columns[first+pipeline.Column(j)]
			stats.Columns = append(stats.Columns, ColumnStats{Sets: column.sets, Saturated: column.saturated, Escapes: t.Escapes(j)})
		}
	}
	return stats
}

// Probes is how far rows of a counter stand from home: the mean, and the
// farthest, in places. It goes over all rows.
func (s *Shard) Probes(counter int) (mean float64, longest int, load float64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	mean, longest = s.rows[counter].Probe()
	return mean, longest, s.rows[counter].Load()
}

// Whole says whether nothing of the shard is only on disk.
func (s *Shard) Whole() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.wholeLocked()
}
