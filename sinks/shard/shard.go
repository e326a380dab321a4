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

// Limits are what the configuration says about users' numbers.
type Limits struct {
	PostsMax  int   // posts listed for an author
	Retention int64 // seconds of log time that a post is listed
	Inactive  int64 // seconds of log time after which a user who reads nothing is dropped
}

// Shard holds everything about its ids. One goroutine, its owner, calls the
// writing methods; reads may come from any.
//
//	durable ≤ gathered ≤ state ≤ what DELTAS holds
type Shard struct {
	Number pipeline.Shard

	mu     sync.RWMutex
	schema *pipeline.Schema
	limits Limits
	clock  *Clock
	state  cold.State // as of the end of one window, exactly (I4)
	failed error      // set once; the shard applies and answers nothing more

	tables    []*hot.Table // by the schema's counter index
	graph     graphColumns
	exists    []int      // by counter: its column of that name, or -1
	following *hot.Lists // user → (followee, position of the follow), by followee
	followers *hot.Edges // (user, follower)
	outboxes  *hot.Lists // author → (position, post), by position
	marks     *hot.Table // user → marks
	cursors   map[cursor]pipeline.Position
	channels  map[string]uint32 // numbers of names
	names     []string
	saturated uint64
	flight    flight // guarded too: reads look what is not yet on disk

	// The owner's alone.
	gathered cold.State // the last state handed over for a checkpoint
	durable  cold.State // the last state committed
	changed  []change   // entries changed since then
	dirty    atomic.Int64
}

// NoColumn stands for a column of a window that the schema does not have.
const NoColumn = ^pipeline.Column(0)

// change names an entry that changed; what it is now is to be looked up.
type change struct {
	kind kind
	a, b uint64
}

type kind uint8

const (
	kindFollowing kind = iota // user, followee
	kindFollower              // user, follower
	kindPost                  // author, position
	kindCursor                // user, channel's number
)

// flight is what has been handed over and is not yet known to be committed.
type flight struct {
	rows    []rowKey
	marks   []uint64
	changed []change
}

type rowKey struct {
	counter int
	id      uint64
}

func (f *flight) len() int { return len(f.rows) + len(f.marks) + len(f.changed) }

// New makes an empty shard whose state is as its store says; Load then puts
// what it holds.
func New(number pipeline.Shard, schema *pipeline.Schema, limits Limits, clock *Clock, state cold.State) *Shard {
	s := &Shard{
		Number: number, schema: schema, limits: limits, clock: clock,
		state: state, gathered: state, durable: state,
		graph:     findGraphColumns(schema),
		following: hot.NewLists(), followers: hot.NewEdges(), outboxes: hot.NewLists(),
		marks:   hot.NewTable(marksCount),
		cursors: make(map[cursor]pipeline.Position), channels: make(map[string]uint32),
	}
	for _, c := range schema.Counters {
		s.tables = append(s.tables, hot.NewTable(c.Count))
		exists := -1
		if column, ok := schema.Find(c.Name + "." + pipeline.ExistsColumn); ok {
			exists = int(column)
		}
		s.exists = append(s.exists, exists)
	}
	return s
}

