package twin

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// What tests of whole processes need of the twin: they publish what happens in
// communities, and ask the model what must be answered of what was stored.

// Event is an event as its producer means it.
type Event = event

// Answer is all that can be asked about one user.
type Answer = answer

// FeedPost is one post of a feed.
type FeedPost = feedPost

// The columns of the answers' rows, in their order.
var (
	UserColumns = userColumns
	PostColumns = postColumns
	PageColumns = []string{"view"}
)

// Bounds are the configured numbers that the model goes by.
type Bounds struct {
	PostsPerAuthor, PostsKept int // of the feed
	Retention, InactiveAfter  time.Duration
	Channels, Notices         int  // limits
	Once                      bool // likes and views count in sets
}

func (b Bounds) ages() rulesOfAges {
	return rulesOfAges{b.PostsPerAuthor, b.PostsKept, int64(b.Retention / time.Second), int64(b.InactiveAfter / time.Second), b.Channels, b.Notices, b.Once, 0, itemsKept}
}

// Settings are the lines of config.yaml that the model goes by. limits are
// further keys of that section.
func (b Bounds) Settings(limits string) string {
	return fmt.Sprintf(`feed: {posts_per_author: %d, posts_kept: %d, retention: %s}
limits: {channels: %d, notices: %d, %s}
inactive_after: %s
channels: {system: {kind: notice}, games: {kind: dot}, shop: {kind: dot}}
counters:
  post:   {repost: {}, comment: {}, like: {bits: 8}}
  user:   {post: {}, original: {}, following: {}, follower: {}, friend: {}, reposted: {}, commented: {}, mentioned: {}, liked: {}}
  unread: {repost: {bits: 8}, comment: {bits: 8}, mention: {bits: 8}, like: {bits: 8}, follower: {bits: 8}, message: {bits: 8}}
  page:   {view: {bits: 4}}
rules:
  post:
    - {add: user.post,     key: actor}
    - {add: user.original, key: actor,     unless: repost_of}
    - {add: post.repost,   key: repost_of, if: repost_of}
    - {add: user.reposted, key: author,    if: repost_of}
    - {add: unread.repost, key: author,    if: repost_of, unless: self}
  comment: [{add: post.comment, key: post}, {add: user.commented, key: author}, {add: unread.comment, key: author, unless: self}]
  mention: [{add: user.mentioned, key: target}, {add: unread.mention, key: target, unless: self}]
  message: [{add: unread.message, key: target, unless: self}]
`, b.PostsPerAuthor, b.PostsKept, b.Retention, b.Channels, b.Notices, limits, b.InactiveAfter) + likesAndViews(b.Once)
}

// Kind is the event's type; "" of one that is to be refused as it is.
func (e *event) Kind() string { return e.kind }

// Refused says that the event belongs in DEADLETTER.
func (e *event) Refused() bool { return e.junk != "" || e.kind == "follow" && e.actor == e.target }

// Number is the sender's own number of the event.
func (e *event) Number() uint64 { return e.number }

// Numbered is the event with a number of the sender's, which Tidemark passes
// over. One that is refused as it is carries none.
func (e event) Numbered(n uint64) Event {
	if e.junk == "" {
		e.number = n
	}
	return e
}

// JSON is the event as line of a message.
func (e *event) JSON(line int) []byte { return e.encode(pipeline.At(1, line)) }

// NumberOf is the number in an event's JSON; 0 where there is none.
func NumberOf(line []byte) uint64 {
	_, rest, found := bytes.Cut(line, []byte(`"`+numberField+`":`))
	if !found {
		return 0
	}
	end := bytes.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	n, _ := strconv.ParseUint(string(rest[:max(end, 0)]), 10, 64)
	return n
}

// Board is what a log has for everyone: its time, and notices. One goroutine
// at a time.
type Board struct {
	ages    rulesOfAges
	millis  int64
	notices []noticed
	lives   lists
}

// NewBoard is the board of an empty log.
func NewBoard(b Bounds) *Board { return &Board{ages: b.ages()} }

