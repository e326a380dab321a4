package querytest

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// World is everything that nodes hold, in maps: the dumb twin of them all
// together. It does not change once it is asked. As a Reader it is one node that
// holds everything.
type World struct {
	Schema *pipeline.Schema
	Shards int
	At     pipeline.Position // all of it is as of here

	Rows    map[int]map[uint64][]int64 // counter, id: a cell for each column of the counter
	Follows map[uint64]map[uint64]pipeline.Position
	Posts   map[uint64][]query.FeedPost // by author
	Marks   map[uint64]pipeline.Position
	Notices map[string]map[uint64]uint64 // channel, user
	Dots    map[string]map[uint64]bool
	Sets    Sets
	Items   map[uint64][]query.InboxItem // of a user, by position
	Feeds   map[uint64]uint64            // what of a user's feed is unread, where it is not what Posts say

	mu sync.RWMutex // of a Reader, whose world changes while it is asked
}

// NewWorld is empty.
func NewWorld(schema *pipeline.Schema, shards int, at pipeline.Position) *World {
	return &World{
		Schema: schema, Shards: shards, At: at, Rows: map[int]map[uint64][]int64{}, Follows: map[uint64]map[uint64]pipeline.Position{},
		Posts: map[uint64][]query.FeedPost{}, Marks: map[uint64]pipeline.Position{},
		Notices: map[string]map[uint64]uint64{}, Dots: map[string]map[uint64]bool{}, Sets: Sets{},
		Feeds: map[uint64]uint64{},
	}
}

// Reader is one node that holds everything.
func (w *World) Reader() query.Reader {
	return NewHolder(w, "all", func(pipeline.Shard) bool { return true })
}

// read locks the world until what it returns is called.
func (w *World) read() (unlock func()) {
	w.mu.RLock()
	return w.mu.RUnlock
}

// row fills in an id's cells and says whether there is such a row.
func (w *World) row(counter int, id uint64, columns []pipeline.Column, to []int64) bool {
	cells, ok := w.Rows[counter][id]
	for j, c := range columns {
		if ok {
			to[j] = cells[c-w.Schema.Counters[counter].First]
		}
	}
	return ok
}

func (w *World) channels(asked []string) (notices, dots []string) {
	if asked == nil {
		return slices.Sorted(maps.Keys(w.Notices)), slices.Sorted(maps.Keys(w.Dots))
	}
	for _, name := range asked {
		if _, is := w.Dots[name]; is {
			dots = append(dots, name)
		} else {
			notices = append(notices, name)
		}
	}
	return notices, dots
}

// count counts an author's posts after a mark.
func (w *World) count(author uint64, after pipeline.Position) (n uint64) {
	for _, p := range w.Posts[author] {
		if p.Position > after {
			n++
		}
	}
	return n
}

// Holder is a World of which some shards are held. It implements query.Holder, and
// query.Reader for tests that ask one that holds everything.
type Holder struct {
	*World
	Name string
	// Before, if set, runs at the start of every answer; an error of it is the
	// answer's. Set it before the first question.
	Before func(context.Context) error
	// Disk, if set, runs for each id that is read from disk, with the context of who
	// asks. Set it before the first question.
	Disk func(context.Context)

	holds func(pipeline.Shard) bool
	not   error // the answer about lists of what is not held

	mu      sync.Mutex
	applied pipeline.Position
	moved   chan struct{}
	lost    map[uint64]bool // ids that cannot be read, of any shard
	cold    map[uint64]bool
	reads   int
	waiting int // in WaitApplied
	err     error
}

// NewHolder holds what holds says, all of it applied.
func NewHolder(w *World, name string, holds func(pipeline.Shard) bool) *Holder {
	return &Holder{
		World: w, Name: name, holds: holds, not: query.ErrElsewhere, applied: w.At, moved: make(chan struct{}),
		lost: map[uint64]bool{}, cold: map[uint64]bool{},
	}
}

// Lag has the holder stand somewhere; what it answers stays as it is.
func (h *Holder) Lag(at pipeline.Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.applied = at
	close(h.moved)
	h.moved = make(chan struct{})
}

// Cool puts everything of an id on disk.
func (h *Holder) Cool(id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cold[id] = true
}

// Reads is how often the disk was read.
func (h *Holder) Reads() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reads
}

// Waiting is how many callers are in WaitApplied.
func (h *Holder) Waiting() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.waiting
}

