// Package shard is the state of one shard: it applies sections of windows,
// answers reads, and hands over what changed for a checkpoint. It does no I/O.
package shard

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// Shard holds everything about its ids. One goroutine, its owner, calls the
// writing methods; reads may come from any.
//
//	durable ≤ gathered ≤ state ≤ what DELTAS holds
type Shard struct {
	Number pipeline.Shard

	mu     sync.RWMutex
	schema *pipeline.Schema
	tables []*hot.Table // by the schema's counter index
	state  cold.State   // as of the end of one window, exactly (I4)
	failed error        // set once; the shard applies and answers nothing more

	// The owner's alone.
	gathered  cold.State // the last state handed over for a checkpoint
	flying    int        // rows handed over whose commit is not settled yet
	durable   uint64     // DELTAS sequence of the last state committed
	saturated uint64
	dirty     atomic.Int64 // as of the last Apply, Checkpoint or Redo, for Stats
}

// New makes an empty shard whose state is as its store says; Load then puts
// its rows.
func New(number pipeline.Shard, schema *pipeline.Schema, state cold.State) *Shard {
	s := &Shard{Number: number, schema: schema, state: state, gathered: state, durable: state.Sequence}
	for _, c := range schema.Counters {
		s.tables = append(s.tables, hot.NewTable(c.Count))
	}
	return s
}

// Load puts one stored row.
func (s *Shard) Load(counter int, id uint64, cells []int64) {
	copy(s.tables[counter].Load(id), cells)
}

// Apply applies the shard's section of a window, or passes a window over that
// it has applied before (I3). columns maps the window's columns to the
// schema's. An error is final: the shard has failed.
func (s *Shard) Apply(sequence uint64, w *pipeline.Window, columns []pipeline.Column) error {
	if s.failed != nil || w.To <= s.state.Applied {
		return s.failed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.From != s.state.Applied {
		return s.failLocked(fmt.Errorf("%w: shard %d has applied up to position %d and the next window is (%d, %d] (I3)",
			pipeline.ErrGap, s.Number, s.state.Applied, w.From, w.To))
	}
	section := pipeline.ReadSection(w.Sections[s.Number])
	for change, ok := section.Next(); ok; change, ok = section.Next() {
		if change.Column >= len(columns) || change.ID == 0 {
			return s.failLocked(fmt.Errorf("%w: shard %d: column %d of id %d", pipeline.ErrWindow, s.Number, change.Column, change.ID))
		}
		s.changeLocked(columns[change.Column], change.ID, change.Delta)
	}
	if err := section.Err(); err != nil {
		return s.failLocked(fmt.Errorf("shard %d, window (%d, %d]: %w", s.Number, w.From, w.To, err))
	}
	s.dirty.Store(int64(s.Dirty()))
	s.state = cold.State{Applied: w.To, Sequence: sequence, Time: max(s.state.Time, w.Time)}
	return nil
}

func (s *Shard) changeLocked(column pipeline.Column, id uint64, d pipeline.Delta) {
	counter := s.schema.Columns[column].Counter
	cells := s.tables[counter].Touch(id)
	cell := &cells[column-s.schema.Counters[counter].First]
	*cell = d.Apply(*cell)
	if *cell == pipeline.Limit || *cell == -pipeline.Limit {
		s.saturated++
	}
}

// Fail stops the shard for good; the first reason stays.
func (s *Shard) Fail(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failLocked(err)
}

func (s *Shard) failLocked(err error) error {
	if s.failed == nil {
		s.failed = err
	}
	return s.failed
}

// Read calls row for each id with its cells, nil where there is no row, and
// returns the state that the answer reflects. cells are valid during the call.
func (s *Shard) Read(counter int, ids []uint64, row func(i int, cells []int64)) (cold.State, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.failed != nil {
		return cold.State{}, s.failed
	}
	table := s.tables[counter]
	for i, id := range ids {
		row(i, table.Row(id))
	}
	return s.state, nil
}

// State is how far the shard has come; Err why it has stopped.
func (s *Shard) State() cold.State {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.state
}

// Err is why the shard has stopped, or nil.
func (s *Shard) Err() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.failed
}

// Dirty is the number of rows that changed since they were last handed over.
// Owner only.
func (s *Shard) Dirty() int {
	n := 0
	for _, t := range s.tables {
		n += t.Dirty()
	}
	return n
}

// Pending is the number of rows that are dirty should the commit under way
// fail. Owner only.
func (s *Shard) Pending() int { return s.Dirty() + s.flying }

// changeBytesMin is the least that one change takes in a section.
const changeBytesMin = 3

// Fits says whether the shard can apply its section of a window and still hand
// over all that changed as at most so many rows.
func (s *Shard) Fits(w *pipeline.Window, rows int) bool {
	b := w.Sections[s.Number]
	left := rows - s.Pending()
	if len(b)/changeBytesMin <= left {
		return true
	}
	section := pipeline.ReadSection(b)
	for _, ok := section.Next(); ok && left >= 0; _, ok = section.Next() {
		left--
	}
	return left >= 0
}

// Moved says whether the state differs from the last one handed over. Owner only.
func (s *Shard) Moved() bool { return s.state != s.gathered }

// Durable is the last window of DELTAS whose changes are committed. Owner only.
func (s *Shard) Durable() uint64 { return s.durable }

// SetDurable records that a checkpoint was committed. Owner only.
func (s *Shard) SetDurable(sequence uint64) { s.durable, s.flying = sequence, 0 }

// Row names one row of a shard.
type Row struct {
	Shard   *Shard
	Counter int
	ID      uint64
}

// Checkpoint adds every dirty row and the state to c, marks them clean, and
// appends what it added to rows, for Redo when the commit fails. Owner only;
// rows do not change meanwhile, so reads may go on.
func (s *Shard) Checkpoint(c *cold.Checkpoint, rows []Row) ([]Row, error) {
	var failed error
	s.flying = s.Dirty()
	for counter, t := range s.tables {
		t.Clean(func(id uint64, cells []int64) {
			rows = append(rows, Row{s, counter, id})
			if err := c.Row(s.Number, counter, id, cells); err != nil && failed == nil {
				failed = err
			}
		})
	}
	if failed == nil {
		failed = c.State(s.Number, s.state)
	}
	s.gathered = s.state
	s.dirty.Store(0)
	return rows, failed
}

// Redo takes back a checkpoint of rows that was not committed. Owner only.
func Redo(rows []Row, shards []*Shard) {
	for _, s := range shards {
		s.gathered, s.flying = cold.State{}, 0
	}
	for _, r := range rows {
		r.Shard.tables[r.Counter].MarkDirty(r.ID)
	}
	for _, s := range shards {
		s.dirty.Store(int64(s.Dirty()))
	}
}

// Stats are one shard's figures.
type Stats struct {
	Rows      []int // by counter
	Bytes     int
	Dirty     int
	Saturated uint64
}

// Stats counts. It may be called from any goroutine.
func (s *Shard) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	stats := Stats{Saturated: s.saturated, Dirty: int(s.dirty.Load())}
	for _, t := range s.tables {
		stats.Rows = append(stats.Rows, t.Rows())
		stats.Bytes += t.Bytes()
	}
	return stats
}
