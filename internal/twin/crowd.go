package twin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Crowd is the model for users who have far more of something than a Community
// has: a million followees, a hundred thousand posts. It keeps what follows
// from each event, in maps, where the model goes through the list of all
// events; TestCrowd holds it to the model. It knows posts, follows, notices and
// reads, without seen and as_of.
//
// A crowd's users know only one another. Of notices and log time it has the
// board's.
type Crowd struct {
	board   *Board
	watched []uint64
	events  int

	follows   map[uint64]map[uint64]pipeline.Position // since when, by user and target
	followers map[uint64]map[uint64]bool              // by target and user
	authors   map[uint64]*author
	readers   map[uint64]*reader
	unread    map[uint64]int64 // unread.follower
}

// author is what one has posted.
type author struct {
	posts int64 // less those deleted, as the rules count
	kept  []keptPost
}

type keptPost struct {
	feedPost
	then int64
}

// reader is what one has read.
type reader struct {
	first, feed, all pipeline.Position
	channels         map[string]pipeline.Position
	last             int64 // log time, seconds
}

// NewCrowd is a crowd of any ids that no community has. [Crowd.Answers] is about the
// watched ones.
func NewCrowd(b *Board, watched ...uint64) *Crowd {
	return &Crowd{
		board: b, watched: watched,
		follows: map[uint64]map[uint64]pipeline.Position{}, followers: map[uint64]map[uint64]bool{},
		authors: map[uint64]*author{}, readers: map[uint64]*reader{}, unread: map[uint64]int64{},
	}
}

// The events that a crowd knows.

// Follow is user following target.
func Follow(user, target uint64) Event { return Event{kind: "follow", actor: user, target: target} }

// Posted is author publishing post.
func Posted(author, post uint64) Event { return Event{kind: "post", actor: author, post: post} }

// Notice is a notice for everyone.
func Notice(channel string, id uint64) Event {
	return Event{kind: "notice", channel: channel, notice: id}
}

// ReadOf is user reading.
func ReadOf(user uint64, what ...string) Event { return Event{kind: "read", actor: user, what: what} }

// Undone is the event's deletion.
func (e event) Undone() Event {
	e.delete = true
	return e
}

// Users are the watched; Posts and Pages are none, for no rule counts on them
// what a crowd does.
func (c *Crowd) Users() []uint64 { return c.watched }

// Posts are none.
func (c *Crowd) Posts() []uint64 { return nil }

// Pages are none.
func (c *Crowd) Pages() []uint64 { return nil }

// Events is how many have been noted.
func (c *Crowd) Events() int { return c.events }

// About says what is known of a user, for a failed test.
func (c *Crowd) About(user uint64) string {
	return fmt.Sprintf("    of %d events of the crowd, which are not kept: %d followees, %d followers\n", c.events, len(c.follows[user]), len(c.followers[user]))
}

// Followees is how many a user follows.
func (c *Crowd) Followees(user uint64) int { return len(c.follows[user]) }

// Listed is how many posts of an author count.
func (c *Crowd) Listed(user uint64) int {
	if c.authors[user] == nil {
		return 0
	}
	return len(newest(c.authors[user].kept, c.board.ages.postsPerAuthor))
}

// Log notes an event where it stands in the log, as Community.Log does.
func (c *Crowd) Log(e Event, at pipeline.Position) {
	c.events++
	switch e.kind {
	case "notice":
		c.board.log(&e, at)
	case "follow":
		c.follow(&e, at)
	case "post":
		c.post(&e, at)
	case "read":
		c.read(&e, at)
	default:
		panic("a crowd does not know the event " + e.kind)
	}
}

func (c *Crowd) follow(e *event, at pipeline.Position) {
	_, already := c.follows[e.actor][e.target]
	switch {
	case e.delete:
		delete(c.follows[e.actor], e.target)
		delete(c.followers[e.target], e.actor)
	case !already:
		if c.follows[e.actor] == nil {
			c.follows[e.actor] = map[uint64]pipeline.Position{}
		}
		if c.followers[e.target] == nil {
			c.followers[e.target] = map[uint64]bool{}
		}
		c.follows[e.actor][e.target] = at
		c.followers[e.target][e.actor] = true
		c.unread[e.target]++
	}
}

