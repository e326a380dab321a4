package shard

import (
	"cmp"
	"errors"
	"slices"
	"sort"
	"unsafe"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// A shard's memory holds what is used; all of it is on disk. So far as nothing
// has been left there (residency), what is not in memory is not at all.
// Otherwise:
//
//   - A counter row may be partial: what has come since a base that is on
//     disk. Changes never wait; the base is read by the next checkpoint, or by
//     who asks for the row.
//   - A change of the graph, of an outbox or of marks asks what is there (a
//     post that is listed twice is listed once), so it must be known before:
//     Wants names what a window needs, Load reads it, ahead of Apply.
//   - Rows that were only read go to a cache of their own, so that a flood of
//     reads of what is old drives out nothing but itself.
//
// In memory stands: base on disk + what is in flight + what is dirty. The base
// is the disk as of one version (residency.as); changes of entries that are
// not in memory wait in flight.changed and changed, and lie over what is read.

// residency says how memory and disk belong together.
type residency struct {
	rows     []bool // by counter: no row is only on disk
	users    bool
	outboxes bool
	edges    bool
	// newest is above the newest post of every author who is not in memory:
	// who has read up to there has nothing unread of them.
	newest uint64
	// usersTo is how far Warm has come: of users below it, those who are not
	// in memory are not on disk either.
	usersTo uint64

	as         uint64 // the version that memory builds upon
	generation uint64 // moves whenever as does
	evictions  uint64
	completed  uint64 // partial rows
}

func newResidency(counters int, state cold.State) residency {
	fresh := state == cold.State{}
	r := residency{rows: make([]bool, counters), users: fresh, outboxes: fresh, edges: fresh, as: cold.Newest}
	for i := range r.rows {
		r.rows[i] = fresh
	}
	if !fresh {
		r.newest = uint64(state.Applied)
	}
	return r
}

// absent says whether a user who is not in memory is nowhere.
func (r *residency) absent(user uint64) bool { return r.users || user < r.usersTo }

// handOver: from now on the disk may be ahead of what memory builds upon.
func (r *residency) handOver(version uint64) {
	r.as = version - 1
	r.generation++
}

func (r *residency) settle() {
	r.as = cold.Newest
	r.generation++
}

// Want is what a window, or somebody who asks, needs in memory.
type Want struct {
	users     []uint64
	authors   []uint64
	following []hot.Pair // (user, followee)
	followers []hot.Pair // (user, follower)
}

// Empty says that nothing is wanted.
func (w *Want) Empty() bool {
	return len(w.users)+len(w.authors)+len(w.following)+len(w.followers) == 0
}

// sort puts the wants in the order of the disk, each once.
func (w *Want) sort() {
	slices.Sort(w.users)
	slices.Sort(w.authors)
	w.users, w.authors = slices.Compact(w.users), slices.Compact(w.authors)
	for _, pairs := range []*[]hot.Pair{&w.following, &w.followers} {
		slices.SortFunc(*pairs, func(a, b hot.Pair) int { return cmp.Or(cmp.Compare(a.A, b.A), cmp.Compare(a.B, b.B)) })
		*pairs = slices.Compact(*pairs)
	}
}

// Wants adds what a window needs and memory does not hold. Any goroutine may
// ask; only the owner's answer is final, because only the owner evicts.
func (s *Shard) Wants(w *pipeline.Window, want *Want) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := &s.residency
	if s.failed != nil || r.users && r.outboxes && r.edges {
		return
	}
	section := pipeline.ReadSection(w.Sections[s.Number], w.From)
	for c, ok := section.Next(); ok; c, ok = section.Next() {
		id, other := section.Operation.ID, section.Operation.Other
		if id == 0 {
			continue // no table can hold it: Apply tells
		}
		switch c.Op {
		case pipeline.OpFollow, pipeline.OpUnfollow, pipeline.OpFollowed, pipeline.OpUnfollowed:
			if _, known := s.followsLocked(id, other); !known {
				want.following = append(want.following, hot.Pair{A: id, B: other})
			}
			if _, known := s.followedByLocked(id, other); !known {
				want.followers = append(want.followers, hot.Pair{A: id, B: other})
			}
		case pipeline.OpPost, pipeline.OpUnpost:
			if !r.outboxes && !s.outboxes.Has(id) {
				want.authors = append(want.authors, id)
			}
		case pipeline.OpRead:
			if !r.absent(id) && !s.users.Has(id) {
				want.users = append(want.users, id)
			}
		}
	}
}

