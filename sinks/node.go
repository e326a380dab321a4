// Package sinks keeps what windows change: a Node is handed those of DELTAS, has
// each section applied by its shard's owner, checkpoints, and answers reads.
//
//	DELTAS ───► Hand ─► owner 0: shards 0, n, 2n …   ─┬─► commits ─► runs in files, states in Badger
//	              └───► owner 1: shards 1, n+1, …    ─┘
//
// A failed shard (I3) stops alone; the others go on and answers name what is
// missing. A node may hold some of the shards only, and take up and give up
// others while it runs: held.go; holder.go answers for what it holds.
package sinks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/shard"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

// Options shape a node.
type Options struct {
	Shards          int
	Held            []pipeline.Shard  // nil: all. The others take no memory and answer nothing
	Beside          bool              // another node of this process has the commons; see NewNode
	Others          func() int        // bytes of MemoryBytes that others take now, which must not block; nil: none
	Owners          int               // goroutines that own shards; at most as many merge a feed
	CheckpointEvery time.Duration     // twice as much is applied again after a crash, or of a backlog backlogTicks times
	DirtyRowsMax    int               // of one shard, before it must checkpoint
	CommitRows      int               // that make a commit large enough for no more shards; 0: 1024
	MemoryBytes     int               // for what shards hold in memory; 0: as much as there is
	Turn            func(work func()) // does what takes a processor, some milliseconds at a time, when it may; nil: at once
	Disk            func(work func()) // does what may wait for the disk as well; nil: at once
	Users           shard.Limits
	Notices         []string // configured channels, by kind
	Dots            []string
	Channels        shard.ChannelLimits
	// SequenceMax is the last window that DELTAS holds. A state that names a
	// later one refers to windows that are lost (I10).
	SequenceMax uint64
	// Joins replaces the rule by which a shard finds that a window goes on
	// where it stands; nil: I3. It is there to be broken on purpose: the
	// simulation must notice.
	Joins  shard.Joins
	Logger *slog.Logger
}

// queueMax bounds the windows that wait for one owner.
const queueMax = 16

// Node is all state of one process. It implements pipeline.Shards.
type Node struct {
	store   *cold.Store
	schema  *pipeline.Schema
	o       Options
	clock   *shard.Clock
	commons *tier.Commons
	owners  []*owner

	holding  sync.Mutex           // guards what is stored in held
	held     atomic.Pointer[held] // readers load it once
	released releasedStats
	progress progress[pipeline.Position] // of what answers
	posted   posted

	checkpointErr atomic.Pointer[error] // of the last one; nil: good

	// Used only by the goroutine that hands over.
	sequence uint64              // the last window handed to the owners
	timed    pipeline.Position   // the clock knows the log's time up to here
	noted    []pipeline.TimeMark // that are new to the clock and not handed to the commons yet
	handed   atomic.Uint64       // its end
	names    []string
	columns  []pipeline.Column

	newest atomic.Int64 // log time of the newest window applied, Unix ms

	memory     atomic.Int64 // Options.MemoryBytes, or what SetMemory said since
	memoryOnly atomic.Bool  // reads leave what is only on disk
	lent       atomic.Int64 // of Options.MemoryBytes, to a node beside this one

	stopping atomic.Bool
	enough   atomic.Bool // stopping, and nothing more is applied
	wait     sync.WaitGroup
	Stats    NodeStats
}

var _ pipeline.Shards = (*Node)(nil)

// NodeStats are a node's figures since the process started.
type NodeStats struct {
	Windows           atomic.Uint64 // handed to the owners
	Checkpoints       atomic.Uint64 // commits
	CheckpointErrors  atomic.Uint64
	CheckpointsForced atomic.Uint64 // rounds begun before their time, or hastened
	CheckpointRows    atomic.Uint64
	CheckpointNanos   atomic.Uint64 // spent making and committing them; an owner's overlap
	LastCheckpoint    atomic.Int64  // wall clock, Unix ms, for the age alone
	Elsewhere         atomic.Uint64 // followees in polls that other nodes hold
	Quiet             atomic.Uint64 // those of them that were not asked for: they have posted nothing
	Left              atomic.Uint64 // rows, users, lists and outboxes missing from answers because they were left on disk (MemoryOnly)
}

