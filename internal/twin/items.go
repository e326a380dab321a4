package twin

import (
	"cmp"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/pipeline"
)

// itemsKept is for how long unread columns keep items by default, where they do; seconds.
const itemsKept = 3000

// withItems has unread columns keep so many items, or none, for so many seconds.
func withItems(c *config.Config, items int, keep int64) {
	c.Unread.Retention = time.Duration(keep) * time.Second
	for i := range c.Counters {
		if c.Counters[i].Name != "unread" {
			continue
		}
		columns := slices.Clone(c.Counters[i].Columns)
		for j := range columns {
			columns[j].Items = items
		}
		c.Counters[i].Columns = columns
	}
	once := map[string]config.Once{
		"unread.repost": {"actor", "post"}, "unread.mention": {"actor", "post"}, "unread.like": {"actor", "post"},
		"unread.comment": {"comment"}, "unread.message": {"message"},
	}
	for i := range c.EventRules {
		rules := slices.Clone(c.EventRules[i].Rules)
		for j := range rules {
			if identity, unread := once[rules[j].Add]; unread {
				if rules[j].Once = (config.Once{}); items > 0 {
					rules[j].Once = identity
				}
			}
		}
		c.EventRules[i].Rules = rules
	}
}

// KeepItems has unread columns keep items.
func KeepItems(c *config.Config) { withItems(c, 1000, ever) }

// item is an entry of a list of unread items.
type item struct {
	position pipeline.Position
	second   int64
	what     string // its identity; "": it has none
	read     bool   // by itself

	actor, post uint64
}

// itemList is what a user has of one kind.
type itemList struct {
	items []item // by position
	mark  pipeline.Position
	seen  pipeline.Position // the newest read with `seen`
}

func (l *itemList) unread(i item) bool { return i.position > l.mark && !i.read }

// listOf is a user's list of a kind, as of an event: "an item that leaves the list (more
// than N, or older than `unread.retention`)".
//
// Reading: to the second, as of each event about the user's list. What has left the list
// does not come back when others are taken out.
func (m *model) listOf(c *counts, kind string, user uint64, now int64) *itemList {
	name := cellName{"unread." + kind, user}
	l := c.lists[name]
	if l == nil {
		l = new(itemList)
		c.lists[name] = l
	}
	l.items = slices.DeleteFunc(l.items, func(i item) bool { return now-i.second > m.ages.itemsKept })
	return l
}

// notify puts an event into a user's list, or takes it out.
//
// "An identity that is in the list adds nothing. `delete: true` takes it out, and the number
// falls if it was unread. `delete` of what is not in the list does nothing. What comes again
// after that is new." "An event without it counts as without `once`: each one is new, and
// cannot be withdrawn."
//
// Reading: a number never falls below 0 by what is taken out.
func (m *model) notify(c *counts, e *logged, kind string, user uint64, what string) {
	l := m.listOf(c, kind, user, e.second)
	at := slices.IndexFunc(l.items, func(i item) bool { return what != "" && i.what == what })
	if m.wrong == wrongTwice && !e.delete {
		at = -1
	}
	switch {
	case e.delete && at >= 0:
		if l.unread(l.items[at]) || m.wrong == wrongWithdrawal {
			c.less(kind, user, 1)
		}
		l.items = slices.Delete(l.items, at, at+1)
	case !e.delete && at < 0:
		l.items = append(l.items, item{e.position, e.second, what, false, e.actor, e.about(kind)})
		if m.wrong != wrongBound {
			l.items = newest(l.items, m.ages.items)
		}
		c.add("unread", kind, user, 1)
	}
}

func (c *counts) less(kind string, user uint64, n int64) {
	c.set("unread", kind, user, max(c.values[cellName{"unread." + kind, user}]-n, 0))
}