// loaded is what was read from the disk, not yet in memory.
type loaded struct {
	users     []loadedUser
	authors   []loadedAuthor
	following []bool // of Want.following
	followers []bool
}

type loadedUser struct {
	id      uint64
	marks   [marksCount]uint64
	follows []hot.Pair
	cursors []loadedCursor
}

type loadedCursor struct {
	channel  string
	position pipeline.Position
}

type loadedAuthor struct {
	id    uint64
	posts []hot.Pair
}

// Load brings what is wanted into memory.
func (s *Shard) Load(store *cold.Store, want *Want) error {
	want.sort()
	var l loaded
	return s.consistent(store, func(v *cold.View) error {
		l = loaded{following: make([]bool, len(want.following)), followers: make([]bool, len(want.followers))}
		return l.read(v, s.Number, want)
	}, func() { s.installLocked(want, &l) })
}

// loadTries is how often a checkpoint may come between before the owner is
// made to wait: checkpoints are a second apart, reads take milliseconds.
const loadTries = 4

// consistent has read look at the disk as of what memory builds upon, and
// calls install under the lock while it still does.
func (s *Shard) consistent(store *cold.Store, read func(*cold.View) error, install func()) error {
	for range loadTries {
		s.mu.RLock()
		generation, as, failed := s.residency.generation, s.residency.as, s.failed
		s.mu.RUnlock()
		if failed != nil {
			return failed
		}
		if err := store.View(as, read); err != nil {
			return s.unreadable(err)
		}
		s.mu.Lock()
		if s.residency.generation == generation {
			install()
			s.measureLocked()
			s.mu.Unlock()
			return nil
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	err := store.View(s.residency.as, read)
	if err == nil {
		install()
		s.measureLocked()
	}
	s.mu.Unlock()
	if err != nil {
		return s.unreadable(err)
	}
	return nil
}

// unreadable stops the shard when what is stored is damaged: it must not
// answer zeros for what it cannot read.
func (s *Shard) unreadable(err error) error {
	if errors.Is(err, cold.ErrCorrupt) {
		return s.Fail(err)
	}
	return err
}

func (l *loaded) read(v *cold.View, number pipeline.Shard, want *Want) (err error) {
	for _, id := range want.users {
		u := loadedUser{id: id}
		if u.marks, err = v.Marks(number, id); err != nil {
			return err
		}
		if err = v.Following(number, id, u.follow); err != nil {
			return err
		}
		if err = v.Cursors(number, id, u.cursor); err != nil {
			return err
		}
		l.users = append(l.users, u)
	}
	for _, id := range want.authors {
		a := loadedAuthor{id: id}
		if err = v.Posts(number, id, 0, a.post); err != nil {
			return err
		}
		l.authors = append(l.authors, a)
	}
	for i, p := range want.following {
		if l.following[i], err = v.Follows(number, p.A, p.B); err != nil {
			return err
		}
	}
	for i, p := range want.followers {
		if l.followers[i], err = v.Followed(number, p.A, p.B); err != nil {
			return err
		}
	}
	return nil
}

func (u *loadedUser) follow(followee uint64, since pipeline.Position) {
	u.follows = append(u.follows, hot.Pair{A: followee, B: uint64(since)})
}

func (u *loadedUser) cursor(channel string, position pipeline.Position) {
	u.cursors = append(u.cursors, loadedCursor{channel, position})
}

func (a *loadedAuthor) post(position pipeline.Position, post uint64) {
	a.posts = append(a.posts, hot.Pair{A: uint64(position), B: post})
}

// installLocked puts what was read into memory, with what has changed since
// over it. What is there already stays: it knows more.
func (s *Shard) installLocked(want *Want, l *loaded) {
	over := s.overlayLocked(want, l)
	for i := range l.users {
		u := &l.users[i]
		if !s.users.Has(u.id) {
			u.follows = over.pairs(kindFollowing, u.id, u.follows)
			s.putUserLocked(u)
		}
	}
	for i := range l.authors {
		a := &l.authors[i]
		if !s.outboxes.Has(a.id) {
			s.putOutboxLocked(a.id, over.pairs(kindPost, a.id, a.posts))
		}
	}
	for i, p := range want.following {
		if _, known := s.followsLocked(p.A, p.B); !known {
			s.following.Put(p.A, p.B, over.has(kindFollowing, p, l.following[i]))
		}
	}
	for i, p := range want.followers {
		if _, known := s.followedByLocked(p.A, p.B); !known {
			s.followers.Put(p.A, p.B, over.has(kindFollower, p, l.followers[i]))
		}
	}
}

// overlay is what has changed in entries of some owners since their base.
type overlay map[overlayKey][]change

type overlayKey struct {
	kind kind
	id   uint64
}

func (s *Shard) overlayLocked(want *Want, l *loaded) overlay {
	keys := make(overlay)
	for _, p := range want.following {
		keys[overlayKey{kindFollowing, p.A}] = nil
	}
	for _, p := range want.followers {
		keys[overlayKey{kindFollower, p.A}] = nil
	}
	for i := range l.users {
		keys[overlayKey{kindFollowing, l.users[i].id}] = nil
	}
	for i := range l.authors {
		keys[overlayKey{kindPost, l.authors[i].id}] = nil
	}
	return s.overLocked(keys)
}

// overLocked fills in the changes of all keys: of each entry the last one, in
// the order of the disk.
func (s *Shard) overLocked(keys overlay) overlay {
	if len(keys) == 0 {
		return keys
	}
	for _, list := range [][]change{s.flight.changed, s.changed} {
		for _, c := range list {
			k := overlayKey{c.kind, c.a}
			if changes, ok := keys[k]; ok {
				keys[k] = append(changes, c)
			}
		}
	}
	for k, changes := range keys {
		slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.b, b.b) })
		last := changes[:0]
		for i, c := range changes {
			if i+1 == len(changes) || changes[i+1].b != c.b {
				last = append(last, c)
			}
		}
		keys[k] = last
	}
	return keys
}

