package twin

import (
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
)

// rulesOfAges are the configured numbers that the model goes by.
type rulesOfAges struct {
	postsPerAuthor int
	retention      int64 // seconds
	inactiveAfter  int64 // seconds
}

// logged is an event with its place in the log.
type logged struct {
	event
	position pipeline.Position
	second   int64 // log time as of it
}

// model is the naive one: a list of events, and answers that are worked out
// from the list each time they are asked for, the slow way. Sentences in
// quotes are the contract's; "Reading:" says how one was understood where it
// leaves a choice.
type model struct {
	ages     rulesOfAges
	defaults map[string]int64 // by column, where not 0
	log      []logged         // what was understood, in log order
	notices  []logged         // those of everyone, in log order
	now      int64            // log time, seconds

	// lives is what live says, worked out once for many models that have the
	// same notices; nil: it was not.
	lives map[string][]pipeline.Position
}

// "Ages are measured in log time, the stream timestamp of the newest applied
// event: never the wall clock."
//
// Reading: log time never goes back (a message whose timestamp is older than
// one before it came at that one's time), every message moves it, also one
// that is refused, and it is told to the second or, for ages of more than half
// a day, to 1/43,200 of the longest one. "Older than" an age is more than it.
func (m *model) old(then, age int64) bool { return m.oldAt(m.now, then, age) }

func (m *model) oldAt(now, then, age int64) bool {
	grain := max(1, max(m.ages.retention, m.ages.inactiveAfter)/43_200)
	return now/grain-then/grain > age/grain
}

// Counters and rules.

type cellName struct {
	column string
	id     uint64
}

type rowName struct {
	counter string
	id      uint64
}

// counts are all counters.
type counts struct {
	values map[cellName]int64
	rows   map[rowName]bool // that exist: written, and not deleted since
}

func (c *counts) add(counter, column string, id uint64, n int64) {
	c.values[cellName{counter + "." + column, id}] += n
	c.rows[rowName{counter, id}] = true
}

func (c *counts) set(counter, column string, id uint64, v int64) {
	c.values[cellName{counter + "." + column, id}] = v
	c.rows[rowName{counter, id}] = true
}

// value is what is answered: "`default` is answered for a row that does not exist".
func (m *model) value(c *counts, counter, column string, id uint64) int64 {
	if !c.rows[rowName{counter, id}] {
		return m.defaults[counter+"."+column]
	}
	return c.values[cellName{counter + "." + column, id}]
}

var unreadKinds = []string{"repost", "comment", "mention", "like", "follower", "message"}

// count goes through the list by the table of rules.
func (m *model) count() *counts {
	c := &counts{map[cellName]int64{}, map[rowName]bool{}}
	for i, e := range m.log {
		// "`delete` turns every `add` into a subtraction, except on `unread.*`,
		// which a deletion leaves alone."
		n := int64(1)
		if e.delete {
			n = -1
		}
		notify := func(kind string, user uint64) {
			if !e.delete {
				c.add("unread", kind, user, 1)
			}
		}
		switch e.kind {
		case "post":
			c.add("user", "post", e.actor, n)
			if e.repostOf == 0 {
				c.add("user", "original", e.actor, n)
				break
			}
			c.add("post", "repost", e.repostOf, n)
			c.add("user", "reposted", e.author, n)
			if e.author != e.actor {
				notify("repost", e.author)
			}
		case "comment":
			c.add("post", "comment", e.post, n)
			c.add("user", "commented", e.author, n)
			if e.author != e.actor {
				notify("comment", e.author)
			}
		case "like":
			c.add("post", "like", e.post, n)
			c.add("user", "liked", e.author, n)
			if e.author != e.actor {
				notify("like", e.author)
			}
		case "mention":
			c.add("user", "mentioned", e.target, n)
			if e.target != e.actor {
				notify("mention", e.target)
			}
		case "message":
			notify("message", e.target)
		case "follow":
			m.countFollow(c, i)
		case "read":
			for _, kind := range unreadKinds {
				m.countRead(c, &e, kind)
			}
		case "adjust":
			m.countAdjust(c, &e)
		case "view": // "by (integer amount for custom counters, default 1)"
			by := e.by
			if by == 0 {
				by = 1
			}
			c.add("page", "view", e.page, n*by)
		}
	}
	return c
}

// "following or unfollowing twice changes nothing on either side (counts included)"
func (m *model) countFollow(c *counts, i int) {
	e := &m.log[i]
	_, already := m.follow(e.actor, e.target, i)
	if already != e.delete {
		return
	}
	n := int64(1)
	if e.delete {
		n = -1
	} else {
		c.add("unread", "follower", e.target, 1)
	}
	c.add("user", "following", e.actor, n)
	c.add("user", "follower", e.target, n)
	if _, back := m.follow(e.target, e.actor, i); back {
		c.add("user", "friend", e.actor, n)
		c.add("user", "friend", e.target, n)
	}
}

