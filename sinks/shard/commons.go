package shard

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// Commons is what every node holds whole, whatever its shards: the channels
// and log time. It applies a window's last section, and is otherwise a shard
// like the others: same positions (I3), same checkpoints (I4). Publishing to
// everyone is one entry here; no user is touched.
type Commons struct {
	number pipeline.Shard // one past the last shard
	clock  *Clock
	limits ChannelLimits

	mu       sync.RWMutex
	state    State
	failed   error
	channels map[string]*channel
	lists    *hot.Lists // number of a channel → its live notices: (position, notice)
	last     uint64     // number given to a channel
	live     int        // notices in all lists
	notices  []string   // names of notice channels, ascending
	dots     []string   // names of dot channels, ascending
	toggled  []string   // names of channels that the window in hand has opened or closed

	nameBytes int // of the channels' names

	// The owner's alone.
	gathered State
	durable  State
	noted    []pipeline.TimeMark // not yet handed over
	expired  []pipeline.TimeMark
	changed  []noticeKey
	inflight struct {
		state          State
		noted, expired []pipeline.TimeMark
		changed        []noticeKey
		positions      []pipeline.Position // of changed; 0: gone
	}

	// For any goroutine.
	bytes    atomic.Int64
	unopened atomic.Uint64
	replaced atomic.Uint64
}

// ChannelLimits bound the channels. The oldest notice of a full channel goes; a
// notice for a channel beyond the last is passed over. All nodes of one log
// have the same.
type ChannelLimits struct {
	Channels int // that exist at once: the configured ones, and others while they have a notice; 0: no bound
	Notices  int // live ones of one channel; 0: no bound
}

// channel is a set of live notices. One that is not configured exists while it
// has a notice: only so do a node that has started again and one that has not
// name the same.
type channel struct {
	configured bool
	number     uint64 // of its list
}

type noticeKey struct {
	channel string
	notice  uint64
}

// NewCommons makes the part that every node holds. dots and notices are the
// configured channels; any other is a notice channel.
func NewCommons(number pipeline.Shard, clock *Clock, state State, notices, dots []string, limits ChannelLimits) *Commons {
	c := &Commons{
		number: number, clock: clock, limits: limits, state: state, gathered: state, durable: state,
		channels: make(map[string]*channel), lists: hot.NewLists(0, hot.ByBoth),
		notices: slices.Sorted(slices.Values(notices)), dots: slices.Sorted(slices.Values(dots)),
	}
	for _, name := range slices.Concat(notices, dots) {
		c.openLocked(name).configured = true
	}
	return c
}

// ErrStored: what was read back is not what any log can have led to.
var ErrStored = errors.New("shard: what is stored cannot be")

// Second takes in a moment of log time that was read back. They come ascending.
func (c *Commons) Second(second int64, position pipeline.Position) {
	c.clock.Note([]pipeline.TimeMark{{Second: second, Position: position}})
}

// Live are live notices: by channel, (position, notice).
type Live map[string][]hot.Pair

// Add adds one.
func (l Live) Add(channel string, notice uint64, position pipeline.Position) {
	l[channel] = append(l[channel], hot.Pair{A: uint64(position), B: notice})
}

// Notices takes in all live notices that were read back, and sorts the lists.
// Once, before the first Apply.
func (c *Commons) Notices(live Live) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, list := range live {
		slices.SortFunc(list, func(a, b hot.Pair) int { return cmp.Compare(a.A, b.A) })
		for i, p := range list {
			if p.A > uint64(c.state.Applied) || i > 0 && p.A == list[i-1].A { // an event has one notice
				return fmt.Errorf("%w: channel %s: notice %d at position %d, applied up to %d", ErrStored, name, p.B, p.A, c.state.Applied)
			}
		}
		ch := c.channels[name]
		if ch == nil {
			ch = c.openLocked(name)
			c.notices = append(c.notices, name)
		}
		c.lists.Fill(ch.number, 0, list)
		c.live += len(list)
	}
	slices.Sort(c.notices)
	c.measure()
	return nil
}