// readItems is a read of one kind.
//
// "`read` marks up to its own position, or up to `as_of`: what came after stays unread."
// "`seen: {"comment": 3}` marks the three oldest unread items. `items: ["POSITION", …]`
// marks these alone." "An item that leaves the list unread stays in the number until a read
// passes it."
//
// Reading: a read passes what has left the list once its mark is at the oldest item that is
// left, or after it, or none is left. A read with `seen` and an `as_of` from before the last
// read with `seen` is that one once more, or of what has been counted off since: it does
// nothing.
func (m *model) readItems(c *counts, e *logged, kind string) {
	named := slices.Contains(e.what, kind) || slices.Contains(e.what, "all")
	l := m.listOf(c, kind, e.actor, e.second)
	if e.items != nil {
		if !named && len(e.what) > 0 {
			return
		}
		for _, of := range e.items {
			p, _ := of.position(e.position)
			at := slices.IndexFunc(l.items, func(i item) bool { return i.position == p })
			if at >= 0 && p < e.position && l.unread(l.items[at]) {
				l.items[at].read = true
				c.less(kind, e.actor, 1)
			}
		}
		return
	}
	if !named {
		return
	}
	mark := markOf(e)
	if m.wrong == wrongAsOf {
		mark = e.position
	}
	if seen, ok := e.seen[kind]; ok {
		if mark < e.position && mark <= l.seen && m.wrong != wrongSeen {
			return
		}
		if l.seen = e.position; seen == 0 {
			return
		}
		var unread []pipeline.Position
		for _, i := range l.items {
			if l.unread(i) && i.position <= mark {
				unread = append(unread, i.position)
			}
		}
		if int(seen) < len(unread) {
			mark = unread[seen-1]
		}
	}
	if mark <= l.mark && m.wrong != wrongMark {
		return
	}
	l.mark = mark
	left := int64(0)
	for _, i := range l.items {
		if l.unread(i) {
			left++
		}
	}
	if mark == e.position || len(l.items) == 0 || mark >= l.items[0].position {
		c.set("unread", kind, e.actor, left)
	}
}

// wrong is one of the mistakes about lists that comparing with the model must find; the
// model makes it.
type wrong int

const (
	wrongTwice      wrong = iota + 1 // an identity that is in the list counts again
	wrongWithdrawal                  // what is taken out is taken off, though it was read
	wrongMark                        // a mark goes back
	wrongAsOf                        // as_of says nothing
	wrongSeen                        // the same read with seen counts off more
	wrongBound                       // nothing leaves a full list
	wrongs
)

// about is the post of an event that an item has: the one that the event names.
func (e *event) about(kind string) uint64 {
	if kind == "message" || kind == "follower" {
		return 0
	}
	return e.post
}

// inboxItem is an item as an inbox shows it.
type inboxItem struct {
	kind        string
	position    pipeline.Position
	second      int64
	actor, post uint64
	read        bool
}

// inbox is what is in a user's lists, newest first.
func (m *model) inbox(c *counts, user uint64, unread bool) (all []inboxItem) {
	for _, kind := range unreadKinds {
		l := m.listOf(c, kind, user, m.now)
		for _, i := range l.items {
			if !unread || l.unread(i) {
				all = append(all, inboxItem{kind, i.position, i.second, i.actor, i.post, !l.unread(i)})
			}
		}
	}
	slices.SortFunc(all, func(a, b inboxItem) int { return cmp.Compare(b.position, a.position) })
	return all
}

// emptyLists is what del of an unread row does to the user's lists.
func (c *counts) emptyLists(user uint64) {
	for name, l := range c.lists {
		if name.id == user {
			l.items = nil
		}
	}
}

// withIdentity gives an event of a generator's an identity, or none.
func (g *generator) withIdentity(e *event) {
	if !g.items || g.IntN(5) == 0 {
		return
	}
	id := g.posts[0] + uint64(g.IntN(6))
	switch e.kind {
	case "comment":
		e.comment = id
	case "message":
		e.message = id
	}
}

// readSome has a read be one of items: of messages ago, a pack's lines among them.
func (g *generator) readSome(e *event) {
	if !g.items || g.IntN(4) > 0 {
		return
	}
	var kinds []string
	for _, what := range e.what {
		if what == "all" || slices.Contains(unreadKinds, what) {
			kinds = append(kinds, what)
		}
	}
	e.what, e.seen, e.asOf = kinds, nil, asOf{}
	for range 1 + g.IntN(6) {
		e.items = append(e.items, asOf{asOfLine, uint64(g.IntN(12))<<8 | uint64(g.IntN(3))})
	}
}