// "Goes to 0 by `read`; with `seen: {"comment": 3}` only 3 are taken off
// (never below 0), so that what arrived after the page was drawn stays unread;
// `as_of` does not bear on these counters."
func (m *model) countRead(c *counts, e *logged, kind string) {
	if !slices.Contains(e.what, kind) && !slices.Contains(e.what, "all") {
		return
	}
	left := int64(0)
	if seen, ok := e.seen[kind]; ok {
		left = max(c.values[cellName{"unread." + kind, e.actor}]-seen, 0)
	}
	c.set("unread", kind, e.actor, left)
}

// "`adjust`: `column` + `add` (integer, may be negative), or `column` + `set`,
// or `del: true` (the whole row)"
func (m *model) countAdjust(c *counts, e *logged) {
	switch {
	case e.del:
		for cell := range c.values {
			if cell.id == e.id && cell.column[:len(e.counter)+1] == e.counter+"." {
				delete(c.values, cell)
			}
		}
		delete(c.rows, rowName{e.counter, e.id})
	case e.set != nil:
		c.set(e.counter, e.column, e.id, *e.set)
	default:
		c.add(e.counter, e.column, e.id, *e.add)
	}
}

// The follow graph.

// follow says whether user follows target as of the first n events, and since
// when: the first follow after the last unfollow.
func (m *model) follow(user, target uint64, n int) (since pipeline.Position, ok bool) {
	for _, e := range m.log[:n] {
		if e.kind != "follow" || e.actor != user || e.target != target {
			continue
		}
		if !ok {
			since = e.position
		}
		ok = !e.delete
	}
	return since, ok
}

func (m *model) following(user uint64) (users []uint64) {
	for _, other := range m.everyone() {
		if _, ok := m.follow(user, other, len(m.log)); ok {
			users = append(users, other)
		}
	}
	return users
}

func (m *model) followers(user uint64) (users []uint64) {
	for _, other := range m.everyone() {
		if _, ok := m.follow(other, user, len(m.log)); ok {
			users = append(users, other)
		}
	}
	return users
}

// everyone who has part in a follow, by id.
func (m *model) everyone() (users []uint64) {
	for _, e := range m.log {
		if e.kind == "follow" {
			users = append(users, e.actor, e.target)
		}
	}
	slices.Sort(users)
	return slices.Compact(users)
}

// Feed.

// feedPost is one post of a feed.
type feedPost struct {
	Post     uint64
	Author   uint64
	Position pipeline.Position
}

// listed are the live posts of an author that count: "newest
// `feed.posts_per_author` per author and `feed.retention` back".
//
// "a post listed twice is listed once, deleting what is not there takes
// nothing away from a list."
//
// Reading: what has left the list, by age or because newer ones filled it, has
// left it for good: deleting a newer post does not bring it back, and posting
// it again lists it anew, at the new place.
func (m *model) listed(author uint64) []feedPost {
	type entry struct {
		post feedPost
		then int64
	}
	var list []entry
	drop := func(now int64) {
		list = slices.DeleteFunc(list, func(e entry) bool { return m.oldAt(now, e.then, m.ages.retention) })
	}
	for _, e := range m.log {
		if e.kind != "post" || e.actor != author {
			continue
		}
		drop(e.second)
		at := slices.IndexFunc(list, func(have entry) bool { return have.post.Post == e.post })
		switch {
		case e.delete && at >= 0:
			list = slices.Delete(list, at, at+1)
		case !e.delete && at < 0:
			list = append(list, entry{feedPost{Post: e.post, Author: author, Position: e.position}, e.second})
			if len(list) > m.ages.postsPerAuthor {
				list = list[1:]
			}
		}
	}
	drop(m.now)
	var posts []feedPost
	for _, e := range list {
		posts = append(posts, e.post)
	}
	return posts
}

// "every listed post of everyone followed now (those before the follow too)", "newest first"
func (m *model) feed(user uint64) (posts []feedPost) {
	for _, author := range m.following(user) {
		posts = append(posts, m.listed(author)...)
	}
	slices.SortFunc(posts, func(a, b feedPost) int { return int(b.Position) - int(a.Position) })
	return posts
}

// "live posts by people the user follows, after max(user's feed mark, that follow)"
func (m *model) feedUnread(user uint64) (n uint64) {
	mark := m.mark(user, "feed")
	for _, author := range m.following(user) {
		since, _ := m.follow(user, author, len(m.log))
		for _, p := range m.listed(author) {
			if p.Position > max(mark, since) {
				n++
			}
		}
	}
	return n
}