// Apply applies the last section of a window, as Shard.Apply does a shard's.
// The window's time marks have been noted.
func (c *Commons) Apply(sequence uint64, w *pipeline.Window, _ []pipeline.Column) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return c.failed
	}
	if goesOn, err := joinsOn(c.state.Applied, w); err != nil {
		return c.failLocked(fmt.Errorf("%w: the channels are applied up to position %d and the next window is (%d, %d] (I3)",
			err, c.state.Applied, w.From, w.To))
	} else if !goesOn {
		return nil
	}
	section := pipeline.ReadSection(w.Sections[c.number], w.From)
	for change, ok := section.Next(); ok; change, ok = section.Next() {
		o := &section.Operation
		switch {
		case o.ID == 0 || o.Position > w.To:
			return c.failLocked(fmt.Errorf("%w: operation %d of notice %d at position %d", pipeline.ErrWindow, change.Op, o.ID, o.Position))
		case change.Op == pipeline.OpNotice && len(o.Channels) == 1:
			c.noticeLocked(o.Channels[0], o.ID, o.Position)
		case change.Op == pipeline.OpWithdraw && len(o.Channels) == 1:
			c.withdrawLocked(o.Channels[0], o.ID)
		default:
			return c.failLocked(fmt.Errorf("%w: operation %d in the section of channels", pipeline.ErrWindow, change.Op))
		}
	}
	if err := section.Err(); err != nil {
		return c.failLocked(fmt.Errorf("channels, window (%d, %d]: %w", w.From, w.To, err))
	}
	c.renameLocked()
	c.measure()
	c.state = State{Applied: w.To, Sequence: sequence, Time: max(c.state.Time, w.Time)}
	return nil
}

// Noted takes over time marks to be stored. durable is the position up to
// which every unit of the node is checkpointed. Owner only.
func (c *Commons) Noted(marks []pipeline.TimeMark, durable pipeline.Position) {
	c.noted = append(c.noted, marks...)
	c.expired = append(c.expired, c.clock.Trim(durable, len(marks)+trimMax)...)
}

// trimMax is how many marks more than new ones expire with one window: a log
// that was silent for long loses all of them at once.
const trimMax = 256

func (c *Commons) noticeLocked(name string, notice uint64, position pipeline.Position) {
	ch := c.channels[name]
	switch {
	case ch == nil && full(len(c.channels), c.limits.Channels):
		c.unopened.Add(1)
		return
	case ch == nil:
		ch = c.openLocked(name)
		c.toggled = append(c.toggled, name)
	default:
		if _, twice := c.lists.FindB(ch.number, 0, notice); twice {
			return
		}
	}
	for n := 0; n < pipeline.NoticeDropsMax && full(c.lists.Len(ch.number, 0), c.limits.Notices); n++ {
		oldest, _ := c.lists.First(ch.number, 0)
		c.unlistLocked(ch, name, oldest)
		c.replaced.Add(1)
	}
	c.lists.Set(ch.number, 0, hot.Pair{A: uint64(position), B: notice})
	c.live++
	c.changed = append(c.changed, noticeKey{name, notice})
}

// full says that a bound lets nothing more in.
func full(n, bound int) bool { return bound > 0 && n >= bound }

// openLocked makes a channel.
func (c *Commons) openLocked(name string) *channel {
	c.last++
	ch := &channel{number: c.last}
	c.channels[name] = ch
	c.lists.Make(ch.number)
	c.nameBytes += len(name)
	return ch
}

func (c *Commons) unlistLocked(ch *channel, name string, p hot.Pair) {
	c.lists.Delete(ch.number, 0, p.A)
	c.live--
	c.changed = append(c.changed, noticeKey{name, p.B})
}

func (c *Commons) withdrawLocked(name string, notice uint64) {
	ch := c.channels[name]
	if ch == nil {
		return
	}
	position, ok := c.lists.FindB(ch.number, 0, notice)
	if !ok {
		return
	}
	c.unlistLocked(ch, name, hot.Pair{A: position, B: notice})
	if _, some := c.lists.First(ch.number, 0); !some && !ch.configured {
		c.lists.Drop(ch.number)
		delete(c.channels, name)
		c.nameBytes -= len(name)
		c.toggled = append(c.toggled, name)
	}
}

// Correction is where a notice of a channel is, and where it should be; 0: it is not listed.
type Correction struct {
	Channel    string
	Notice     uint64
	Is, Should pipeline.Position
}