// pairs lays the changes of one list over it.
func (o overlay) pairs(kind kind, id uint64, list []hot.Pair) []hot.Pair {
	changes := o[overlayKey{kind, id}]
	if len(changes) == 0 {
		return list
	}
	out := make([]hot.Pair, 0, len(list)+len(changes))
	for _, c := range changes {
		n := sort.Search(len(list), func(i int) bool { return list[i].A >= c.b })
		out, list = append(out, list[:n]...), list[n:]
		if len(list) > 0 && list[0].A == c.b {
			list = list[1:]
		}
		if !c.gone {
			out = append(out, hot.Pair{A: c.b, B: c.v})
		}
	}
	return append(out, list...)
}

// has says whether an edge is there, which on disk was or was not.
func (o overlay) has(kind kind, edge hot.Pair, was bool) bool {
	changes := o[overlayKey{kind, edge.A}]
	at := sort.Search(len(changes), func(i int) bool { return changes[i].b >= edge.B })
	if at < len(changes) && changes[at].b == edge.B {
		return !changes[at].gone
	}
	return was
}

// takeCachedLocked moves a row from the cache to the rows, to be written.
func (s *Shard) takeCachedLocked(counter int, id uint64) {
	cache := s.cache[counter]
	if cache.Rows() == 0 {
		return
	}
	var room [16]int64
	cells := room[:]
	if n := s.schema.Counters[counter].Count; n > len(cells) {
		cells = make([]int64, n)
	}
	cells = cells[:s.schema.Counters[counter].Count]
	if cache.Read(id, cells) == hot.Whole {
		s.rows[counter].Put(id, cells)
		cache.Remove(id)
	}
}

// cacheShare is how much of a shard's memory the cache of read rows may take,
// as one part in so many.
const cacheShare = 8

// loadedRows are rows of one counter as they are on disk.
type loadedRows struct {
	counter int
	ids     []uint64 // ascending
	base    []int64
}

func (r *loadedRows) read(s *Shard, v *cold.View) error {
	n := s.schema.Counters[r.counter].Count
	r.base = grown(r.base, n*len(r.ids))
	for i, id := range r.ids {
		if _, err := v.Row(s.Number, r.counter, id, r.base[i*n:i*n+n]); err != nil {
			return err
		}
	}
	return nil
}