// NewNode opens the shards held and starts the owners. What the shards hold is
// read from the store when it is asked for, and in the background (Warmth).
//
// A node beside another, over the same store, brings shards that the other does
// not hold to where they can be taken up by it. It has no commons: it does not
// write them, and answers for no users' channels. Its log time is its own: it
// begins where the lowest of its shards stands, with what the store has of the
// time before. The two must hold no shard in common. Its memory is a part of the
// other's (Lend).
func NewNode(store *cold.Store, o Options) (*Node, error) {
	n := &Node{store: store, schema: store.Schema(), o: o, clock: shard.NewClock(max(o.Users.Retention, o.Users.Inactive))}
	n.memory.Store(int64(o.MemoryBytes))
	atOnce := func(work func()) { work() }
	if n.o.Disk == nil {
		n.o.Disk = atOnce
	}
	if n.o.Turn == nil {
		n.o.Turn = atOnce
	}
	if err := n.load(); err != nil {
		return nil, err
	}
	n.timed = max(n.timed, n.commons.State().Applied)
	n.sequence = math.MaxUint64
	for _, u := range n.units() {
		if u.Err() != nil {
			continue
		}
		state := u.State()
		n.sequence = min(n.sequence, state.Sequence)
		n.newest.Store(max(n.newest.Load(), state.Time))
	}
	n.Stats.LastCheckpoint.Store(time.Now().UnixMilli())
	if n.sequence == math.MaxUint64 { // nothing is held that goes on
		n.sequence = 0
	}
	for i := range o.Owners {
		n.owners = append(n.owners, newOwner(n, i))
	}
	n.advance()
	for _, w := range n.owners {
		n.wait.Go(w.ahead)
		n.wait.Go(w.run)
	}
	n.wait.Go(func() { n.warm(n.held.Load().shards) })
	if !o.Beside {
		n.wait.Go(n.verify)
	}
	return n, nil
}