// Correct makes corrections, those first that take a notice out: so a full channel has room for
// what was pushed out of it. It leaves out those of notices that are no longer where they were
// said to be, or that newer ones would have pushed out by now. It sorts list, and returns how many
// it made. Owner only.
func (c *Commons) Correct(list []Correction) (made int) {
	slices.SortStableFunc(list, func(a, b Correction) int { return cmp.Compare(a.Should, b.Should) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return 0
	}
	for _, e := range list {
		at, late := uint64(0), false
		if ch := c.channels[e.Channel]; ch != nil {
			at, _ = c.lists.FindB(ch.number, 0, e.Notice)
			oldest, _ := c.lists.First(ch.number, 0)
			late = e.Is == 0 && uint64(e.Should) < oldest.A && full(c.lists.Len(ch.number, 0), c.limits.Notices)
		}
		if pipeline.Position(at) != e.Is || late {
			continue
		}
		if e.Is > 0 {
			c.withdrawLocked(e.Channel, e.Notice)
		}
		if e.Should > 0 {
			c.noticeLocked(e.Channel, e.Notice, e.Should)
		}
		made++
	}
	c.renameLocked()
	c.measure()
	return made
}

// renameLocked lists the notice channels again, once for all that were opened
// and closed by a window. Answers hold the old list.
func (c *Commons) renameLocked() {
	if len(c.toggled) == 0 {
		return
	}
	slices.Sort(c.toggled)
	names, old := make([]string, 0, len(c.notices)+len(c.toggled)), c.notices
	for _, name := range slices.Compact(c.toggled) {
		at, listed := slices.BinarySearch(old, name)
		names, old = append(names, old[:at]...), old[at:]
		if listed {
			old = old[1:]
		}
		if c.channels[name] != nil {
			names = append(names, name)
		}
	}
	c.notices, c.toggled = append(names, old...), nil
}

// channelBytes is what a channel takes beside its name and its notices.
const channelBytes = 192

// measure notes the memory taken.
func (c *Commons) measure() {
	pending := int(unsafe.Sizeof(noticeKey{})) * (cap(c.changed) + cap(c.inflight.changed))
	c.bytes.Store(int64(c.lists.Bytes() + c.nameBytes + channelBytes*len(c.channels) + pending))
}

// Bytes is the memory of the channels and their notices, as of the last change.
// It may be called from any goroutine.
func (c *Commons) Bytes() int { return int(c.bytes.Load()) }

// PassedOver is how many notices were passed over since the start, because
// there were too many channels, and how many were taken out, the oldest of a
// full channel. It may be called from any goroutine.
func (c *Commons) PassedOver() (unopened, replaced uint64) {
	return c.unopened.Load(), c.replaced.Load()
}

// Names are the channels of each kind, ascending, not to be changed, and the
// state that they are of.
func (c *Commons) Names() (notices, dots []string, state State) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.notices, c.dots, c.state
}

// List are a channel's live notices, (position, notice) by position, and the
// state that they are of.
func (c *Commons) List(name string) ([]hot.Pair, State, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.failed != nil {
		return nil, State{}, c.failed
	}
	ch := c.channels[name]
	if ch == nil {
		return nil, c.state, nil
	}
	return c.lists.Pairs(ch.number, 0, nil), c.state, nil
}

// Behind visits the live notices of a channel after one position and before
// another, the newest first, until visit says no. held is how many there are in
// all, unread how many are after the position.
func (c *Commons) Behind(name string, after, before pipeline.Position, visit func(position pipeline.Position, notice uint64) bool) (held, unread int, state State, err error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	ch := c.channels[name]
	if c.failed != nil || ch == nil {
		return 0, 0, c.state, c.failed
	}
	var buffer []hot.Pair
	c.lists.Descend(ch.number, 0, uint64(before), &buffer, func(p hot.Pair) bool {
		return p.A > uint64(after) && visit(pipeline.Position(p.A), p.B)
	})
	return c.lists.Len(ch.number, 0), c.lists.CountAbove(ch.number, 0, uint64(after), math.MaxInt), c.state, nil
}

// Unread counts the live notices of each channel of names after a position
// that cursor gives for it, and returns the state that the answer reflects.
func (c *Commons) Unread(names []string, cursor func(name string) pipeline.Position, count func(i int, unread uint64)) (State, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.failed != nil {
		return State{}, c.failed
	}
	for i, name := range names {
		unread := 0
		if ch := c.channels[name]; ch != nil { // else gone since Names
			unread = c.lists.CountAbove(ch.number, 0, uint64(cursor(name)), math.MaxInt)
		}
		count(i, uint64(unread))
	}
	return c.state, nil
}