// Load reads everything that the store has of the shard.
func (s *Shard) Load(store *cold.Store) error {
	for _, scan := range []func() error{
		func() error {
			return store.Scan(s.Number, func(counter int, id uint64, cells []int64) error {
				copy(s.tables[counter].Load(id), cells)
				return nil
			})
		},
		func() error {
			return store.ScanFollowing(s.Number, func(user, followee uint64, since pipeline.Position) {
				s.following.Insert(user, len(s.following.Get(user)), hot.Pair{A: followee, B: uint64(since)})
			})
		},
		func() error {
			return store.ScanFollowers(s.Number, func(user, follower uint64) { s.followers.Add(user, follower) })
		},
		func() error {
			return store.ScanPosts(s.Number, func(author uint64, position pipeline.Position, post uint64) {
				s.outboxes.Insert(author, len(s.outboxes.Get(author)), hot.Pair{A: uint64(position), B: post})
			})
		},
		func() error {
			return store.ScanMarks(s.Number, func(user uint64, marks [4]int64) { copy(s.marks.Load(user), marks[:]) })
		},
		func() error {
			return store.ScanCursors(s.Number, func(user uint64, channel string, position pipeline.Position) {
				s.cursors[cursor{user, s.channel(channel)}] = position
			})
		},
	} {
		if err := scan(); err != nil {
			return err
		}
	}
	return nil
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
	section := pipeline.ReadSection(w.Sections[s.Number], w.From)
	for change, ok := section.Next(); ok; change, ok = section.Next() {
		switch {
		case change.Op != pipeline.OpCell:
			if err := s.operateLocked(&section.Operation); err != nil {
				return s.failLocked(fmt.Errorf("shard %d, window (%d, %d]: %w", s.Number, w.From, w.To, err))
			}
		case change.Column < len(columns) && columns[change.Column] == NoColumn:
			// What another node's history has and this one's has not: to
			// empty it is nothing, to count it is a configuration apart.
			if v, set := change.Delta.Value(); !set || v != 0 {
				return s.failLocked(fmt.Errorf("shard %d: the window (%d, %d] changes column %s, which this node's configuration does not have: add it to counters",
					s.Number, w.From, w.To, w.Columns[change.Column]))
			}
		case change.Column >= len(columns) || change.ID == 0:
			return s.failLocked(fmt.Errorf("%w: shard %d: column %d of id %d", pipeline.ErrWindow, s.Number, change.Column, change.ID))
		default:
			s.changeLocked(columns[change.Column], change.ID, change.Delta)
		}
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

func (s *Shard) operateLocked(o *pipeline.Operation) error {
	if o.ID == 0 || (o.Other == 0) != (o.Op == pipeline.OpRead) {
		return fmt.Errorf("%w: operation %d of id %d and %d", pipeline.ErrWindow, o.Op, o.ID, o.Other)
	}
	switch o.Op {
	case pipeline.OpFollow:
		s.followLocked(o.ID, o.Other, o.Position)
	case pipeline.OpUnfollow:
		s.unfollowLocked(o.ID, o.Other)
	case pipeline.OpFollowed:
		s.followedLocked(o.ID, o.Other)
	case pipeline.OpUnfollowed:
		s.unfollowedLocked(o.ID, o.Other)
	case pipeline.OpPost:
		s.postLocked(o.ID, o.Other, o.Position)
	case pipeline.OpUnpost:
		s.unpostLocked(o.ID, o.Other)
	case pipeline.OpRead:
		s.readLocked(o)
	default:
		return fmt.Errorf("%w: operation %d in a shard's section", pipeline.ErrWindow, o.Op)
	}
	return nil
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

// Dirty is the number of rows and entries that changed since they were last
// handed over. Owner only.
func (s *Shard) Dirty() int {
	n := len(s.changed) + s.marks.Dirty()
	for _, t := range s.tables {
		n += t.Dirty()
	}
	return n
}

// Pending is the number of rows and entries that are dirty should the commit
// under way fail. Owner only.
func (s *Shard) Pending() int { return s.Dirty() + s.flight.len() }

// The most rows and entries that one change can make dirty: two rows and an
// edge; a post and those it drops; a mark and a cursor for each channel. None
// is more than four for each byte that it takes in a section.
const (
	changedMax     = 3
	changedByteMax = 4
)

// Fits says whether the shard can apply its section of a window and still hand
// over all that changed as at most so many rows and entries.
func (s *Shard) Fits(w *pipeline.Window, rows int) bool {
	b := w.Sections[s.Number]
	left := rows - s.Pending()
	if len(b)*changedByteMax <= left {
		return true
	}
	section := pipeline.ReadSection(b, w.From)
	for c, ok := section.Next(); ok && left >= 0; c, ok = section.Next() {
		switch c.Op {
		case pipeline.OpCell:
			left--
		case pipeline.OpPost:
			left -= 1 + dropMax
		case pipeline.OpRead:
			left -= 1 + len(section.Operation.Channels)
		default:
			left -= changedMax
		}
	}
	return left >= 0
}

// Moved says whether the state differs from the last one handed over. Owner only.
func (s *Shard) Moved() bool { return s.state != s.gathered }

// Durable is the last window of DELTAS whose changes are committed, Kept its
// end. Owner only.
func (s *Shard) Durable() uint64         { return s.durable.Sequence }
func (s *Shard) Kept() pipeline.Position { return s.durable.Applied }

// Checkpoint adds everything dirty and the state to a checkpoint and marks it
// clean; Settle must follow. Owner only; nothing changes meanwhile, so reads
// may go on.
func (s *Shard) Checkpoint(c *cold.Checkpoint) error {
	var f flight
	var failed error
	note := func(err error) {
		if failed == nil {
			failed = err
		}
	}
	for counter, t := range s.tables {
		t.Clean(func(id uint64, cells []int64) {
			f.rows = append(f.rows, rowKey{counter, id})
			note(c.Row(s.Number, counter, id, cells))
		})
	}
	s.marks.Clean(func(user uint64, cells []int64) {
		f.marks = append(f.marks, user)
		note(c.PutMarks(s.Number, user, cells))
	})
	f.changed = s.changed
	for _, e := range f.changed {
		note(s.put(c, e))
	}
	note(c.State(s.Number, s.state))
	s.mu.Lock()
	s.flight, s.changed = f, nil // at once: a reader finds what is not on disk in one of them
	s.mu.Unlock()
	s.gathered = s.state
	s.dirty.Store(0)
	return failed
}

// put adds an entry as it is now.
func (s *Shard) put(c *cold.Checkpoint, e change) error {
	switch e.kind {
	case kindFollowing:
		list := s.following.Get(e.a)
		if at, ok := follows(list, e.b); ok {
			return c.PutFollowing(s.Number, e.a, e.b, pipeline.Position(list[at].B))
		}
		return c.DeleteFollowing(s.Number, e.a, e.b)
	case kindFollower:
		if s.followers.Has(e.a, e.b) {
			return c.PutFollower(s.Number, e.a, e.b)
		}
		return c.DeleteFollower(s.Number, e.a, e.b)
	case kindPost:
		box, position := s.outboxes.Get(e.a), pipeline.Position(e.b)
		if at := since(box, position); at < len(box) && box[at].A == e.b {
			return c.PutPost(s.Number, e.a, position, box[at].B)
		}
		return c.DeletePost(s.Number, e.a, position)
	default:
		return c.PutCursor(s.Number, e.a, s.names[e.b], s.cursors[cursor{e.a, uint32(e.b)}])
	}
}

// Settle takes in what became of the last checkpoint: committed, or to be
// done again. Owner only.
func (s *Shard) Settle(committed bool) {
	s.mu.Lock()
	f := s.flight
	s.flight = flight{}
	if !committed {
		s.changed = append(f.changed, s.changed...)
	}
	s.mu.Unlock()
	if committed {
		s.durable = s.gathered
		return
	}
	s.gathered = cold.State{}
	for _, r := range f.rows {
		s.tables[r.counter].MarkDirty(r.id)
	}
	for _, user := range f.marks {
		s.marks.MarkDirty(user)
	}
	s.dirty.Store(int64(s.Dirty()))
}

// Stats are one shard's figures.
type Stats struct {
	Rows      []int // by counter
	Users     int   // with marks
	Following int   // edges, by who follows
	Followers int   // edges, by who is followed
	Posts     int   // in outboxes
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
	stats.Users, stats.Following, stats.Followers, stats.Posts = s.marks.Rows(), s.following.Pairs(), s.followers.Count(), s.outboxes.Pairs()
	stats.Bytes += s.marks.Bytes() + s.following.Bytes() + s.followers.Bytes() + s.outboxes.Bytes()
	return stats
}