// install puts them into the cache, or under what has come since. Where no row
// is only on disk (any more), one that is not in memory is not at all.
func (r *loadedRows) install(s *Shard) {
	rows, cache, n := s.rows[r.counter], s.cache[r.counter], s.schema.Counters[r.counter].Count
	cells := make([]int64, n)
	for i, id := range r.ids {
		base := r.base[i*n : i*n+n]
		switch rows.Read(id, cells) {
		case hot.Partial:
			rows.Complete(id, base)
		case hot.None:
			if !s.residency.rows[r.counter] && cache.Read(id, cells) == hot.None {
				cache.Put(id, base)
			}
		}
	}
}

// loadRows brings rows of one counter into memory, ids ascending; then, with
// all of them there and nobody writing, it calls then.
func (s *Shard) loadRows(store *cold.Store, counter int, ids []uint64, then func()) error {
	r := loadedRows{counter: counter, ids: ids}
	return s.consistent(store, func(v *cold.View) error { return r.read(s, v) }, func() {
		r.install(s)
		then()
		s.boundCacheLocked(counter, len(ids))
	})
}

// loadUser does so for a user and their row of a counter, -1 for none.
func (s *Shard) loadUser(store *cold.Store, user uint64, counter int, then func()) error {
	want, l := Want{users: []uint64{user}}, loaded{}
	r := loadedRows{counter: counter, ids: want.users}
	return s.consistent(store, func(v *cold.View) error {
		l = loaded{}
		if err := l.read(v, s.Number, &want); err != nil || counter < 0 {
			return err
		}
		return r.read(s, v)
	}, func() {
		s.installLocked(&want, &l)
		if counter >= 0 {
			r.install(s)
		}
		then()
		if counter >= 0 {
			s.boundCacheLocked(counter, 1)
		}
	})
}

// boundCacheLocked makes room in the cache of read rows for some that came.
func (s *Shard) boundCacheLocked(counter, came int) {
	cache := s.cache[counter]
	if most := s.residentBytesLocked() / cacheShare; cache.Bytes() > max(most, cacheBytesMin) {
		cache.Evict(max(came, cache.Rows()/16))
	}
}

// cacheBytesMin is what the cache of read rows may take in any case.
const cacheBytesMin = 16 << 10

// Bytes is the memory of what the shard holds, as of its last change. It may
// be called from any goroutine.
func (s *Shard) Bytes() int { return int(s.bytes.Load()) }

func (s *Shard) residentBytesLocked() int {
	// What is free within the slabs serves the next ones, and is given back once it is much.
	n := s.users.Bytes() - s.users.Free() + s.outboxes.Bytes() - s.outboxes.Free() + s.newest.Bytes() + s.followers.Bytes() + s.following.Bytes() + s.cursorNames.bytes()
	for i := range s.rows {
		n += s.rows[i].Bytes() + s.cache[i].Bytes()
	}
	return n
}

func (s *Shard) measureLocked() {
	dirty := 0
	for _, t := range s.rows {
		dirty += t.Dirty()
	}
	s.dirty.Store(int64(dirty + len(s.changed)))
	s.bytes.Store(int64(s.residentBytesLocked() + s.pendingBytesLocked()))
}

// pendingBytesLocked is the memory of what waits to be written, beside the rows.
func (s *Shard) pendingBytesLocked() int {
	f := &s.flight
	entries, rows := cap(s.changed)+cap(f.changed), cap(f.whole)+cap(f.partial)
	return entries*int(unsafe.Sizeof(change{})) + rows*int(unsafe.Sizeof(rowAt{})) +
		8*cap(f.cells) + cap(f.deltas)*int(unsafe.Sizeof(pipeline.Delta{})) + cap(f.marks)*int(unsafe.Sizeof([marksCount]uint64{}))
}

// Prepare reads what a window needs and memory does not hold.
func (s *Shard) Prepare(store *cold.Store, w *pipeline.Window) error {
	for {
		var want Want
		s.Wants(w, &want)
		if want.Empty() {
			return nil
		}
		if err := s.Load(store, &want); err != nil {
			return err
		}
	}
}
