package shard

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// Disk is how a read may use the disk, and what it cost.
type Disk struct {
	Store *cold.Store // nil: it may not
	Reads int         // rows, users, outboxes
	Time  time.Duration
}

// ErrCold: a part of what was asked is on disk and may not be read there.
var ErrCold = errors.New("shard: a part is on disk")

// use runs a piece of work on the disk, of so many reads.
func (d *Disk) use(reads int, work func() error) error {
	if d.Store == nil {
		return ErrCold
	}
	begun := time.Now()
	err := work()
	d.Reads += reads
	d.Time += time.Since(begun)
	return err
}

// Batch is the memory that reads of rows work in; it is reused.
type Batch struct {
	cells  []int64
	states []hot.State
	cold   []uint64 // ids whose rows, or bases of rows, are not in memory
	ids    []uint64 // these, in the order of the disk
}

// Read calls row for each id with its cells, and returns the state that the
// answer reflects: all of it is as of one window's end. An id without a row
// has zeros. cells are valid during the call, and row may be called for all
// ids again.
func (s *Shard) Read(counter int, ids []uint64, b *Batch, disk *Disk, row func(i int, cells []int64)) (state cold.State, err error) {
	state, err = s.readHot(counter, ids, b, row)
	if err != nil || len(b.cold) == 0 {
		return state, err
	}
	c := &s.counts[counter]
	for load := b.cold; err == nil && len(b.cold) > 0; load = ids { // again when others were evicted meanwhile: then all
		b.ids = append(b.ids[:0], load...)
		slices.Sort(b.ids)
		b.ids = slices.Compact(b.ids)
		err = disk.use(len(b.ids), func() error {
			return s.loadRows(disk.Store, counter, b.ids, func() { state = s.rowsLocked(counter, ids, b, row) })
		})
		switch {
		case err == nil:
			c.reads.Add(uint64(len(b.ids)))
		case !errors.Is(err, ErrCold):
			c.errors.Add(1)
		}
	}
	return state, err
}

func (s *Shard) readHot(counter int, ids []uint64, b *Batch, row func(i int, cells []int64)) (cold.State, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.failed != nil {
		return cold.State{}, s.failed
	}
	state := s.rowsLocked(counter, ids, b, row)
	c := &s.counts[counter]
	c.gets.Add(uint64(len(ids)))
	c.hits.Add(uint64(len(ids) - len(b.cold)))
	c.colds.Add(uint64(len(b.cold)))
	return state, nil
}

// rowsLocked answers what is in memory and lists the rest in b.cold.
func (s *Shard) rowsLocked(counter int, ids []uint64, b *Batch, row func(i int, cells []int64)) cold.State {
	n := s.schema.Counters[counter].Count
	b.cells, b.states = grown(b.cells, n*len(ids)), grown(b.states, len(ids))
	b.cold = b.cold[:0]
	s.rows[counter].ReadBatch(ids, b.cells, b.states)
	complete, cache := s.residency.rows[counter], s.cache[counter]
	for i, state := range b.states {
		cells := b.cells[i*n : i*n+n]
		switch {
		case state == hot.Whole:
		case state == hot.None && complete:
			clear(cells)
		case state == hot.None && cache.Read(ids[i], cells) == hot.Whole:
		default:
			b.cold = append(b.cold, ids[i])
			continue
		}
		row(i, cells)
	}
	return s.state
}

func grown[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// Profile is what a user's own shard knows towards their unread numbers. It
// is reused from user to user.
type Profile struct {
	Marks     Marks
	Cells     []int64             // the user's row of the asked counter, zeros when there is none
	Following []hot.Pair          // (followee, position of the follow, or 0 when the feed was read since)
	Cursors   []pipeline.Position // of the asked channels

	batch Batch
	user  [1]uint64
}

// Profile reads a user's, as of one window's end. counter may be -1 for none;
// channels are the channels whose cursors are wanted.
func (s *Shard) Profile(user uint64, counter int, channels []string, p *Profile, disk *Disk) (cold.State, error) {
	state, err := s.profileHot(user, counter, channels, p)
	if !errors.Is(err, ErrCold) {
		return state, err
	}
	err = disk.use(1, func() error {
		return s.loadUser(disk.Store, user, counter, func() { state, _ = s.profileLocked(user, counter, channels, p) })
	})
	return state, err
}

// profileHot answers from memory, or not at all: ErrCold.
func (s *Shard) profileHot(user uint64, counter int, channels []string, p *Profile) (state cold.State, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.failed != nil {
		return cold.State{}, s.failed
	}
	state, known := s.profileLocked(user, counter, channels, p)
	if !known {
		return state, ErrCold
	}
	return state, nil
}

// profileLocked fills in what memory holds; known says whether that is all.
func (s *Shard) profileLocked(user uint64, counter int, channels []string, p *Profile) (state cold.State, known bool) {
	p.Cells, p.batch.cold = p.Cells[:0], p.batch.cold[:0]
	if counter >= 0 {
		p.user[0] = user
		s.rowsLocked(counter, p.user[:], &p.batch, func(_ int, cells []int64) { p.Cells = append(p.Cells, cells...) })
	}
	p.Following, known = s.decodeFolloweesLocked(user, p.Following[:0])
	p.Marks, _ = s.marksLocked(user)
	p.Cursors = p.Cursors[:0]
	b, _ := s.users.Get(user)
	for _, name := range channels {
		position, _, _ := cursorOf(b, name)
		p.Cursors = append(p.Cursors, position)
	}
	return s.state, known && len(p.batch.cold) == 0
}

// Gathering is the memory that counts of posts work in; it is reused.
type Gathering struct {
	looks  hot.Looks
	some   []int
	asked  []hot.Pair
	newest []uint64
	box    []hot.Pair
	cold   []hot.Pair
}

// Timeline is the outboxes of all shards of a node, read together: what a feed
// needs is spread over them.
type Timeline struct {
	shards   []*Shard
	outboxes []*hot.Blobs
	newest   []*hot.Newest
}

// NewTimeline makes one of all shards, by number.
func NewTimeline(shards []*Shard) *Timeline {
	t := &Timeline{shards: shards}
	for _, s := range shards {
		t.outboxes, t.newest = append(t.outboxes, s.outboxes), append(t.newest, s.newest)
	}
	return t
}

// CountPosts counts the listed posts of followees after the mark and after the
// follow (each pair's B). horizon is the first position that is not too old.
// applied is how far the count reaches.
//
// Nearly every followee has nothing new, which four bytes tell (hot.Newest): one
// look, one compare. All shards are locked for reading at once, in order, so
// that the looks of all followees overlap. Only the few that may have something
// are looked up.
func (t *Timeline) CountPosts(followees []hot.Pair, mark, horizon pipeline.Position, g *Gathering, disk *Disk) (n uint64, applied pipeline.Position, err error) {
	if horizon > 0 {
		mark = max(mark, horizon-1)
	}
	n, applied, err = t.countHot(followees, mark, g)
	if err != nil || len(g.cold) == 0 {
		return n, applied, err
	}
	err = disk.use(len(g.cold), func() error {
		for _, f := range g.cold {
			posts, err := t.of(f.A).countCold(disk.Store, f.A, max(mark, pipeline.Position(f.B)))
			if err != nil {
				return err
			}
			n += posts
		}
		return nil
	})
	return n, applied, err
}

func (t *Timeline) of(id uint64) *Shard { return t.shards[pipeline.ShardOf(id, len(t.shards))] }

func (t *Timeline) countHot(followees []hot.Pair, mark pipeline.Position, g *Gathering) (n uint64, applied pipeline.Position, err error) {
	g.cold = g.cold[:0]
	oldest, failed := uint64(0), false // below oldest, outboxes may be on disk
	for _, s := range t.shards {
		s.mu.RLock()
	}
	defer t.unlock()
	applied = math.MaxUint64
	for _, s := range t.shards {
		if s.failed != nil {
			failed = true
			continue // who asks for its authors gets no answer
		}
		applied = min(applied, s.state.Applied)
		if !s.residency.outboxes {
			oldest = max(oldest, s.residency.newest)
		}
	}
	if failed {
		for _, f := range followees {
			if s := t.of(f.A); s.failed != nil {
				return 0, 0, s.failed
			}
		}
	}
	if uint64(mark) >= oldest { // else who is not in memory may have something too
		g.some = hot.May(t.newest, followees, uint64(mark), &g.looks, g.some[:0])
		g.asked = g.asked[:0]
		for _, i := range g.some {
			g.asked = append(g.asked, followees[i])
		}
		followees = g.asked
	}
	g.newest = grown(g.newest, len(followees))
	hot.Gather(t.outboxes, followees, g.newest)
	for i, f := range followees {
		after := max(uint64(mark), f.B)
		switch {
		case g.newest[i] > after:
			n += t.of(f.A).newerLocked(f.A, after, g)
		case g.newest[i] == 0 && after < oldest:
			if s := t.of(f.A); after < s.residency.newest && !s.residency.outboxes && !s.outboxes.Has(f.A) {
				g.cold = append(g.cold, f)
			}
		}
	}
	return n, applied, nil
}

func (t *Timeline) unlock() {
	for _, s := range t.shards {
		s.mu.RUnlock()
	}
}

// newerLocked counts an author's listed posts after a position.
func (s *Shard) newerLocked(author, after uint64, g *Gathering) uint64 {
	b, _ := s.outboxes.Get(author)
	g.box = hot.DecodePosts(g.box[:0], b)
	box := s.listed(g.box)
	return uint64(len(box) - since(box, pipeline.Position(after)+1))
}

// listed is the newest posts of an outbox, as many as are listed.
func (s *Shard) listed(box []hot.Pair) []hot.Pair { return box[max(0, len(box)-s.limits.PostsMax):] }

// countCold counts an author's posts after a position on disk. The author's
// newest posts are few there, and are not brought into memory: they are old.
func (s *Shard) countCold(store *cold.Store, author uint64, after pipeline.Position) (n uint64, err error) {
	err = s.readOutbox(store, author, after+1, func(box []hot.Pair) { n = uint64(len(s.listed(box))) })
	return n, err
}

// readOutbox reads the posts of an author at or after a position, who is not
// in memory.
func (s *Shard) readOutbox(store *cold.Store, author uint64, from pipeline.Position, read func(box []hot.Pair)) error {
	var a loadedAuthor
	return s.consistent(store, func(v *cold.View) error {
		a = loadedAuthor{id: author}
		return v.Posts(s.Number, author, from, a.post)
	}, func() {
		if b, ok := s.outboxes.Get(author); ok { // come into memory meanwhile
			box := hot.DecodePosts(nil, b)
			read(box[since(box, from):])
			return
		}
		over := s.overLocked(overlay{overlayKey{kindPost, author}: nil})
		box := over.pairs(kindPost, author, a.posts)
		read(box[since(box, from):])
	})
}

// Posts offers the listed posts of followees, all of this shard, that lie in
// [from, before), each author's newest first, until want says no to one of
// that author's.
func (s *Shard) Posts(followees []hot.Pair, from, before pipeline.Position, g *Gathering, disk *Disk, want func(author uint64, p hot.Pair) bool) (cold.State, error) {
	state, err := s.postsHot(followees, from, before, g, want)
	if err != nil || len(g.cold) == 0 {
		return state, err
	}
	err = disk.use(len(g.cold), func() error {
		for _, f := range g.cold {
			err := s.readOutbox(disk.Store, f.A, from, func(box []hot.Pair) { offer(s.listed(box), f.A, from, before, want) })
			if err != nil {
				return err
			}
		}
		return nil
	})
	return state, err
}

func (s *Shard) postsHot(followees []hot.Pair, from, before pipeline.Position, g *Gathering, want func(author uint64, p hot.Pair) bool) (cold.State, error) {
	g.cold = g.cold[:0]
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.failed != nil {
		return cold.State{}, s.failed
	}
	for _, f := range followees {
		newest, ok := s.outboxes.Word(f.A, 0)
		switch {
		case !ok && !s.residency.outboxes && uint64(from) <= s.residency.newest:
			g.cold = append(g.cold, f)
		case newest >= max(uint64(from), 1):
			b, _ := s.outboxes.Get(f.A)
			g.box = hot.DecodePosts(g.box[:0], b)
			offer(s.listed(g.box), f.A, from, before, want)
		}
	}
	return s.state, nil
}

func offer(box []hot.Pair, author uint64, from, before pipeline.Position, want func(author uint64, p hot.Pair) bool) {
	for i := since(box, before) - 1; i >= 0 && box[i].A >= uint64(from); i-- {
		if !want(author, box[i]) {
			return
		}
	}
}

// Following lists whom a user follows, ascending, above an id, at most limit.
func (s *Shard) Following(user, after uint64, limit int, users []uint64, disk *Disk) (out []uint64, more bool, state cold.State, err error) {
	var p Profile
	state, err = s.Profile(user, -1, nil, &p, disk)
	if err != nil {
		return nil, false, state, err
	}
	at, _ := slices.BinarySearchFunc(p.Following, after, func(p hot.Pair, after uint64) int {
		if p.A <= after {
			return -1
		}
		return 1
	})
	list := p.Following[at:]
	for _, p := range list[:min(limit, len(list))] {
		users = append(users, p.A)
	}
	return users, len(list) > limit, state, nil
}

// Followers lists who follows a user, ascending, above an id, at most limit.
// A page costs the same at any depth and however many there are: the order is
// the disk's, with a bounded list of changes over it.
func (s *Shard) Followers(user, after uint64, limit int, users []uint64, disk *Disk) (out []uint64, more bool, state cold.State, err error) {
	key := overlayKey{kindFollower, user}
	for {
		var page []hot.Pair
		cut := false // there are more on the disk
		err = disk.use(1, func() error {
			most := limit + 1 + s.recent(key)
			return s.consistent(disk.Store, func(v *cold.View) error {
				page, cut = page[:0], false
				return v.Followers(s.Number, user, after, func(follower uint64) bool {
					page = append(page, hot.Pair{A: follower})
					cut = len(page) == most
					return !cut
				})
			}, func() {
				state = s.state
				last := uint64(math.MaxUint64) // how far the page tells everything
				if cut {
					last = page[len(page)-1].A
				}
				page = s.overLocked(overlay{key: nil}).pairs(kindFollower, user, page)
				page = slices.DeleteFunc(page, func(p hot.Pair) bool { return p.A <= after || p.A > last })
				after = last
			})
		})
		if err != nil {
			return nil, false, state, err
		}
		for _, p := range page[:min(limit, len(page))] {
			users = append(users, p.A)
		}
		// A page that changes have emptied is no end.
		if more = cut || len(page) > limit; len(page) > 0 || !more {
			return users, more, state, nil
		}
	}
}

// recent is how many changes there are that may not be on disk.
func (s *Shard) recent(key overlayKey) (n int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.overLocked(overlay{key: nil})[key])
}
