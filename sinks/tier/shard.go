// Package tier is a shard with its disk: it finds what is only there, and puts
// it into memory. All that reads a shard's view of the disk is here.
//
//	shard.Shard ── captures what memory knows, pins ──► cold.View
//	     ▲                                                 │ read, without a lock
//	     └── Install…: unless something was published ◄────┤
//	answer ◄── what was captured, laid over what was read ◄┘
//
// A reader waits for the disk and for nobody else; what it reads is exact as of the
// moment of the capture, whatever is applied, committed or merged during the read. To
// put it into memory is optional for a reader. For the owner, which alone publishes, it
// always succeeds.
package tier

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// Shard is a shard and what it has on disk.
type Shard struct {
	*shard.Shard
	// Turn and Disk do what Prepare and Warm compute, some milliseconds at a time, and what
	// waits for the disk as well, when they may. They are set before either is called.
	Turn, Disk func(work func())

	stack  *cold.Stack
	schema *pipeline.Schema
	order  []int // the schema's counters, in the order of the disk
	warmed atomic.Bool
}

// New makes a shard tier of a shard that holds nothing in memory yet.
func New(s *shard.Shard, store *cold.Store) *Shard {
	atOnce := func(work func()) { work() }
	t := &Shard{Shard: s, Turn: atOnce, Disk: atOnce, stack: store.Stack(s.Number), schema: store.Schema()}
	t.warmed.Store(s.State() == shard.State{}) // nothing is on disk
	for _, of := range store.Meta().Dictionary {
		if counter, ok := t.schema.Counter(of.Name); ok {
			t.order = append(t.order, counter)
		}
	}
	return t
}

// Disk is how a read may use the disk, and what it cost.
type Disk struct {
	May     bool
	Passing bool            // what is read is not put into memory: nobody will ask for it again
	Context context.Context // nil: none. When it ends, so does reading, with its error
	Reads   int             // rows, users, outboxes
	Time    time.Duration

	views []*cold.View // pinned by the read under way, shard by shard
}

// ErrCold: a part of what was asked is on disk and may not be read there.
var ErrCold = errors.New("tier: a part is on disk")

// readsAtATime is how many rows or outboxes are read between two looks at the
// context: on a disk that takes 10 ms for each, some seconds.
const readsAtATime = 256

// ended is the context's error once it has ended.
func (d *Disk) ended() error {
	if d.Context == nil {
		return nil
	}
	return d.Context.Err()
}

// use runs a piece of work on the disk, of so many reads. The context is
// looked at before.
func (d *Disk) use(reads int, work func() error) error {
	if !d.May {
		return ErrCold
	}
	if err := d.ended(); err != nil {
		return err
	}
	begun := time.Now()
	err := work()
	d.Reads += reads
	d.Time += time.Since(begun)
	return err
}

// pin is what a read of a shard calls when it needs the disk; nil if it may
// not use it. unpin must follow.
func (d *Disk) pin(t *Shard) func() {
	if !d.May {
		return nil
	}
	return func() { d.views = append(d.views, t.stack.View()) }
}

func (d *Disk) unpin() {
	for _, v := range d.views {
		v.Close()
	}
	clear(d.views)
	d.views = d.views[:0]
}

// unreadable stops the shard when what is stored is damaged: it must not
// answer zeros for what it cannot read.
func (t *Shard) unreadable(err error) error {
	if errors.Is(err, cold.ErrCorrupt) {
		return t.Fail(err)
	}
	return err
}

// Prepare brings into memory what a window needs. The owner calls it before it
// applies the window; after nil all of it is there. Others may call it ahead,
// beside the owner: the work is done as long as Ready says so of the Moment returned.
func (t *Shard) Prepare(w *pipeline.Window, columns []pipeline.Column) (shard.Moment, error) {
	var view *cold.View
	var want shard.Want
	var at shard.Moment
	t.Turn(func() { want, at = t.Wants(w, columns, func() { view = t.stack.View() }) })
	if want.Empty() {
		return at, nil
	}
	defer view.Close()
	var l *shard.Loaded
	var err error
	t.Disk(func() { l, err = load(view, &want) })
	if err != nil || !t.Install(&want, l) {
		return shard.Moment{}, t.unreadable(err)
	}
	return at, nil
}

// load reads what is wanted.
func load(view *cold.View, want *shard.Want) (l *shard.Loaded, err error) {
	l = &shard.Loaded{Following: make([]bool, len(want.Following)), Members: make([]shard.Membership, len(want.Members))}
	for _, id := range want.Users {
		u, err := readUser(view, id)
		if err != nil {
			return nil, err
		}
		l.Users = append(l.Users, *u)
	}
	for _, id := range want.Marks {
		u := shard.User{ID: id, Thin: true}
		if err := readMarks(view, &u); err != nil {
			return nil, err
		}
		l.Users = append(l.Users, u)
	}
	if l.Authors, err = readAuthors(view, want.Authors); err != nil {
		return nil, err
	}
	for i, p := range want.Following {
		if l.Following[i], err = view.Follows(p.A, p.B); err != nil {
			return nil, err
		}
	}
	if l.Lists, err = readLists(view, want.Lists); err != nil {
		return nil, err
	}
	return l, readMembers(view, want.Members, l.Members)
}