// begin begins an answer about ids.
func (h *Holder) begin(ctx context.Context, disk bool, ids []uint64) (asOf pipeline.Position, cost query.Cost, err error) {
	if h.Before != nil {
		if err := h.Before(ctx); err != nil {
			return 0, cost, err
		}
	}
	h.mu.Lock()
	asOf, err = h.applied, h.err
	for _, id := range ids {
		if h.cold[id] {
			cost.Cold++
		}
	}
	if cost.Cold > 0 && disk {
		h.reads++
	}
	h.mu.Unlock()
	if cost.Cold > 0 && !disk {
		return 0, query.Cost{}, query.ErrCold
	}
	since := time.Now()
	for range cost.Cold {
		if err := ctx.Err(); err != nil {
			return 0, cost, err
		}
		if h.Disk != nil {
			h.Disk(ctx)
		}
	}
	if cost.Cold > 0 {
		cost.Disk = time.Since(since)
	}
	return asOf, cost, err
}

// has says whether an id is held and its shard goes on.
func (h *Holder) has(id uint64) bool {
	s := pipeline.ShardOf(id, h.Shards)
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holds(s) && !h.lost[id]
}

// Applied is query.Holder's.
func (h *Holder) Applied() pipeline.Position {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.applied
}

// WaitApplied is query.Holder's.
func (h *Holder) WaitApplied(ctx context.Context, p pipeline.Position) error {
	wait := func(by int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.waiting += by
	}
	wait(1)
	defer wait(-1)
	for {
		h.mu.Lock()
		applied, moved := h.applied, h.moved
		h.mu.Unlock()
		if applied >= p {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Holds is query.Holder's.
func (h *Holder) Holds(s pipeline.Shard) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holds(s)
}

// Rows is query.Holder's.
func (h *Holder) Rows(ctx context.Context, counter int, columns []pipeline.Column, ids []uint64, rows *query.Rows, disk bool) (err error) {
	rows.Reset(len(ids), len(columns))
	if rows.AsOf, rows.Cost, err = h.begin(ctx, disk, ids); err != nil {
		return err
	}
	defer h.read()()
	for i, id := range ids {
		if !h.has(id) {
			rows.Missing = append(rows.Missing, i)
			continue
		}
		rows.Exist[i] = h.row(counter, id, columns, rows.Values[i*len(columns):(i+1)*len(columns)])
		h.Sets.has(rows.Sets, id, rows.Has[i*len(rows.Sets):])
	}
	return nil
}

// Profiles is query.Holder's.
func (h *Holder) Profiles(ctx context.Context, users []uint64, channels []string, out *query.Profiles, disk bool) error {
	asOf, cost, err := h.begin(ctx, disk, users)
	if err != nil {
		return err
	}
	defer h.read()()
	notices, dots := h.channels(channels)
	counter, ok := h.Schema.Counter("unread")
	var columns []pipeline.Column
	if ok {
		columns = h.Schema.Visible(counter)
	}
	out.Reset(len(users), len(columns), notices, dots)
	out.AsOf, out.Cost = asOf, cost
	out.Rest = make([]query.CountAsk, len(users))
	for i, user := range users {
		u := &out.Users[i]
		if !h.has(user) {
			out.Missing = append(out.Missing, i)
			u.Feed = 1 << 40 // means nothing
			continue
		}
		h.row(counter, user, columns, u.Counts)
		for j, name := range notices {
			u.Notices[j] = h.Notices[name][user]
		}
		for j, name := range dots {
			u.Dots[j] = h.Dots[name][user]
		}
		mark := h.Marks[user]
		out.Rest[i].Mark = mark
		if feed, is := h.Feeds[user]; is {
			u.Feed = feed
			continue
		}
		for _, followee := range slices.Sorted(maps.Keys(h.Follows[user])) {
			since := h.Follows[user][followee]
			if h.Holds(pipeline.ShardOf(followee, h.Shards)) {
				u.Feed += h.count(followee, max(mark, since))
				continue
			}
			if since <= mark {
				since = 0
			}
			out.Rest[i].Followees = append(out.Rest[i].Followees, query.Followee{User: followee, Since: since})
		}
	}
	return nil
}

// CountPosts is query.Holder's.
func (h *Holder) CountPosts(ctx context.Context, asks []query.CountAsk, out *query.Counts, disk bool) error {
	var ids []uint64
	for _, a := range asks {
		for _, f := range a.Followees {
			ids = append(ids, f.User)
		}
	}
	asOf, cost, err := h.begin(ctx, disk, ids)
	if err != nil {
		return err
	}
	defer h.read()()
	*out = query.Counts{Posts: make([]uint64, len(asks)), AsOf: asOf, Cost: cost}
	for i, a := range asks {
		for _, f := range a.Followees {
			if !h.has(f.User) {
				out.Missing = append(out.Missing, i)
				break
			}
			out.Posts[i] += h.count(f.User, max(a.Mark, f.Since))
		}
	}
	return nil
}

// Followees is query.Holder's.
func (h *Holder) Followees(ctx context.Context, user, after uint64, limit int, out *query.UserPage, disk bool) (from pipeline.Position, err error) {
	return 1, h.Following(ctx, user, after, limit, out, disk)
}

// Posts is query.Holder's.
func (h *Holder) Posts(ctx context.Context, followees []uint64, from, before pipeline.Position, limit int, out *query.FeedPage, disk bool) (err error) {
	return h.posts(ctx, followees, followees, from, before, limit, out, disk)
}

// posts are those of followees; ids are read for them.
func (h *Holder) posts(ctx context.Context, ids, followees []uint64, from, before pipeline.Position, limit int, out *query.FeedPage, disk bool) (err error) {
	out.Reset()
	if out.AsOf, out.Cost, err = h.begin(ctx, disk, ids); err != nil {
		return err
	}
	defer h.read()()
	for _, f := range followees {
		if !h.has(f) {
			out.Missing = true
			continue
		}
		for _, p := range h.World.Posts[f] {
			if p.Position >= from && p.Position < before {
				out.Posts = append(out.Posts, p)
			}
		}
	}
	slices.SortFunc(out.Posts, func(a, b query.FeedPost) int { return cmp.Compare(b.Position, a.Position) })
	if len(out.Posts) > limit {
		out.Posts, out.More = out.Posts[:limit], true
	}
	return nil
}

// Standpoint is query.Holder's. It knows of no channels' notices, nor of bounds.
func (h *Holder) Standpoint(ctx context.Context, ask *query.StandpointAsk, out *query.Standpoint, disk bool) (err error) {
	out.Reset()
	if out.AsOf, out.Cost, err = h.begin(ctx, disk, []uint64{ask.User}); err != nil {
		return err
	}
	defer h.read()()
	if !h.has(ask.User) {
		return h.not
	}
	out.Read = h.Marks[ask.User]
	out.Feed.Mark, out.Follows = out.Read, len(h.Follows[ask.User])
	for _, followee := range slices.Sorted(maps.Keys(h.Follows[ask.User])) {
		out.Feed.Followees = append(out.Feed.Followees, query.Followee{User: followee, Since: h.Follows[ask.User][followee]})
	}
	return nil
}

// Following is query.Holder's.
func (h *Holder) Following(ctx context.Context, user, after uint64, limit int, out *query.UserPage, disk bool) error {
	return h.page(ctx, user, after, limit, out, disk, func() []uint64 { return slices.Collect(maps.Keys(h.Follows[user])) })
}

// Followers is query.Holder's.
func (h *Holder) Followers(ctx context.Context, user, after uint64, limit int, out *query.UserPage, disk bool) error {
	return h.page(ctx, user, after, limit, out, disk, func() (users []uint64) {
		for who, follows := range h.Follows {
			if _, is := follows[user]; is {
				users = append(users, who)
			}
		}
		return users
	})
}

func (h *Holder) page(ctx context.Context, user, after uint64, limit int, out *query.UserPage, disk bool, list func() []uint64) (err error) {
	out.Reset()
	if out.AsOf, out.Cost, err = h.begin(ctx, disk, []uint64{user}); err != nil {
		return err
	}
	defer h.read()()
	if !h.has(user) {
		return h.not
	}
	for _, u := range list() {
		if u > after {
			out.Users = append(out.Users, u)
		}
	}
	slices.Sort(out.Users)
	if len(out.Users) > limit {
		out.Users, out.More = out.Users[:limit], true
	}
	return nil
}

// Unread is query.Reader's.
func (h *Holder) Unread(ctx context.Context, users []uint64, channels []string, out *query.Unreads, disk bool) error {
	unlock := h.read()
	err := out.Fits(h.channels(channels))
	unlock()
	if err != nil {
		return err
	}
	var p query.Profiles
	if err := h.Profiles(ctx, users, channels, &p, disk); err != nil {
		return err
	}
	for i := range p.Rest {
		if len(p.Rest[i].Followees) > 0 {
			p.Missing = append(p.Missing, i)
		}
	}
	p.Fit = out.Fit
	*out = p.Unreads
	return nil
}

// Feed is query.Reader's.
func (h *Holder) Feed(ctx context.Context, user uint64, before pipeline.Position, limit int, out *query.FeedPage, disk bool) error {
	if !h.has(user) {
		return query.ErrStopped
	}
	if before == 0 {
		before = math.MaxUint64
	}
	unlock := h.read()
	followees := slices.Sorted(maps.Keys(h.Follows[user]))
	unlock()
	return h.posts(ctx, append(followees, user), followees, 1, before, limit, out, disk)
}