// Pass notes a message's timestamp, Unix milliseconds: log time never goes back.
func (b *Board) Pass(millis int64) { b.millis = max(b.millis, millis) }

// Time is log time.
func (b *Board) Time() time.Time { return time.UnixMilli(b.millis) }

// second is log time, in seconds.
func (b *Board) second() int64 { return b.millis / 1000 }

// log notes a notice.
func (b *Board) log(e *event, at pipeline.Position) {
	b.notices = append(b.notices, noticed{e.channel, e.notice, e.delete, at})
}

// Work prepares for questions, which may then be asked in parallel until the
// log goes on.
func (b *Board) Work() { b.lives = listsOf(b.notices, b.ages) }

// Community is a few users who know only one another, their posts and pages.
// Nobody else's events bear on them, but for notices and log time.
type Community struct {
	board *Board
	who   generator
	model model
}

// NewCommunity draws the community of a number; each number's ids are its own.
func NewCommunity(r *rand.Rand, number int, b *Board) *Community {
	c := &Community{board: b, who: newGenerator(r, number), model: model{ages: b.ages}}
	c.who.once = b.ages.once
	return c
}

// Users, Posts and Pages are the community's ids.
func (c *Community) Users() []uint64 { return c.who.users }

// Posts are what its users publish, like and comment on.
func (c *Community) Posts() []uint64 { return c.who.posts }

// Pages have views.
func (c *Community) Pages() []uint64 { return c.who.pages }

// noticesRare: everyone sees each notice, so one community has few.
const noticesRare = 40

// Next draws what happens next. shown is the end of the log that its reader
// may have been shown; reads say that they were shown it, an earlier one, or
// one that is not there yet. It may be called while the others are.
func (c *Community) Next(shown pipeline.Position) Event {
	e := c.who.event()
	for e.kind == "notice" && c.who.IntN(noticesRare) > 0 {
		e = c.who.event()
	}
	if p, ok := e.asOf.position(shown); ok {
		e.asOf = asOf{asOfAt, uint64(p)}
	}
	return e
}

// Log notes an event where it stands in the log. Events come in log order,
// over all communities of a board, each after the Pass of its message.
func (c *Community) Log(e Event, at pipeline.Position) {
	c.model.log = append(c.model.log, logged{e, at, c.board.second()})
	if e.kind == "notice" {
		c.board.log(&e, at)
	}
}

// Events is how many have been noted.
func (c *Community) Events() int { return len(c.model.log) }

// Answers are what must be answered to a request now, about users, posts and
// pages in the order of Users, Posts and Pages: "never negative in an answer;
// a sum that is below zero for a while is remembered, not clamped, inside".
func (c *Community) Answers() (users []Answer, posts, pages [][]int64) {
	m := &c.model
	m.now, m.lives = c.board.second(), c.board.lives
	counts := m.count()
	for _, user := range c.who.users {
		a := m.answer(counts, user)
		for i := range a.Row {
			a.Row[i] = max(a.Row[i], 0)
		}
		for kind := range a.Unread {
			a.Unread[kind] = max(a.Unread[kind], 0)
		}
		users = append(users, a)
	}
	rows := func(counter string, columns []string, ids []uint64) (rows [][]int64) {
		for _, id := range ids {
			var row []int64
			for _, column := range columns {
				row = append(row, max(m.value(counts, counter, column, id), 0))
			}
			rows = append(rows, row)
		}
		return rows
	}
	return users, rows("post", PostColumns, c.who.posts), rows("page", PageColumns, c.who.pages)
}

// About lists the events that name an id, for a failed test.
func (c *Community) About(id uint64) string {
	var b strings.Builder
	for _, e := range c.model.log {
		ids := []uint64{e.actor, e.target, e.post, e.repostOf, e.author, e.id, e.page}
		if slices.Contains(ids, id) {
			fmt.Fprintf(&b, "    %d (message %d) at %d s: %s\n", e.position, e.position.Sequence(), e.second, e.JSON(e.position.Line()))
		}
	}
	return b.String()
}
