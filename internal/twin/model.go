package twin

import (
	"slices"
	"sort"

	"github.com/tidemark-io/tidemark/pipeline"
)

// rulesOfAges are the configured numbers that the model goes by.
type rulesOfAges struct {
	postsPerAuthor int
	postsKept      int
	retention      int64 // seconds
	inactiveAfter  int64 // seconds
	channels       int   // limits.channels
	notices        int   // limits.notices
	once           bool  // likes and views count in sets
	items          int   // of each kind of unread that a user's list has; 0: there are no lists
	itemsKept      int64 // seconds
}

// agesOf are those numbers, the bounds of what is kept at their defaults.
func agesOf(postsPerAuthor int, retention, inactiveAfter int64) rulesOfAges {
	return rulesOfAges{postsPerAuthor, 4 * postsPerAuthor, retention, inactiveAfter, 4096, 100_000, false, 0, itemsKept}
}

// old says whether an age is over: a function of log time as of now and then,
// in seconds. See model.old.
func (r *rulesOfAges) old(now, then, age int64) bool {
	grain := max(1, max(r.retention, r.inactiveAfter)/43_200)
	return now/grain-then/grain > age/grain
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
	notices  []noticed        // those of everyone, in log order
	now      int64            // log time, seconds
	wrong    wrong            // 0: nothing

	// lives is what live says, worked out once for many models that have the
	// same notices; nil: it was not.
	lives lists
}

// "Ages are measured in log time, the stream timestamp of the newest applied
// event: never the wall clock."
//
// Reading: log time never goes back (a message whose timestamp is older than
// one before it came at that one's time), every message moves it, also one
// that is refused, and it is kept to the second or, for ages of more than half
// a day, to 1/43,200 of the longest one. "Older than" an age is more than it.
func (m *model) old(then, age int64) bool { return m.ages.old(m.now, then, age) }

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
	values  map[cellName]int64
	rows    map[rowName]bool     // that exist: written, and not deleted since
	members map[memberName]int64 // of sets: since when, in seconds
	lists   map[cellName]*itemList
	touched []cellName // by the latest event
}

func (c *counts) add(counter, column string, id uint64, n int64) {
	cell := cellName{counter + "." + column, id}
	c.set(counter, column, id, c.values[cell]+n)
}