// readLists reads whole lists of items.
func readLists(view *cold.View, asked []shard.Asked) (lists [][]shard.Item, err error) {
	for _, of := range asked {
		var items []shard.Item
		if err := view.Items(of.Column, of.ID, func(i *shard.Item) bool {
			items = append(items, *i)
			return true
		}); err != nil {
			return nil, err
		}
		lists = append(lists, items)
	}
	return lists, nil
}

func readUser(view *cold.View, id uint64) (u *shard.User, err error) {
	u = &shard.User{ID: id}
	err = view.Following(id, 0, func(followee uint64, since pipeline.Position) bool {
		u.Follow(followee, since)
		return true
	})
	if err != nil {
		return nil, err
	}
	return u, readMarks(view, u)
}

// readMembers reads of each member whether it is there.
func readMembers(view *cold.View, asked []shard.Asked, found []shard.Membership) (err error) {
	for i, of := range asked {
		if of.Column == shard.NoColumn {
			found[i].There, err = view.Followed(of.ID, of.Member.A)
		} else {
			found[i].Second, found[i].There, err = view.Member(of.Column, of.ID, of.Member)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readMarks reads all of a user but their followees.
func readMarks(view *cold.View, u *shard.User) (err error) {
	if u.Marks, err = view.Marks(u.ID); err != nil {
		return err
	}
	return view.Cursors(u.ID, u.Cursor)
}

// readAuthors reads whole outboxes. ids ascend.
func readAuthors(view *cold.View, ids []uint64) ([]shard.Author, error) {
	authors, asked := make([]shard.Author, len(ids)), make([]cold.From, len(ids))
	for i, id := range ids {
		authors[i].ID, asked[i].Author = id, id
	}
	err := view.Posts(asked, func(i int, position pipeline.Position, post uint64) { authors[i].Post(position, post) })
	return authors, err
}

// Section is which of a window's sections is the shard's.
func (t *Shard) Section() pipeline.Shard { return t.Number }

// Write passes on what the shard has handed over.
func (t *Shard) Write(c *cold.Checkpoint) { t.Shard.Write(c.Shard(t.Number)) }

// Settle takes in what became of the last checkpoint; see shard.Settle.
func (t *Shard) Settle(committed bool) { t.Shard.Settle(committed, t.stack.Publish) }

// Full says that runs must be merged before another checkpoint.
func (t *Shard) Full() bool { return t.stack.Full() }

// SetHorizon says that posts before a position are no longer listed.
func (t *Shard) SetHorizon(position pipeline.Position) { t.stack.SetHorizon(position) }

// Commons is what every node holds, and its disk. All of it is in memory.
type Commons struct {
	*shard.Commons
	stack  *cold.Stack
	number pipeline.Shard
}

// NewCommons makes the commons' tier. number is one past the last shard.
func NewCommons(c *shard.Commons, store *cold.Store, number pipeline.Shard) *Commons {
	return &Commons{c, store.Stack(number), number}
}

// Load reads the stored channels and log time. Once, before anything else.
func (c *Commons) Load() error {
	view := c.stack.View()
	defer view.Close()
	if err := view.Seconds(c.Second); err != nil {
		return err
	}
	live := make(shard.Live)
	if err := view.Notices(live.Add); err != nil {
		return err
	}
	if err := c.Notices(live); err != nil {
		return errors.Join(cold.ErrCorrupt, err)
	}
	return nil
}

// Section is which of a window's sections is the commons'.
func (c *Commons) Section() pipeline.Shard { return c.number }

// Prepare has nothing to do.
func (c *Commons) Prepare(*pipeline.Window, []pipeline.Column) (shard.Moment, error) {
	return shard.Moment{}, nil
}

// Ready is always so.
func (c *Commons) Ready(shard.Moment) bool { return true }

// Write passes on what was handed over.
func (c *Commons) Write(to *cold.Checkpoint) { c.Commons.Write(to.Shard(c.number)) }

// Settle takes in what became of the last checkpoint.
func (c *Commons) Settle(committed bool) { c.Commons.Settle(committed, c.stack.Publish) }

// Full is as of a shard.
func (c *Commons) Full() bool { return c.stack.Full() }

// SetHorizon has nothing to do: there are no posts.
func (c *Commons) SetHorizon(pipeline.Position) {}

func grown[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }
