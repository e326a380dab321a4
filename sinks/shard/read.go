package shard

import (
	"cmp"
	"context"
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
	Store   *cold.Store     // nil: it may not
	Context context.Context // nil: none. When it ends, so does reading, with its error
	Reads   int             // rows, users, outboxes
	Time    time.Duration
}

// ErrCold: a part of what was asked is on disk and may not be read there.
var ErrCold = errors.New("shard: a part is on disk")

// use runs a piece of work on the disk, of so many reads.
func (d *Disk) use(reads int, work func() error) error {
	if d.Store == nil {
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

// ended is why reading has to end, if it has.
func (d *Disk) ended() error {
	if d.Context == nil {
		return nil
	}
	return d.Context.Err()
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
	p.Following, known = s.followeesLocked(user, p.Following[:0])
	p.Marks, _ = s.marksLocked(user)
	p.Cursors = p.Cursors[:0]
	some := s.users.Len(user, listCursors) > 0
	for _, name := range channels {
		position := pipeline.Position(0)
		if some {
			position = s.cursorLocked(user, name)
		}
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
	outboxes []*hot.Lists
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
	g.cold, applied = g.cold[:0], math.MaxUint64
	for group := range slices.Chunk(followees, countGroup) {
		posts, reach, err := t.countHot(group, mark, g)
		if err != nil {
			return 0, 0, err
		}
		n, applied = n+posts, min(applied, reach)
	}
	if len(g.cold) == 0 {
		return n, applied, nil
	}
	slices.SortFunc(g.cold, func(a, b hot.Pair) int {
		return cmp.Compare(pipeline.ShardOf(a.A, len(t.shards)), pipeline.ShardOf(b.A, len(t.shards)))
	})
	err = disk.use(len(g.cold), func() error {
		for of := range chunkBy(g.cold, func(a, b hot.Pair) bool { return t.of(a.A) == t.of(b.A) }) {
			after := func(f hot.Pair) pipeline.Position { return max(mark, pipeline.Position(f.B)) + 1 }
			s := t.of(of[0].A)
			err := s.readOutboxes(disk, of, after, func(_ hot.Pair, box []hot.Pair) { n += uint64(len(s.listed(box))) })
			if err != nil {
				return err
			}
		}
		return nil
	})
	return n, applied, err
}

// chunkBy parts a list where neighbours are not alike.
func chunkBy[T any](list []T, alike func(a, b T) bool) func(yield func([]T) bool) {
	return func(yield func([]T) bool) {
		for from := 0; from < len(list); {
			to := from + 1
			for to < len(list) && alike(list[from], list[to]) {
				to++
			}
			if !yield(list[from:to]) {
				return
			}
			from = to
		}
	}
}

// countGroup is how many followees are looked at while shards are locked:
// who follows a million must not keep windows from being applied.
const countGroup = 4096

func (t *Timeline) of(id uint64) *Shard { return t.shards[pipeline.ShardOf(id, len(t.shards))] }

func (t *Timeline) countHot(followees []hot.Pair, mark pipeline.Position, g *Gathering) (n uint64, applied pipeline.Position, err error) {
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
			n += t.of(f.A).newerLocked(f.A, after)
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
func (s *Shard) newerLocked(author, after uint64) uint64 {
	return uint64(s.outboxes.CountAbove(author, 0, after, s.limits.PostsMax))
}

// listed is the newest posts of an outbox, as many as are listed.
func (s *Shard) listed(box []hot.Pair) []hot.Pair { return box[max(0, len(box)-s.limits.PostsMax):] }

// coldGroup is how many outboxes are read from disk together: for each group
// the changes that are not on disk are gone over once, under the lock.
const coldGroup = 4096

// readOutboxes reads the posts of authors (each pair's A) at or after a
// position, who were not in memory. They are not brought there: they are old.
func (s *Shard) readOutboxes(disk *Disk, authors []hot.Pair, from func(hot.Pair) pipeline.Position, read func(of hot.Pair, box []hot.Pair)) error {
	for group := range slices.Chunk(authors, coldGroup) {
		if err := disk.ended(); err != nil {
			return err
		}
		slices.SortFunc(group, func(a, b hot.Pair) int { return cmp.Compare(a.A, b.A) })
		asked, boxes := make([]cold.From, len(group)), make([]loadedAuthor, len(group))
		for i, f := range group {
			asked[i] = cold.From{Author: f.A, Position: from(f)}
		}
		err := s.consistent(disk.Store, func(v *cold.View) error {
			clear(boxes)
			return v.PostsOf(s.Number, asked, func(i int, position pipeline.Position, post uint64) { boxes[i].post(position, post) })
		}, func() { s.overOutboxesLocked(group, boxes, from, read) })
		if err != nil {
			return err
		}
	}
	return nil
}

// overOutboxesLocked hands on what was read, with the changes that are not on
// disk over it.
func (s *Shard) overOutboxesLocked(group []hot.Pair, boxes []loadedAuthor, from func(hot.Pair) pipeline.Position, read func(of hot.Pair, box []hot.Pair)) {
	keys := make(overlay, len(group))
	for _, f := range group {
		keys[overlayKey{kindPost, f.A}] = nil
	}
	over := s.overLocked(keys)
	for i, f := range group {
		var box []hot.Pair
		if s.outboxes.Has(f.A) { // come into memory meanwhile
			box = s.outboxes.Pairs(f.A, 0, nil)
		} else {
			box = over.pairs(kindPost, f.A, boxes[i].posts)
		}
		read(f, box[since(box, from(f)):])
	}
}

// Posts offers the listed posts of followees, all of this shard, that lie in
// [from, before), each author's newest first, until want says no to one of
// that author's.
func (s *Shard) Posts(followees []hot.Pair, from, before pipeline.Position, g *Gathering, disk *Disk, want func(author uint64, p hot.Pair) bool) (state cold.State, err error) {
	g.cold = g.cold[:0]
	first := true
	for group := range slices.Chunk(followees, countGroup) {
		as, err := s.postsHot(group, from, before, g, want)
		if err != nil {
			return state, err
		}
		if first { // the answer reaches as far as its first part
			state, first = as, false
		}
	}
	if len(g.cold) == 0 {
		return state, nil
	}
	err = disk.use(len(g.cold), func() error {
		return s.readOutboxes(disk, g.cold, func(hot.Pair) pipeline.Position { return from },
			func(f hot.Pair, box []hot.Pair) { offer(s.listed(box), f.A, from, before, want) })
	})
	return state, err
}

func (s *Shard) postsHot(followees []hot.Pair, from, before pipeline.Position, g *Gathering, want func(author uint64, p hot.Pair) bool) (cold.State, error) {
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
			s.offerLocked(f.A, from, before, g, want)
		}
	}
	return s.state, nil
}

// offerLocked offers an author's posts: of the newest PostsMax, those that are
// left after the ones that are not before.
func (s *Shard) offerLocked(author uint64, from, before pipeline.Position, g *Gathering, want func(author uint64, p hot.Pair) bool) {
	left := s.limits.PostsMax - s.outboxes.CountAbove(author, 0, uint64(before)-1, s.limits.PostsMax)
	s.outboxes.Descend(author, 0, uint64(before), &g.box, func(p hot.Pair) bool {
		left--
		return left >= 0 && p.A >= uint64(from) && want(author, p)
	})
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
	state, err = s.followingHot(user, after, limit+1, &users)
	if errors.Is(err, ErrCold) {
		err = disk.use(1, func() error {
			return s.loadUser(disk.Store, user, -1, func() { state = s.followingLocked(user, after, limit+1, &users) })
		})
	}
	if err != nil {
		return nil, false, state, err
	}
	return users[:min(limit, len(users))], len(users) > limit, state, nil
}

func (s *Shard) followingHot(user, after uint64, most int, users *[]uint64) (cold.State, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch {
	case s.failed != nil:
		return cold.State{}, s.failed
	case !s.users.Has(user) && !s.residency.absent(user):
		return s.state, ErrCold
	}
	return s.followingLocked(user, after, most, users), nil
}

func (s *Shard) followingLocked(user, after uint64, most int, users *[]uint64) cold.State {
	s.users.Ascend(user, listFollowees, after, func(p hot.Pair) bool {
		*users = append(*users, p.A)
		return len(*users) < most
	})
	return s.state
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
