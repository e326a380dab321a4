package shard

import (
	"cmp"
	"math"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// Gathering is the memory that counts of posts work in; it is reused.
type Gathering struct {
	// Cold are outboxes that must be read from the disk, by shard and author,
	// as they were captured by the last call.
	Cold []Outbox

	looks  hot.Looks
	some   []int
	asked  []hot.Pair
	newest []uint64
	box    []hot.Pair
}

// Outbox is an outbox that is on disk, and what lies over it.
type Outbox struct {
	Shard  pipeline.Shard
	Author uint64
	From   pipeline.Position // posts at or after this are wanted

	most int // of the newest are listed
	over overlay
}

// Listed are the posts of the outbox that are listed, oldest first: (position,
// post). posts are those on the disk, at or after From.
func (o *Outbox) Listed(posts []hot.Pair) []hot.Pair {
	box := o.over.pairs(posts)
	box = box[since(box, o.From):]
	return box[max(0, len(box)-o.most):]
}

// Offer offers those before a position, newest first, until want says no.
func (o *Outbox) Offer(posts []hot.Pair, before pipeline.Position, want func(author uint64, p hot.Pair) bool) {
	box := o.Listed(posts)
	for i := since(box, before) - 1; i >= 0; i-- {
		if !want(o.Author, box[i]) {
			return
		}
	}
}

// coldLocked captures an outbox.
func (s *Shard) coldLocked(author uint64, from pipeline.Position) Outbox {
	return Outbox{Shard: s.Number, Author: author, From: from, most: s.limits.PostsMax, over: s.overLocked(kindPost, author)}
}

// sort puts the cold outboxes in the order of shards and of the disk.
func (g *Gathering) sort() {
	slices.SortFunc(g.Cold, func(a, b Outbox) int { return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Author, b.Author)) })
}

// Timeline is the outboxes of the shards of a node, read together: what a feed
// needs is spread over them.
type Timeline struct {
	shards   []*Shard // by number; nil: that is not here
	here     []*Shard
	outboxes []*hot.Lists
	newest   []*hot.Newest
}

// NewTimeline makes one of shards by number; nil where another node must be asked.
func NewTimeline(shards []*Shard) *Timeline {
	t := &Timeline{shards: shards}
	empty, none := hot.NewLists(1, hot.ByBoth), hot.NewNewest(0)
	for _, s := range shards {
		if s == nil { // in its place stands what nothing is found in
			t.outboxes, t.newest = append(t.outboxes, empty), append(t.newest, none)
			continue
		}
		t.here = append(t.here, s)
		t.outboxes, t.newest = append(t.outboxes, s.outboxes), append(t.newest, s.newest)
	}
	return t
}

// GroupMax is how many followees are looked at while shards are locked: a user who
// follows a million must not keep windows from being applied.
const GroupMax = 4096