func (c *Crowd) post(e *event, at pipeline.Position) {
	a := c.authors[e.actor]
	if a == nil {
		a = &author{}
		c.authors[e.actor] = a
	}
	now := c.board.second()
	a.drop(c.board, now)
	i := slices.IndexFunc(a.kept, func(p keptPost) bool { return p.Post == e.post })
	switch {
	case e.delete:
		a.posts--
		if i >= 0 {
			a.kept = slices.Delete(a.kept, i, i+1)
		}
		return
	case i < 0:
		a.kept = newest(append(a.kept, keptPost{feedPost{e.post, e.actor, at}, now}), c.board.ages.postsKept)
	}
	a.posts++
}

// drop drops what is too old.
func (a *author) drop(b *Board, now int64) {
	for len(a.kept) > 0 && b.ages.old(now, a.kept[0].then, b.ages.retention) {
		a.kept = a.kept[1:]
	}
}

func (c *Crowd) read(e *event, at pipeline.Position) {
	r := c.readers[e.actor]
	if r == nil {
		r = &reader{first: at, channels: map[string]pipeline.Position{}}
		c.readers[e.actor] = r
	}
	r.last = c.board.second()
	for _, what := range e.what {
		switch what {
		case "all":
			r.all = at
			c.unread[e.actor] = 0
		case "feed":
			r.feed = at
		case "follower":
			c.unread[e.actor] = 0
		default:
			r.channels[what] = at
		}
	}
}

// Answers are what must be answered now about the watched users.
func (c *Crowd) Answers() (users []Answer, posts, pages [][]int64) {
	for _, user := range c.watched {
		users = append(users, c.answer(user))
	}
	return users, nil, nil
}

func (c *Crowd) answer(user uint64) Answer {
	a := Answer{
		Row: make([]int64, len(userColumns)), Unread: map[string]int64{}, Channels: map[string]uint64{}, Dots: map[string]bool{},
		Following: slices.Sorted(maps.Keys(c.follows[user])), Followers: slices.Sorted(maps.Keys(c.followers[user])),
	}
	row := func(column string, n int) { a.Row[slices.Index(userColumns, column)] = int64(max(n, 0)) }
	row("following", len(a.Following))
	row("follower", len(a.Followers))
	friends := 0
	for target := range c.follows[user] {
		if _, back := c.follows[target][user]; back {
			friends++
		}
	}
	row("friend", friends)
	if own := c.authors[user]; own != nil {
		row("post", int(own.posts))
		row("original", int(own.posts))
	}
	for _, kind := range unreadKinds {
		a.Unread[kind] = 0
	}
	r := c.readers[user]
	gone := r != nil && c.board.ages.old(c.board.second(), r.last, c.board.ages.inactiveAfter)
	c.feed(user, r, &a)
	if a.Unread["follower"] = c.unread[user]; gone {
		a.Unread["follower"], a.Feed = 0, 0
	}
	for _, name := range c.board.lives.notices() {
		a.Channels[name] = 0
		if r != nil && !gone {
			a.Channels[name] = uint64(len(c.board.lives.after(name, r.cursor(name))))
		}
	}
	for _, name := range dotChannels {
		a.Dots[name] = !gone && len(c.board.lives.after(name, r.cursor(name))) > 0
	}
	return a
}

// cursor is how far a channel is read; nil is a new user's.
func (r *reader) cursor(channel string) pipeline.Position {
	if r == nil {
		return 0
	}
	return max(r.first, r.all, r.channels["channel:"+channel])
}

// feed fills in the feed's posts and how many of them are unread.
func (c *Crowd) feed(user uint64, r *reader, a *Answer) {
	mark := pipeline.Position(0)
	if r != nil {
		mark = max(r.feed, r.all)
	}
	for id, author := range c.authors {
		since, ok := c.follows[user][id]
		if !ok {
			continue
		}
		author.drop(c.board, c.board.second())
		for _, p := range newest(author.kept, c.board.ages.postsPerAuthor) {
			a.Posts = append(a.Posts, p.feedPost)
			if p.Position > max(mark, since) {
				a.Feed++
			}
		}
	}
	slices.SortFunc(a.Posts, func(a, b feedPost) int { return cmp.Compare(b.Position, a.Position) })
}
