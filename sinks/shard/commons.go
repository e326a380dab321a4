package shard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// Commons is what every node holds whole, whatever its shards: the channels
// and log time. It applies a window's last section, and is otherwise a shard
// like the others: same positions (I3), same checkpoints (I4). Publishing to
// everyone is one entry here; no user is touched.
type Commons struct {
	number pipeline.Shard // one past the last shard
	clock  *Clock

	mu       sync.RWMutex
	state    cold.State
	failed   error
	channels map[string]*channel
	notices  []string // names of notice channels, ascending
	dots     []string // names of dot channels, ascending

	// The owner's alone.
	gathered cold.State
	durable  cold.State
	noted    []pipeline.TimeMark // not yet handed over
	expired  []pipeline.TimeMark
	changed  []noticeKey
	inflight struct {
		state          cold.State
		noted, expired []pipeline.TimeMark
		changed        []noticeKey
		positions      []pipeline.Position // of changed; 0: gone
	}
}

// channel lists its live notices by position: (position, notice). It is a set
// of notices. A channel that is not configured exists while it has one: only
// so do a node that has started again and one that has not name the same.
type channel struct {
	configured bool
	list       []hot.Pair
	at         map[uint64]pipeline.Position // by notice
}

type noticeKey struct {
	channel string
	notice  uint64
}

// Bounds of the channels. The oldest notice of a full channel goes; a channel
// beyond the last is not opened.
const (
	ChannelsMax = 4096
	NoticesMax  = 100_000
)

// NewCommons makes the part that every node holds. dots and notices are the
// configured channels; any other is a notice channel.
func NewCommons(number pipeline.Shard, clock *Clock, state cold.State, notices, dots []string) *Commons {
	c := &Commons{
		number: number, clock: clock, state: state, gathered: state, durable: state,
		channels: make(map[string]*channel),
		notices:  slices.Sorted(slices.Values(notices)), dots: slices.Sorted(slices.Values(dots)),
	}
	for _, name := range slices.Concat(notices, dots) {
		c.channels[name] = &channel{configured: true, at: make(map[uint64]pipeline.Position)}
	}
	return c
}

// Load reads the stored channels and log time.
func (c *Commons) Load(store *cold.Store) error {
	err := store.ScanSeconds(c.number, func(second int64, position pipeline.Position) {
		c.clock.Note([]pipeline.TimeMark{{Second: second, Position: position}})
	})
	if err != nil {
		return err
	}
	type stored struct {
		name     string
		notice   uint64
		position pipeline.Position
	}
	var live []stored // stored by notice, listed by position
	err = store.ScanNotices(c.number, func(name string, notice uint64, position pipeline.Position) {
		live = append(live, stored{name, notice, position})
	})
	if err != nil {
		return err
	}
	slices.SortFunc(live, func(a, b stored) int { return cmp.Compare(a.position, b.position) })
	for i, s := range live {
		if s.position > c.state.Applied || i > 0 && s.position == live[i-1].position { // an event has one notice
			return fmt.Errorf("%w: channel %s: notice %d at position %d, applied up to %d", cold.ErrCorrupt, s.name, s.notice, s.position, c.state.Applied)
		}
		c.listLocked(s.name, s.notice, s.position)
	}
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
	c.state = cold.State{Applied: w.To, Sequence: sequence, Time: max(c.state.Time, w.Time)}
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
	if ch := c.channels[name]; ch != nil {
		if _, twice := ch.at[notice]; twice {
			return
		}
		if len(ch.list) >= NoticesMax {
			c.withdrawLocked(name, ch.list[0].B)
		}
	}
	if c.listLocked(name, notice, position) {
		c.changed = append(c.changed, noticeKey{name, notice})
	}
}

func (c *Commons) listLocked(name string, notice uint64, position pipeline.Position) bool {
	ch := c.channels[name]
	if ch == nil {
		if len(c.channels) >= ChannelsMax {
			return false
		}
		ch = &channel{at: make(map[uint64]pipeline.Position)}
		c.channels[name] = ch
		at, _ := slices.BinarySearch(c.notices, name)
		c.notices = slices.Insert(slices.Clone(c.notices), at, name) // answers hold the old slice
	}
	ch.list = append(ch.list, hot.Pair{A: uint64(position), B: notice}) // the newest of all
	ch.at[notice] = position
	return true
}

func (c *Commons) withdrawLocked(name string, notice uint64) {
	ch := c.channels[name]
	if ch == nil {
		return
	}
	position, ok := ch.at[notice]
	if !ok {
		return
	}
	delete(ch.at, notice)
	at := sort.Search(len(ch.list), func(i int) bool { return ch.list[i].A >= uint64(position) })
	if at == 0 {
		ch.list = ch.list[1:]
	} else {
		ch.list = slices.Delete(ch.list, at, at+1)
	}
	c.changed = append(c.changed, noticeKey{name, notice})
	if len(ch.list) == 0 && !ch.configured {
		delete(c.channels, name)
		c.notices = slices.DeleteFunc(slices.Clone(c.notices), func(n string) bool { return n == name }) // as above
	}
}