// Count counts the listed posts of followees, GroupMax at most and all of shards
// that are here, after the mark
// and after the follow (each pair's B). applied is how far the count reaches.
// Outboxes that are only on disk are left in g.Cold; if there are any, pin is
// called for each shard that has some, at the same moment. nil: they are
// listed, and not captured.
//
// Nearly every followee has nothing new, which four bytes tell (hot.Newest): one
// look, one compare. All shards are locked for reading at once, in order, so
// that the looks of all followees overlap. Only the few that may have something
// are looked up.
func (t *Timeline) Count(followees []hot.Pair, mark pipeline.Position, g *Gathering, pin func(pipeline.Shard)) (n uint64, applied pipeline.Position, err error) {
	g.Cold = g.Cold[:0]
	oldest, failed := uint64(0), false // below oldest, outboxes may be on disk
	for _, s := range t.here {
		s.mu.RLock()
	}
	defer t.unlock()
	applied = math.MaxUint64
	for _, s := range t.here {
		if s.failed != nil {
			failed = true
			continue // a question for its authors gets no answer
		}
		applied = min(applied, s.state.Applied)
		if !s.residency.outboxes.all {
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
	if uint64(mark) >= oldest { // else an author that was never in memory may have something too
		followees = g.may(t.newest, followees, uint64(mark))
	}
	g.newest = grown(g.newest, len(followees))
	hot.Gather(t.outboxes, followees, g.newest)
	for i, f := range followees {
		after := max(uint64(mark), f.B)
		switch {
		case g.newest[i] > after:
			n += t.of(f.A).newerLocked(f.A, after)
		case g.newest[i] == 0:
			if s := t.of(f.A); s.onDiskLocked(f.A, after) {
				g.Cold = append(g.Cold, Outbox{Author: f.A, From: pipeline.Position(after) + 1})
			}
		}
	}
	t.captureLocked(g, pin)
	return n, applied, nil
}

// may are those followees who may have a post after a mark and after the follow.
func (g *Gathering) may(newest []*hot.Newest, followees []hot.Pair, mark uint64) []hot.Pair {
	g.some = hot.May(newest, followees, mark, &g.looks, g.some[:0])
	g.asked = g.asked[:0]
	for _, i := range g.some {
		g.asked = append(g.asked, followees[i])
	}
	return g.asked
}

// onDiskLocked says whether an author may have posts after a position on the
// disk, and is not in memory.
func (s *Shard) onDiskLocked(author, after uint64) bool {
	return !s.residency.outboxes.all && (after < s.residency.newest || s.newest.May(author, after)) && !s.outboxes.Has(author)
}

// captureLocked completes the cold outboxes.
func (t *Timeline) captureLocked(g *Gathering, pin func(pipeline.Shard)) {
	if pin == nil {
		return
	}
	for i, o := range g.Cold {
		g.Cold[i] = t.of(o.Author).coldLocked(o.Author, o.From)
	}
	g.sort()
	for i, o := range g.Cold {
		if i == 0 || g.Cold[i-1].Shard != o.Shard {
			pin(o.Shard)
		}
	}
}

func (t *Timeline) of(id uint64) *Shard { return t.shards[pipeline.ShardOf(id, len(t.shards))] }

func (t *Timeline) unlock() {
	for _, s := range t.here {
		s.mu.RUnlock()
	}
}

// newerLocked counts an author's listed posts after a position.
func (s *Shard) newerLocked(author, after uint64) uint64 {
	return uint64(s.outboxes.CountAbove(author, 0, after, s.limits.PostsMax))
}

// Posts offers the listed posts of followees (the A of each pair; B is 0), all of
// this shard and GroupMax at most, that lie in [from, before), each author's newest first, until want says
// no to one of that author's. Outboxes that are only on disk are left in
// g.Cold; if there are any, pin is called at the same moment. nil: they are
// listed, and not captured.
func (s *Shard) Posts(followees []hot.Pair, from, before pipeline.Position, g *Gathering, pin func(), want func(author uint64, p hot.Pair) bool) (State, error) {
	g.Cold = g.Cold[:0]
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.failed != nil {
		return State{}, s.failed
	}
	from = max(from, 1)
	if s.residency.outboxes.all || uint64(from) > s.residency.newest { // else an author that was never in memory may have something too
		followees = g.may([]*hot.Newest{s.newest}, followees, uint64(from)-1)
	}
	g.newest = grown(g.newest, len(followees))
	hot.Gather([]*hot.Lists{s.outboxes}, followees, g.newest)
	for i, f := range followees {
		switch {
		case g.newest[i] >= uint64(from):
			s.offerLocked(f.A, from, before, g, want)
		case g.newest[i] == 0 && s.onDiskLocked(f.A, uint64(from)-1):
			o := Outbox{Author: f.A, From: from}
			if pin != nil {
				o = s.coldLocked(f.A, from)
			}
			g.Cold = append(g.Cold, o)
		}
	}
	if len(g.Cold) > 0 && pin != nil {
		g.sort()
		pin()
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