// Marks.

// reads are a user's, in log order.
func (m *model) reads(user uint64) (reads []logged) {
	for _, e := range m.log {
		if e.kind == "read" && e.actor == user {
			reads = append(reads, e)
		}
	}
	return reads
}

// "A read's mark is its own position, or `as_of` when given (the position in
// the answer that the user was shown): what came after stays unread."
//
// Reading: an as_of beyond the read itself is the read itself (I7).
func markOf(read *logged) pipeline.Position {
	if p, ok := read.asOf.position(read.position); ok {
		return min(p, read.position)
	}
	return read.position
}

// mark is how far the user has read something by what; `all` reads everything.
// "reads that arrive late or twice do no harm": the furthest counts.
func (m *model) mark(user uint64, what string) (mark pipeline.Position) {
	for _, r := range m.reads(user) {
		if slices.Contains(r.what, what) || slices.Contains(r.what, "all") {
			mark = max(mark, markOf(&r))
		}
	}
	return mark
}

// "A user whose last read is older than `inactive_after` (30 d) is dropped:
// every unread answers 0 until the next read."
func (m *model) dropped(user uint64) bool {
	reads := m.reads(user)
	return len(reads) > 0 && m.old(reads[len(reads)-1].second, m.ages.inactiveAfter)
}

// Channels.

// live are a channel's notices that have not been withdrawn. They are a set:
// a notice listed twice is listed once, at its first place.
func (m *model) live(channel string) (at []pipeline.Position) {
	if m.lives != nil {
		return m.lives[channel]
	}
	var list []logged
	for _, e := range m.notices {
		if e.channel != channel {
			continue
		}
		i := slices.IndexFunc(list, func(have logged) bool { return have.notice == e.notice })
		switch {
		case e.delete && i >= 0:
			list = slices.Delete(list, i, i+1)
		case !e.delete && i < 0:
			list = append(list, e)
		}
	}
	for _, e := range list {
		at = append(at, e.position)
	}
	return at
}

// channels are those answers name: the configured ones, and any other that
// has a live notice.
func (m *model) channels(configured []string) []string {
	names := slices.Clone(configured)
	for _, e := range m.notices {
		if !slices.Contains(names, e.channel) && !slices.Contains(dotChannels, e.channel) && len(m.live(e.channel)) > 0 {
			names = append(names, e.channel)
		}
	}
	return names
}

// "unread = live notices after the user's cursor. The cursor is the latest of:
// the user's last read of that channel, last read of `all`, first read of
// anything. A user who has never read anything is new: 0 on a `notice`
// channel; on a `dot` channel the dot is lit if it has any live notice."
//
// Reading: the first read is the first in the log, whatever its as_of.
func (m *model) channelUnread(user uint64, channel string, isDot bool) (n uint64) {
	reads := m.reads(user)
	if len(reads) == 0 && !isDot {
		return 0
	}
	cursor := m.mark(user, "channel:"+channel)
	if len(reads) > 0 {
		cursor = max(cursor, markOf(&reads[0]))
	}
	for _, at := range m.live(channel) {
		if at > cursor {
			n++
		}
	}
	return n
}

// answer is all that can be asked about one user.
type answer struct {
	Row       []int64 // counter user
	Unread    map[string]int64
	Feed      uint64
	Channels  map[string]uint64
	Dots      map[string]bool
	Posts     []feedPost
	Following []uint64
	Followers []uint64
}

func (m *model) answer(c *counts, user uint64) answer {
	a := answer{
		Unread: map[string]int64{}, Channels: map[string]uint64{}, Dots: map[string]bool{},
		Posts: m.feed(user), Following: m.following(user), Followers: m.followers(user),
	}
	for _, column := range userColumns {
		a.Row = append(a.Row, m.value(c, "user", column, user))
	}
	gone := m.dropped(user)
	for _, kind := range unreadKinds {
		a.Unread[kind] = 0
		if !gone {
			a.Unread[kind] = m.value(c, "unread", kind, user)
		}
	}
	for _, name := range m.channels(noticeChannels) {
		a.Channels[name] = 0
		if !gone {
			a.Channels[name] = m.channelUnread(user, name, false)
		}
	}
	for _, name := range dotChannels {
		a.Dots[name] = !gone && m.channelUnread(user, name, true) > 0
	}
	if !gone {
		a.Feed = m.feedUnread(user)
	}
	return a
}

var (
	userColumns    = []string{"post", "original", "following", "follower", "friend", "reposted", "commented", "mentioned", "liked"}
	postColumns    = []string{"repost", "comment", "like"}
	noticeChannels = []string{"system"}
	dotChannels    = []string{"games", "shop"}
)