// Names are the channels of each kind, ascending, not to be changed, and the
// state that they are of.
func (c *Commons) Names() (notices, dots []string, state cold.State) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.notices, c.dots, c.state
}

// Unread counts the live notices of each channel of names after a position
// that cursor gives for it, and returns the state that the answer reflects.
func (c *Commons) Unread(names []string, cursor func(name string) pipeline.Position, count func(i int, unread uint64)) (cold.State, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.failed != nil {
		return cold.State{}, c.failed
	}
	for i, name := range names {
		ch := c.channels[name]
		if ch == nil || len(ch.list) == 0 { // gone since Names, or empty
			count(i, 0)
			continue
		}
		list := ch.list
		after := uint64(cursor(name))
		read := sort.Search(len(list), func(i int) bool { return list[i].A > after })
		count(i, uint64(len(list)-read))
	}
	return c.state, nil
}

// The rest is what every unit of a node can do; see Shard.

// State is how far it has come.
func (c *Commons) State() cold.State {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.state
}

// Err is why it has stopped, or nil.
func (c *Commons) Err() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.failed
}

// Fail stops it for good.
func (c *Commons) Fail(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failLocked(err)
}

func (c *Commons) failLocked(err error) error {
	if c.failed == nil {
		c.failed = err
	}
	return c.failed
}

// Name says which unit this is, for logs.
func (c *Commons) Name() string { return "channels" }

// Dirty is the number of entries that changed since they were last handed over.
func (c *Commons) Dirty() int { return len(c.changed) + len(c.noted) + len(c.expired) }

// Pending is what is dirty should the commit under way fail.
func (c *Commons) Pending() int {
	in := &c.inflight
	return c.Dirty() + len(in.noted) + len(in.expired) + len(in.changed)
}

// Fits says whether a window more stays within so many entries.
func (c *Commons) Fits(w *pipeline.Window, rows int) bool {
	return c.Pending()+len(w.Sections[c.number])+2*len(w.Marks)+trimMax <= rows
}

// Moved says whether there is anything to hand over: the state differs from
// the last one, or marks have expired in windows that were applied before.
func (c *Commons) Moved() bool { return c.state != c.gathered || c.Dirty() > 0 }

// Durable is the last window of DELTAS whose changes are committed, Kept its end.
func (c *Commons) Durable() uint64         { return c.durable.Sequence }
func (c *Commons) Kept() pipeline.Position { return c.durable.Applied }

// HandOver takes what changed, and the state, for Write.
func (c *Commons) HandOver(uint64) {
	in := &c.inflight
	in.state, in.noted, in.expired, in.changed = c.state, c.noted, c.expired, c.changed
	c.noted, c.expired, c.changed = nil, nil, nil
	for _, k := range in.changed {
		position := pipeline.Position(0)
		if ch := c.channels[k.channel]; ch != nil {
			position = ch.at[k.notice]
		}
		in.positions = append(in.positions, position)
	}
	c.gathered = c.state
}

// Write adds what was handed over to a checkpoint.
func (c *Commons) Write(_ *cold.Store, to *cold.Checkpoint) error {
	in := &c.inflight
	for _, m := range in.noted {
		if err := to.PutSecond(c.number, m.Second, m.Position); err != nil {
			return err
		}
	}
	for _, m := range in.expired {
		if err := to.DeleteSecond(c.number, m.Second); err != nil {
			return err
		}
	}
	for i, k := range in.changed {
		var err error
		if position := in.positions[i]; position > 0 {
			err = to.PutNotice(c.number, k.channel, k.notice, position)
		} else {
			err = to.DeleteNotice(c.number, k.channel, k.notice)
		}
		if err != nil {
			return err
		}
	}
	return to.State(c.number, in.state)
}

// Settle takes in what became of the last checkpoint.
func (c *Commons) Settle(committed bool) {
	in := &c.inflight
	if committed {
		c.durable = in.state
	} else {
		c.noted = append(in.noted, c.noted...)
		c.expired = append(in.expired, c.expired...)
		c.changed = append(in.changed, c.changed...)
		c.gathered = cold.State{}
	}
	in.noted, in.expired, in.changed, in.positions = nil, nil, nil, nil
}

// Channels is the number of channels and of their live notices.
func (c *Commons) Channels() (channels, notices int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for ch := range maps.Values(c.channels) {
		notices += len(ch.list)
	}
	return len(c.channels), notices
}

// Prepare, Watch and Shed have nothing to do: all of it is in memory, always.
func (c *Commons) Prepare(*cold.Store, *pipeline.Window) error { return nil }

// Shed is as Prepare.
func (c *Commons) Shed(float64) {}

// Watch is as Prepare.
func (c *Commons) Watch() {}
