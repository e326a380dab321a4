package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tidemark-io/tidemark/internal/twin"
	"github.com/tidemark-io/tidemark/pipeline"
)

// state is what windows say of one shard, or of what every node holds, kept in
// plain maps: the simplest thing that DELTAS can be applied to.
type state struct {
	number, shards int

	position pipeline.Position // as of the end of one window, exactly (I4)
	sequence uint64            // of that window in DELTAS; 0 if it never was there
	time     int64             // the newest log time up to there

	cells     map[cell]int64
	following map[edge]pipeline.Position // since
	followers map[edge]bool
	posts     map[edge]pipeline.Position // author, post
	marks     map[mark]pipeline.Position
	first     map[uint64]pipeline.Position // the mark of a user's first read
	notices   map[notice]pipeline.Position

	// seen is what of which messages was in the windows applied.
	seen []span
}

type (
	cell struct {
		column string
		id     uint64
	}
	edge struct{ id, other uint64 }
	mark struct {
		user uint64
		what string
	}
	notice struct {
		channel string
		id      uint64
	}
	// span is a message, and the positions of it that a window covered.
	span struct {
		*Stored
		from, to pipeline.Position
	}
)

// markAll is what a read of everything marks.
const markAll = "all"

func newState(number, shards int) *state {
	return &state{
		number: number, shards: shards,
		cells: map[cell]int64{}, following: map[edge]pipeline.Position{}, followers: map[edge]bool{},
		posts: map[edge]pipeline.Position{}, marks: map[mark]pipeline.Position{},
		first: map[uint64]pipeline.Position{}, notices: map[notice]pipeline.Position{},
	}
}

// clone is a checkpoint.
func (s *state) clone() *state {
	c := *s
	c.cells, c.following, c.followers = maps.Clone(s.cells), maps.Clone(s.following), maps.Clone(s.followers)
	c.posts, c.marks, c.first = maps.Clone(s.posts), maps.Clone(s.marks), maps.Clone(s.first)
	c.notices = maps.Clone(s.notices)
	c.seen = slices.Clip(s.seen)
	return &c
}

// apply applies the state's section of a window. "A shard applies a window iff
// its from is where the shard stands; one that ends at or before is dropped;
// anything else is a gap, and stops the shard with both numbers" (I3).
func (s *state) apply(sequence uint64, w *pipeline.Window, messages []*Stored) error {
	if w.To <= s.position {
		return nil
	}
	if w.From != s.position {
		return fmt.Errorf("%w: shard %d stands at %d and the next window, %d, is (%d, %d] (I2, I3)",
			pipeline.ErrGap, s.number, s.position, sequence, w.From, w.To)
	}
	if len(w.Sections) != s.shards+1 {
		return fmt.Errorf("%d sections for %d shards", len(w.Sections), s.shards)
	}
	r := pipeline.ReadSection(w.Sections[s.number], w.From)
	for c, ok := r.Next(); ok; c, ok = r.Next() {
		if c.Op != pipeline.OpCell {
			s.operate(&r.Operation)
			continue
		}
		if pipeline.ShardOf(c.ID, s.shards) != pipeline.Shard(s.number) {
			return fmt.Errorf("id %d is in the section of shard %d", c.ID, s.number)
		}
		at := cell{w.Columns[c.Column], c.ID}
		s.cells[at] = c.Delta.Apply(s.cells[at])
	}
	if err := r.Err(); err != nil {
		return err
	}
	for _, m := range messages {
		s.seen = append(s.seen, span{m, w.From, w.To})
	}
	s.position, s.sequence, s.time = w.To, sequence, max(s.time, w.Time)
	return nil
}

func (s *state) add(column string, id uint64, n int64) { s.cells[cell{column, id}] += n }

func (s *state) operate(o *pipeline.Operation) {
	e := edge{o.ID, o.Other}
	_, follows := s.following[e]
	_, listed := s.posts[e]
	switch {
	case o.Op == pipeline.OpFollow && !follows:
		s.following[e] = o.Position
		s.add("user.following", o.ID, 1)
		s.friend(e, s.followers[e], 1)
	case o.Op == pipeline.OpUnfollow && follows:
		delete(s.following, e)
		s.add("user.following", o.ID, -1)
		s.friend(e, s.followers[e], -1)
	case o.Op == pipeline.OpFollowed && !s.followers[e]:
		s.followers[e] = true
		s.add("user.follower", o.ID, 1)
		s.add("unread.follower", o.ID, 1)
		s.friend(e, follows, 1)
	case o.Op == pipeline.OpUnfollowed && s.followers[e]:
		delete(s.followers, e)
		s.add("user.follower", o.ID, -1)
		s.friend(e, follows, -1)
	case o.Op == pipeline.OpPost && !listed:
		s.posts[e] = o.Position
	case o.Op == pipeline.OpUnpost:
		delete(s.posts, e)
	case o.Op == pipeline.OpRead:
		s.read(o)
	case o.Op == pipeline.OpNotice:
		if n := (notice{o.Channels[0], o.ID}); s.notices[n] == 0 {
			s.notices[n] = o.Position
		}
	case o.Op == pipeline.OpWithdraw:
		delete(s.notices, notice{o.Channels[0], o.ID})
	}
}

func (s *state) friend(e edge, both bool, n int64) {
	if both {
		s.add("user.friend", e.id, n)
	}
}

func (s *state) read(o *pipeline.Operation) {
	if _, ok := s.first[o.ID]; !ok {
		s.first[o.ID] = o.Mark
	}
	move := func(what string) {
		m := mark{o.ID, what}
		s.marks[m] = max(s.marks[m], o.Mark)
	}
	if o.Looked&pipeline.LookedFeed != 0 {
		move("feed")
	}
	if o.Looked&pipeline.LookedAll != 0 {
		move(markAll)
	}
	for _, channel := range o.Channels {
		move("channel:" + channel)
	}
}

// facts are those of a twin.Model, as far as they are this shard's.
func (s *state) facts(of *twin.Story) map[twin.Fact]int64 {
	facts := map[twin.Fact]int64{}
	note := func(what string, id, other uint64, n int64) {
		if n != 0 {
			facts[twin.Fact{What: what, ID: id, Other: other}] = n
		}
	}
	for c, n := range s.cells {
		note(c.column, c.id, 0, n)
	}
	for e, since := range s.following {
		note("follows", e.id, e.other, int64(since))
	}
	for e := range s.followers {
		note("followed", e.id, e.other, 1)
	}
	for e, at := range s.posts {
		note("post", e.id, e.other, int64(at))
	}
	for _, user := range of.Users {
		note("first read", user, 0, int64(s.first[user]))
		all := s.marks[mark{user, markAll}]
		note("mark feed", user, 0, int64(max(all, s.marks[mark{user, "feed"}])))
		for _, channel := range of.Channels {
			what := "channel:" + channel
			note("mark "+what, user, 0, int64(max(all, s.marks[mark{user, what}])))
		}
	}
	for n, at := range s.notices {
		note("notice "+n.channel, 0, uint64(at), 1)
	}
	return facts
}