// Positions are where the shards (and the commons) that go on stand, ascending, each once.
func (n *Node) Positions() []pipeline.Position {
	var out []pipeline.Position
	for _, u := range n.units() {
		if u.Err() == nil {
			out = append(out, u.State().Applied)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Kept are the positions up to which the shards (and the commons) are
// checkpointed, ascending, each once: where a crash would leave them. Those that
// have stopped go on from there after the next start.
func (n *Node) Kept() []pipeline.Position {
	var out []pipeline.Position
	for _, o := range n.owners {
		out = append(out, *o.keptEach.Load()...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Furthest is how far the furthest shard has come, and the log time there,
// Unix milliseconds.
func (n *Node) Furthest() (position pipeline.Position, time int64) {
	for _, u := range n.units() {
		if s := u.State(); s.Applied > position {
			position, time = s.Applied, s.Time
		}
	}
	return position, time
}

// Sequence is the window of DELTAS after which this node goes on.
func (n *Node) Sequence() uint64 { return n.sequence }

// Settle returns when what was handed over is applied, or passed over, by each.
func (n *Node) Settle(ctx context.Context) error {
	for _, o := range n.owners {
		if err := o.done.wait(ctx, o.sent.Load()); err != nil {
			return err
		}
	}
	return nil
}

// Resume says that DELTAS goes on after a window, where the shards stand now.
func (n *Node) Resume(sequence uint64) { n.sequence = sequence }

// Schema is what this node's shards hold.
func (n *Node) Schema() *pipeline.Schema { return n.schema }

// Time is the log time of the newest window applied, Unix milliseconds.
func (n *Node) Time() int64 { return n.newest.Load() }

// Hand gives one window to every owner. One caller at a time.
func (n *Node) Hand(ctx context.Context, e pipeline.Entry) error {
	if err := n.hand(ctx, e); err != nil {
		return fmt.Errorf("sinks: window %d: %w", e.Sequence, err)
	}
	return nil
}

func (n *Node) hand(ctx context.Context, e pipeline.Entry) error {
	w, err := pipeline.DecodeWindow(e.Window)
	if err != nil {
		return err
	}
	if len(w.Sections) != n.o.Shards+1 {
		return fmt.Errorf("it has %d shards and this node has %d: every node of one delta log must have the same number", len(w.Sections)-1, n.o.Shards)
	}
	columns, err := n.translate(w.Columns)
	if err != nil {
		return err
	}
	// What is handed over again has its place in time already.
	first := sort.Search(len(w.Marks), func(i int) bool { return w.Marks[i].Position > n.timed })
	if noted := n.clock.Note(w.Marks[first:]); !n.o.Beside {
		n.noted = append(n.noted, noted...)
	}
	n.timed = max(n.timed, w.To)
	n.note(w)
	for _, o := range n.owners {
		var noted []pipeline.TimeMark
		if o.commons != nil {
			noted = n.noted
		}
		select {
		case o.windows <- handed{sequence: e.Sequence, window: w, columns: columns, noted: noted}:
			o.sent.Add(1)
			if o.commons != nil {
				n.noted = nil
			}
		case <-ctx.Done():
			// Some owners have it and some do not; those that do pass it over
			// when it comes again (I3).
			return ctx.Err()
		}
	}
	n.sequence = e.Sequence
	n.handed.Store(uint64(w.To))
	n.Stats.Windows.Add(1)
	return nil
}

// note notes the authors who posted, where other nodes hold some of them.
func (n *Node) note(w *pipeline.Window) {
	if n.o.Beside {
		return
	}
	if !n.posted.begun() {
		if h := n.held.Load(); h.whole || len(h.shards) == 0 {
			return
		}
		n.posted.begin()
	}
	n.posted.note(w, n.budget())
}

// translate maps a window's columns to the schema's.
func (n *Node) translate(names []string) ([]pipeline.Column, error) {
	if n.columns != nil && slices.Equal(names, n.names) {
		return n.columns, nil
	}
	columns := make([]pipeline.Column, len(names))
	for i, name := range names {
		c, ok := n.schema.Find(name)
		if !ok {
			c = shard.NoColumn // an error once something changes it
		}
		columns[i] = c
	}
	n.names, n.columns = names, columns
	return columns, nil
}

// advance recomputes how far all that answers has come.
func (n *Node) advance() {
	n.progress.move(func(pipeline.Position) (lowest pipeline.Position) {
		healthy := false
		for _, o := range n.owners {
			if p, ok := o.applied(); ok && (!healthy || p < lowest) {
				lowest, healthy = p, true
			}
		}
		return lowest
	})
}

// Checkpointed is the lowest window of DELTAS that is checkpointed in every
// shard; earlier ones are not needed by this node again.
func (n *Node) Checkpointed() uint64 {
	lowest := uint64(math.MaxUint64)
	for _, o := range n.owners {
		lowest = min(lowest, o.durable.Load())
	}
	return lowest
}

// CheckpointedGoing leaves out shards that have stopped, unless all have.
func (n *Node) CheckpointedGoing() uint64 {
	lowest := uint64(math.MaxUint64)
	for _, o := range n.owners {
		lowest = min(lowest, o.durableGoing.Load())
	}
	if lowest == math.MaxUint64 {
		return n.Checkpointed()
	}
	return lowest
}

// kept is the position up to which every shard is checkpointed.
func (n *Node) kept() pipeline.Position {
	lowest := n.owners[0].kept.Load()
	for _, o := range n.owners[1:] {
		lowest = min(lowest, o.kept.Load())
	}
	return pipeline.Position(lowest)
}

// Err joins what stopped shards; nil when all go on.
func (n *Node) Err() error {
	var faults []error
	for _, u := range n.units() {
		faults = append(faults, u.Err())
	}
	return errors.Join(faults...)
}

// CommonsErr is why the commons stopped; nil when they go on.
func (n *Node) CommonsErr() error { return n.commons.Err() }

// Handed is the end of the last window handed over.
func (n *Node) Handed() pipeline.Position { return pipeline.Position(n.handed.Load()) }

// Stopped says that nothing goes on.
func (n *Node) Stopped() bool {
	units := n.units()
	return len(units) > 0 && !slices.ContainsFunc(units, func(u unit) bool { return u.Err() == nil })
}

// CheckpointErr is why the last checkpoint failed; nil when it did not. Until
// one succeeds what changes is kept in memory, and when that is full nothing
// more is applied. Reads go on.
func (n *Node) CheckpointErr() error {
	if err := n.checkpointErr.Load(); err != nil && *err != nil {
		return fmt.Errorf("checkpoints fail, and applying stops when memory for changes is full: %w", *err)
	}
	return nil
}

// Failed is the number of shards (and the commons) that have stopped.
func (n *Node) Failed() (failed int) {
	for _, u := range n.units() {
		if u.Err() != nil {
			failed++
		}
	}
	return failed
}

// Channels is the number of channels and of their live notices.
func (n *Node) Channels() (channels, notices int) { return n.commons.Channels() }

// ChannelBytes is the memory of the channels and their notices.
func (n *Node) ChannelBytes() int { return n.commons.Bytes() }

// PassedOver is how many notices were passed over since the start, because
// there are too many channels, and how many were taken out of full channels.
func (n *Node) PassedOver() (unopened, replaced uint64) { return n.commons.PassedOver() }

// closeApplies is how long Close goes on applying: what is left then, DELTAS
// still has.
const closeApplies = 5 * time.Second

// Close applies what was handed over, as far as it can be applied in a few seconds,
// checkpoints and stops the owners. The store stays open. No call may hand over from
// now on.
func (n *Node) Close() error {
	if n.stopping.Swap(true) {
		return nil
	}
	enough := time.AfterFunc(closeApplies, func() { n.enough.Store(true) })
	defer enough.Stop()
	for _, o := range n.owners {
		close(o.windows)
	}
	n.wait.Wait()
	var faults []error
	for _, o := range n.owners {
		faults = append(faults, o.err)
	}
	return errors.Join(faults...)
}