func (c *counts) set(counter, column string, id uint64, v int64) {
	cell := cellName{counter + "." + column, id}
	c.values[cell] = v
	c.rows[rowName{counter, id}] = true
	c.touched = append(c.touched, cell)
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
func (m *model) count() *counts { return m.countEach(func(*logged, *counts) {}) }

// countEach shows the counters after each event.
func (m *model) countEach(after func(*logged, *counts)) *counts {
	c := &counts{values: map[cellName]int64{}, rows: map[rowName]bool{}, members: map[memberName]int64{}, lists: map[cellName]*itemList{}}
	for i, e := range m.log {
		c.touched = c.touched[:0]
		// "`delete` turns every `add` into a subtraction, except on `unread.*`,
		// which a deletion leaves alone."
		n := int64(1)
		if e.delete {
			n = -1
		}
		notify := func(kind string, user uint64, identity ...uint64) {
			if m.ages.items > 0 {
				m.notify(c, &e, kind, user, member(identity...))
			} else if !e.delete {
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
				notify("repost", e.author, e.actor, e.post)
			}
		case "comment":
			if m.once(c, &e, "post.comment", e.post, member(e.comment)) {
				c.add("post", "comment", e.post, n)
			}
			c.add("user", "commented", e.author, n)
			if e.author != e.actor {
				notify("comment", e.author, e.comment)
			}
		case "like":
			if m.once(c, &e, "post.like", e.post, member(e.actor)) {
				c.add("post", "like", e.post, n)
			}
			if m.once(c, &e, "user.liked", e.author, member(e.post, e.actor)) {
				c.add("user", "liked", e.author, n)
			}
			if e.author != e.actor {
				notify("like", e.author, e.actor, e.post)
			}
		case "mention":
			c.add("user", "mentioned", e.target, n)
			if e.target != e.actor {
				notify("mention", e.target, e.actor, e.post)
			}
		case "message":
			if e.target != e.actor {
				notify("message", e.target, e.message)
			}
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
			if m.once(c, &e, "page.view", e.page, token(e.visitor)) {
				c.add("page", "view", e.page, n*by)
			}
		}
		after(&e, c)
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
	}
	if m.ages.items > 0 {
		m.notify(c, e, "follower", e.target, member(e.actor))
	} else if !e.delete {
		c.add("unread", "follower", e.target, 1)
	}
	c.add("user", "following", e.actor, n)
	c.add("user", "follower", e.target, n)
	if _, back := m.follow(e.target, e.actor, i); back {
		c.add("user", "friend", e.actor, n)
		c.add("user", "friend", e.target, n)
	}
}

// "A plain column has no `once`. It goes to 0 by `read`; with `seen: {"comment": 3}` only 3 are
// taken off (never below 0)."
func (m *model) countRead(c *counts, e *logged, kind string) {
	if m.ages.items > 0 {
		m.readItems(c, e, kind)
		return
	}
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
// or `del: true` (the whole row)"; "`del` of a `user` row leaves the follow graph and its
// three columns alone."
func (m *model) countAdjust(c *counts, e *logged) {
	switch {
	case e.del:
		for cell := range c.values {
			stays := slices.Contains([]string{"user.following", "user.follower", "user.friend"}, cell.column)
			if cell.id == e.id && cell.column[:len(e.counter)+1] == e.counter+"." && !stays {
				delete(c.values, cell)
				c.touched = append(c.touched, cell)
			}
		}
		if e.counter != "user" {
			delete(c.rows, rowName{e.counter, e.id})
		}
		if c.empty(e.counter, e.id); e.counter == "unread" {
			c.emptyLists(e.id)
		}
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

// all users in a follow, by id.
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

// listed are the live posts of an author that count: "The newest
// `feed.posts_per_author` *live* posts count: deletions make room for older ones
// as far as `feed.posts_kept` keeps them", and "`feed.retention` back".
//
// "a post listed twice is listed once, deleting what is not there takes
// nothing away from a list."
//
// Reading: posts_kept is applied when a post is added, to the posts that are
// there then. What it drops, and what is too old then, is gone for good:
// deleting a newer post does not bring it back, and posting it again lists it
// again, at the new place.
func (m *model) listed(author uint64) []feedPost {
	type entry struct {
		post feedPost
		then int64
	}
	var list []entry
	drop := func(now int64) {
		list = slices.DeleteFunc(list, func(e entry) bool { return m.ages.old(now, e.then, m.ages.retention) })
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
			list = newest(list, m.ages.postsKept)
		}
	}
	drop(m.now)
	var posts []feedPost
	for _, e := range newest(list, m.ages.postsPerAuthor) {
		posts = append(posts, e.post)
	}
	return posts
}

// newest is the end of a list.
func newest[T any](list []T, most int) []T { return list[max(0, len(list)-most):] }

// "every listed post of everyone followed now (those before the follow too)", "newest first"
func (m *model) feed(user uint64) (posts []feedPost) {
	for _, author := range m.following(user) {
		posts = append(posts, m.listed(author)...)
	}
	slices.SortFunc(posts, func(a, b feedPost) int { return int(b.Position) - int(a.Position) })
	return posts
}

// "live posts by people the user follows, after max(user's feed mark, that follow)"
func (m *model) feedPlaces(user uint64) (places []pipeline.Position) {
	mark := m.mark(user, "feed")
	for _, author := range m.following(user) {
		since, _ := m.follow(user, author, len(m.log))
		for _, p := range m.listed(author) {
			if p.Position > max(mark, since) {
				places = append(places, p.Position)
			}
		}
	}
	return places
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
// Reading: an as_of beyond the read itself is the read itself (I7), and 0 is none.
func markOf(read *logged) pipeline.Position {
	if p, ok := read.asOf.position(read.position); ok && p > 0 {
		return min(p, read.position)
	}
	return read.position
}

// mark is how far the user has read something by what; `all` reads everything.
// "reads that arrive late or twice do no harm": the furthest counts.
func (m *model) mark(user uint64, what string) (mark pipeline.Position) {
	for _, r := range m.reads(user) {
		if r.items != nil { // these alone
			continue
		}
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

// noticed is a notice, or its withdrawal, with its place in the log.
type noticed struct {
	channel   string
	notice    uint64
	withdrawn bool
	position  pipeline.Position
}

// lists are the places of the live notices by channel, ascending. Only
// channels that have one are in it.
type lists map[string][]pipeline.Position

// listsOf are the notices of a log that have not been withdrawn. They are a
// set: a notice listed twice is listed once, at its first place.
//
// "`limits.channels`, `limits.notices` (of one channel) bound what is kept."
//
// Reading: the oldest notice of a full channel goes when one more comes. A
// channel is open while it has a notice, a configured one always; no channel is
// opened beyond the last that may be.
func listsOf(notices []noticed, bounds rulesOfAges) lists {
	type channel struct {
		at    map[uint64]pipeline.Position // by notice
		order []noticed                    // in log order, with those that are gone
	}
	lives := func(ch *channel, n noticed) bool { return ch.at[n.notice] == n.position }
	open := map[string]*channel{}
	configured := slices.Concat(noticeChannels, dotChannels)
	for _, name := range configured {
		open[name] = &channel{at: map[uint64]pipeline.Position{}}
	}
	for _, n := range notices {
		ch := open[n.channel]
		if ch == nil {
			if n.withdrawn || len(open) >= bounds.channels {
				continue
			}
			ch = &channel{at: map[uint64]pipeline.Position{}}
			open[n.channel] = ch
		}
		if _, there := ch.at[n.notice]; there == n.withdrawn {
			if n.withdrawn {
				delete(ch.at, n.notice)
			} else {
				ch.at[n.notice] = n.position
				ch.order = append(ch.order, n)
			}
		}
		for len(ch.at) > bounds.notices {
			if lives(ch, ch.order[0]) {
				delete(ch.at, ch.order[0].notice)
			}
			ch.order = ch.order[1:]
		}
		if len(ch.at) == 0 && !slices.Contains(configured, n.channel) {
			delete(open, n.channel)
		}
	}
	all := lists{}
	for name, ch := range open {
		for _, n := range ch.order {
			if lives(ch, n) {
				all[name] = append(all[name], n.position)
			}
		}
	}
	return all
}

// live are the channels' lists.
func (m *model) live() lists {
	if m.lives != nil {
		return m.lives
	}
	return listsOf(m.notices, m.ages)
}

// notices are the notice channels that answers name: the configured ones, and
// any other that has a live notice.
func (l lists) notices() []string {
	names := slices.Clone(noticeChannels)
	for name := range l {
		if !slices.Contains(names, name) && !slices.Contains(dotChannels, name) {
			names = append(names, name)
		}
	}
	return names
}

// after are a channel's notices behind a cursor.
func (l lists) after(channel string, cursor pipeline.Position) []pipeline.Position {
	list := l[channel]
	return list[sort.Search(len(list), func(i int) bool { return list[i] > cursor }):]
}

// "unread = live notices after the user's cursor. The cursor is the latest of:
// the user's last read of that channel, last read of `all`, first read of
// anything. A user who has never read anything is new: 0 on a `notice`
// channel; on a `dot` channel the dot is lit if it has any live notice."
//
// Reading: the first read is the first in the log, whatever its as_of.
func (m *model) channelPlaces(live lists, user uint64, channel string, isDot bool) []pipeline.Position {
	reads := m.reads(user)
	if len(reads) == 0 && !isDot {
		return nil
	}
	cursor := m.mark(user, "channel:"+channel)
	if len(reads) > 0 {
		cursor = max(cursor, markOf(&reads[0]))
	}
	return live.after(channel, cursor)
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
	live := m.live()
	for _, name := range live.notices() {
		a.Channels[name] = 0
		if !gone {
			a.Channels[name] = uint64(len(m.channelPlaces(live, user, name, false)))
		}
	}
	for _, name := range dotChannels {
		a.Dots[name] = !gone && len(m.channelPlaces(live, user, name, true)) > 0
	}
	if !gone {
		a.Feed = uint64(len(m.feedPlaces(user)))
	}
	return a
}

var (
	userColumns    = []string{"post", "original", "following", "follower", "friend", "reposted", "commented", "mentioned", "liked"}
	postColumns    = []string{"repost", "comment", "like"}
	noticeChannels = []string{"system"}
	dotChannels    = []string{"games", "shop"}
)
