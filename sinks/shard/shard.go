// Package shard is the state of one shard: it applies sections of windows,
// answers reads, and hands over what changed for a checkpoint. It does no I/O:
// what it hands over goes to a Sink, and where a part of what is asked is only
// on disk, it says which part, has the caller pin the disk at that moment, and
// lays what it knows over what the caller has read. (sets.go has what rules with `once`
// have counted, and followers; page.go lists sets.)
//
//	Apply ──► rows, users, outboxes, sets ──► HandOver ─► Write ─► Sink
//	               │             ▲                             Settle ◄─ committed
//	             reads        Install… ◄── what the caller read
package shard

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// Limits are what the configuration says about users' numbers.
type Limits struct {
	PostsMax  int   // newest posts of an author that count
	PostsKept int   // and that are kept, so that they count when newer ones are deleted; 0: no bound
	Retention int64 // seconds of log time that a post is listed
	Inactive  int64 // seconds of log time after which a user who reads nothing is dropped
}

// Shard holds everything about its ids. One goroutine, its owner, calls the
// writing methods; reads, and Install methods, may come from any.
//
//	durable ≤ gathered ≤ state ≤ what DELTAS holds
//
// What it holds in memory may be a part of what there is: see residency.go.
type Shard struct {
	Number pipeline.Shard
	Joins  Joins // nil: I3. Set before the first Apply.

	// Set once.
	schema *pipeline.Schema
	limits Limits
	clock  *Clock
	graph  graphColumns
	exists []int // by counter: its column of that name, or -1

	// The owner's alone.
	gathered State      // the last state handed over for a checkpoint
	durable  State      // the last state committed
	scratch  []hot.Pair // working space
	cells    cells      // empty between windows

	// mu guards what follows. All but the Install methods write as the owner.
	mu          sync.RWMutex
	state       State        // as of the end of one window, exactly (I4)
	failed      error        // set once; the shard applies and answers nothing more
	rows        []*hot.Table // by the schema's counter index; a partial one is dirty
	cache       []*hot.Table // rows that were read from the disk and not written since; an id is in one of both
	users       *hot.Lists   // user → marks; cursors and followees: see users.go
	cursorNames channelNames
	outboxes    *hot.Lists  // author → position of the newest post; posts: see timeline.go
	newest      *hot.Newest // of every author: a bound; see residency.newest
	sets        []*set      // the first: followers; then those of columns: see sets.go
	byColumn    []*set      // of them, by the schema's column; nil: it has none
	following   *hot.Sets   // (user, followee), of users who are not in users
	fits        []fit       // by counter
	residency   residency
	flight      flight   // what is handed over and not known to be committed
	changed     *changes // since then
	columns     []columnCounts

	counts []counts // by counter: see there

	// As of the last change, for any goroutine.
	dirty atomic.Int64
	bytes atomic.Int64
}

// NoColumn stands for a column of a window that the schema does not have.
const NoColumn = pipeline.NoColumn

// New makes a shard that holds nothing in memory. Its state is that of what is
// on disk; State{} where nothing is.
func New(number pipeline.Shard, schema *pipeline.Schema, limits Limits, clock *Clock, state State) *Shard {
	s := &Shard{
		Number: number, schema: schema, limits: limits, clock: clock,
		state: state, gathered: state, durable: state,
		graph: findGraphColumns(schema),
		users: hot.NewLists(marksCount, hot.ByA, hot.ByA), outboxes: hot.NewLists(1, hot.ByBoth), newest: hot.NewNewest(0),
		following: hot.NewSets(hot.SetsForm{}),
		fits:      make([]fit, len(schema.Counters)), counts: make([]counts, len(schema.Counters)), columns: make([]columnCounts, len(schema.Columns)),
	}
	for i, c := range schema.Counters {
		s.rows, s.cache = append(s.rows, hot.NewTable(s.bits(i))), append(s.cache, hot.NewTable(s.bits(i)))
		s.rows[i].Loosen(true)
		s.rows[i].KeepWritten() // a caller that reads much of what is old must not keep it here; for that there is the cache
		exists := -1
		if column, ok := schema.Find(c.Name + "." + pipeline.ExistsColumn); ok {
			exists = int(column)
		}
		s.exists = append(s.exists, exists)
	}
	s.changed = new(changes)
	s.residency = newResidency(len(schema.Counters), state)
	s.makeSets(s.residency.users)
	return s
}

// bits are the widths of a counter's columns.
func (s *Shard) bits(counter int) (bits []int) {
	c := s.schema.Counters[counter]
	for _, column := range s.schema.Columns[c.First : c.First+pipeline.Column(c.Count)] {
		bits = append(bits, max(column.Bits, 1))
	}
	return bits
}

// Apply applies the shard's section of a window, or passes a window over that
// it has applied before (I3). columns maps the window's columns to the
// schema's. An error is final: the shard has failed.
func (s *Shard) Apply(sequence uint64, w *pipeline.Window, columns []pipeline.Column) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return s.failed
	}
	joins := s.Joins
	if joins == nil {
		joins = joinsOn
	}
	if goesOn, err := joins(s.state.Applied, w); err != nil {
		return s.failLocked(fmt.Errorf("%w: shard %d has applied up to position %d and the next window is (%d, %d] (I3)",
			err, s.Number, s.state.Applied, w.From, w.To))
	} else if !goesOn {
		return nil
	}
	if err := s.applyLocked(w, columns); err != nil {
		return s.failLocked(err)
	}
	s.boundListsLocked()
	s.measureLocked()
	s.state = State{Applied: w.To, Sequence: sequence, Time: max(s.state.Time, w.Time)}
	return nil
}

// applyLocked applies the shard's section.
func (s *Shard) applyLocked(w *pipeline.Window, columns []pipeline.Column) error {
	section, log := pipeline.ReadSection(w.Sections[s.Number], w.From), s.secondsLocked(w)
	for change, ok := section.Next(); ok; change, ok = section.Next() {
		if change.Op != pipeline.OpCell {
			if err := s.operateLocked(&section.Operation, w, columns, &log); err != nil {
				return s.inWindow(w, err)
			}
			continue
		}
		if err := s.cellLocked(&change, w, columns); err != nil {
			return err
		}
	}
	return s.inWindow(w, errors.Join(s.flushLocked(), section.Err()))
}

// inWindow says of an error in which window it is.
func (s *Shard) inWindow(w *pipeline.Window, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("shard %d, window (%d, %d]: %w", s.Number, w.From, w.To, err)
}

func (s *Shard) cellLocked(change *pipeline.Change, w *pipeline.Window, columns []pipeline.Column) error {
	switch {
	case change.Column < len(columns) && columns[change.Column] == NoColumn:
		// What another node's history has and this one's has not: to
		// empty it is nothing, to count it is a configuration apart.
		if v, set := change.Delta.Value(); !set || v != 0 {
			return fmt.Errorf("shard %d: the window (%d, %d] changes column %s, which this node's configuration does not have: add it to counters",
				s.Number, w.From, w.To, w.Columns[change.Column])
		}
		return nil
	case change.Column >= len(columns) || change.ID == 0:
		return fmt.Errorf("%w: shard %d: column %d of id %d", pipeline.ErrWindow, s.Number, change.Column, change.ID)
	}
	return s.inWindow(w, s.addLocked(columns[change.Column], change.ID, change.Delta))
}

// Joins says whether a window goes on where a shard stands; if not, the shard
// has applied it before, or there is a gap (pipeline.ErrGap).
type Joins func(applied pipeline.Position, w *pipeline.Window) (goesOn bool, err error)

// joinsOn is the rule (I3).
func joinsOn(applied pipeline.Position, w *pipeline.Window) (goesOn bool, err error) {
	switch {
	case w.To <= applied:
		return false, nil
	case w.From != applied:
		return false, pipeline.ErrGap
	}
	return true, nil
}

// changeLocked changes a cell. It never waits for the disk: of a row that is
// only there, what has come since is kept.
func (s *Shard) changeLocked(column pipeline.Column, id uint64, d pipeline.Delta) {
	counter := s.schema.Columns[column].Counter
	missing := hot.Whole
	if r := &s.residency.rows[counter]; !r.all {
		s.takeCachedLocked(counter, id)
		if !r.has(id) {
			missing = hot.Partial
		}
	}
	if s.rows[counter].Change(id, int(column-s.schema.Counters[counter].First), d, missing) {
		s.columns[column].saturated++
	}
	s.columns[column].sets++
}

func (s *Shard) operateLocked(o *pipeline.Operation, w *pipeline.Window, columns []pipeline.Column, log *seconds) error {
	ofSet := o.Op.OfSet()
	if o.ID == 0 || (o.Other == 0) != (o.Op == pipeline.OpRead || ofSet) || o.Position > w.To {
		return fmt.Errorf("%w: operation %d of id %d and %d at position %d", pipeline.ErrWindow, o.Op, o.ID, o.Other, o.Position)
	}
	if ofSet {
		return s.ofSetLocked(o, w, columns, log.at(o.Position))
	}
	if o.Op == pipeline.OpPost {
		return s.waitLocked(operation{id: o.ID, post: o.Other, position: o.Position})
	}
	if err := s.flushLocked(); err != nil {
		return err
	}
	switch o.Op {
	case pipeline.OpFollow:
		return s.followLocked(o.ID, o.Other, o.Position)
	case pipeline.OpUnfollow:
		return s.unfollowLocked(o.ID, o.Other)
	case pipeline.OpFollowed:
		return s.followedLocked(o, log.at(o.Position))
	case pipeline.OpUnfollowed:
		return s.unfollowedLocked(o, log.at(o.Position))
	case pipeline.OpUnpost:
		return s.unpostLocked(o.ID, o.Other)
	case pipeline.OpRead:
		kinds, err := s.kindsLocked(o, w, columns)
		if err != nil {
			return err
		}
		return errors.Join(s.readLocked(o), s.readKindsLocked(o, kinds, log.at(o.Position)))
	}
	return fmt.Errorf("%w: operation %d in a shard's section", pipeline.ErrWindow, o.Op)
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

// Name says which unit this is, for logs.
func (s *Shard) Name() string { return fmt.Sprintf("shard %d", s.Number) }

// State is how far the shard has come; Err why it has stopped.
func (s *Shard) State() State {
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
