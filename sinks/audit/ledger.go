package audit

import (
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/tidemark-io/tidemark/pipeline"
)

// ledger is what the log says of some ids up to a position: maps, and nothing
// clever. It is for one goroutine.
type ledger struct {
	schema *pipeline.Schema
	limits Limits
	parts  []*part // by shard; nil: its ids are not kept
	sample Sample
	only   map[uint64]bool     // of the sample, these alone; nil: all
	common bool                // channels are kept too
	stands []pipeline.Position // where each shard stood in the base, and last the channels; nil: there is none

	clock    clock
	seconds  seconds
	channels map[string]*channel
	graph    [4]int // the columns that the follow graph maintains; -1: there is none
	exists   []int  // by counter: its column of that name, or -1

	names   []string // of the columns of the last window
	columns []int    // and which of the schema they are; -1: none
	bytes   int      // roughly, what it takes
}

// user is what it says of a user. Maps are made with their first entry: most users
// have few of them.
type user struct {
	marks     [pipeline.MarksCount]pipeline.Position
	cursors   map[string]pipeline.Position
	follows   map[uint64]pipeline.Position // since when
	followers map[uint64]bool
	posts     []post                       // listed, by position
	listed    map[uint64]pipeline.Position // the same by post
}

type post struct {
	position pipeline.Position
	post     uint64
}

// channel is the live notices of one that is open.
type channel struct {
	at    map[uint64]pipeline.Position // by notice
	order []post                       // the same by position
}

// What entries take, measured roughly: Go's maps and slices keep some room.
const (
	rowBytes    = 40
	cellBytes   = 10
	userBytes   = 256
	edgeBytes   = 40
	postBytes   = 72
	cursorBytes = 64 // and the name
)

func newLedger(schema *pipeline.Schema, limits Limits, shards []bool, sample Sample, only map[uint64]bool, common bool) *ledger {
	l := &ledger{
		schema: schema, limits: limits, parts: make([]*part, len(shards)), sample: sample, only: only, common: common,
		clock:    newClock(max(limits.Retention, limits.Inactive)),
		channels: map[string]*channel{},
	}
	for s := range shards {
		if !shards[s] {
			continue
		}
		p := &part{users: map[uint64]*user{}}
		for _, c := range schema.Counters {
			p.rows = append(p.rows, table{columns: c.Count, at: map[uint64]uint32{}})
		}
		l.parts[s] = p
	}
	for i, name := range []string{"user.following", "user.follower", "user.friend", "unread.follower"} {
		l.graph[i] = l.find(name)
	}
	for _, c := range schema.Counters {
		l.exists = append(l.exists, l.find(c.Name+"."+pipeline.ExistsColumn))
	}
	for _, name := range limits.Configured {
		l.channels[name] = &channel{at: map[uint64]pipeline.Position{}}
	}
	return l
}

func (l *ledger) find(name string) int {
	if c, ok := l.schema.Find(name); ok {
		return int(c)
	}
	return -1
}

func (l *ledger) has(id uint64) bool { return l.sample.Has(id) && (l.only == nil || l.only[id]) }

// of is the part of an id's shard.
func (l *ledger) of(id uint64) *part { return l.parts[pipeline.ShardOf(id, len(l.parts))] }

// keeps says whether the ledger takes in a section of a window: a shard's, or the
// last, the channels'.
func (l *ledger) keeps(section int) bool {
	if section == len(l.parts) {
		return l.common
	}
	return l.parts[section] != nil
}

// drop lets go of a shard's ids.
func (l *ledger) drop(s pipeline.Shard) {
	l.bytes -= l.parts[s].bytes()
	l.parts[s] = nil
}

// apply takes in a window.
func (l *ledger) apply(w *pipeline.Window) error {
	if len(w.Sections) != len(l.parts)+1 {
		return fmt.Errorf("audit: window (%d, %d] has %d shards, want %d", w.From, w.To, len(w.Sections)-1, len(l.parts))
	}
	l.translate(w.Columns)
	l.clock.note(w.Marks)
	l.seconds.next(w.Marks)
	for i, of := range w.Sections {
		commons := i == len(l.parts)
		if !l.keeps(i) || l.stands != nil && w.To <= l.stands[i] {
			continue
		}
		section := pipeline.ReadSection(of, w.From)
		for c, ok := section.Next(); ok; c, ok = section.Next() {
			switch {
			case commons:
				l.notice(&section.Operation)
			case !l.has(c.ID):
			case c.Op.OfSet():
				l.member(&section.Operation)
			case c.Op != pipeline.OpCell:
				l.operate(&section.Operation)
			case c.Column < len(l.columns):
				l.change(l.columns[c.Column], c.ID, c.Delta)
			}
		}
		if err := section.Err(); err != nil {
			return fmt.Errorf("audit: window (%d, %d]: %w", w.From, w.To, err)
		}
	}
	return nil
}

func (l *ledger) translate(names []string) {
	if l.columns != nil && slices.Equal(names, l.names) {
		return
	}
	l.names, l.columns = slices.Clone(names), make([]int, len(names))
	for i, name := range names {
		l.columns[i] = l.find(name)
	}
}

// change changes a cell by the delta law.
func (l *ledger) change(column int, id uint64, d pipeline.Delta) {
	if column < 0 {
		return
	}
	counter := l.schema.Columns[column].Counter
	t := &l.of(id).rows[counter]
	row := t.row(id)
	if row == nil {
		row = t.make(id)
		l.bytes += t.bytes()
	}
	cell := &row[column-int(l.schema.Counters[counter].First)]
	*cell = d.Apply(*cell)
}

// count counts a change of the follow graph.
func (l *ledger) count(which int, id uint64, n int64) {
	column := l.graph[which]
	if column < 0 {
		return
	}
	l.change(column, id, pipeline.Add(n))
	l.change(l.exists[l.schema.Columns[column].Counter], id, pipeline.Set(1))
}

const (
	following = iota
	follower
	friend
	unreadFollower
)

func (l *ledger) user(id uint64) *user {
	users := l.of(id).users
	u := users[id]
	if u == nil {
		u = new(user)
		users[id] = u
		l.bytes += userBytes
	}
	return u
}

// put puts an entry into a map, which is made with its first.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = value
}

// "The follow graph, the list of an author's posts and channels are sets:
// following or unfollowing twice changes nothing on either side (counts
// included), a post listed twice is listed once, deleting what is not there
// takes nothing away from a list."
func (l *ledger) operate(o *pipeline.Operation) {
	u := l.user(o.ID)
	_, follows := u.follows[o.Other]
	followed := u.followers[o.Other]
	switch {
	case o.Op == pipeline.OpFollow && !follows:
		put(&u.follows, o.Other, o.Position)
		l.edge(following, o.ID, 1, followed)
	case o.Op == pipeline.OpUnfollow && follows:
		delete(u.follows, o.Other)
		l.edge(following, o.ID, -1, followed)
	case o.Op == pipeline.OpFollowed && !followed:
		put(&u.followers, o.Other, true)
		l.count(unreadFollower, o.ID, 1)
		l.edge(follower, o.ID, 1, follows)
	case o.Op == pipeline.OpUnfollowed && followed:
		delete(u.followers, o.Other)
		l.edge(follower, o.ID, -1, follows)
	case o.Op == pipeline.OpPost:
		l.list(u, o)
	case o.Op == pipeline.OpUnpost:
		if at, ok := u.listed[o.Other]; ok {
			i := sort.Search(len(u.posts), func(i int) bool { return u.posts[i].position >= at })
			u.posts = slices.Delete(u.posts, i, i+1)
			delete(u.listed, o.Other)
			l.bytes -= postBytes
		}
	case o.Op == pipeline.OpRead:
		l.read(u, o)
	}
}

// edge counts an edge that comes or goes, and friends where the other way is
// there.
func (l *ledger) edge(column int, id uint64, n int64, both bool) {
	l.count(column, id, n)
	if both {
		l.count(friend, id, n)
	}
	l.bytes += int(n) * edgeBytes
}

// list adds a post. What is too old by then is gone, and so is the oldest of more
// than are kept: "the newest posts_per_author live posts count: deletions make
// room for older ones as far as posts_kept keeps them".
func (l *ledger) list(u *user, o *pipeline.Operation) {
	horizon := l.clock.horizon(o.Position, l.limits.Retention)
	for len(u.posts) > 0 && u.posts[0].position < horizon {
		l.unlist(u)
	}
	if _, twice := u.listed[o.Other]; twice {
		return
	}
	u.posts = append(u.posts, post{o.Position, o.Other})
	put(&u.listed, o.Other, o.Position)
	l.bytes += postBytes
	if l.limits.PostsKept > 0 && len(u.posts) > l.limits.PostsKept {
		l.unlist(u)
	}
}

// unlist takes out the oldest.
func (l *ledger) unlist(u *user) {
	delete(u.listed, u.posts[0].post)
	u.posts = u.posts[1:]
	l.bytes -= postBytes
}

// "A read's mark is its own position, or as_of when given": the operators have
// chosen. What is read stays read: marks never go back.
func (l *ledger) read(u *user, o *pipeline.Operation) {
	m := &u.marks
	if o.Looked&pipeline.LookedFeed != 0 {
		m[pipeline.MarkFeed] = max(m[pipeline.MarkFeed], o.Mark)
	}
	if o.Looked&pipeline.LookedAll != 0 {
		m[pipeline.MarkAll] = max(m[pipeline.MarkAll], o.Mark)
	}
	if m[pipeline.MarkFirst] == 0 {
		m[pipeline.MarkFirst] = max(o.Mark, 1) // before every event, and not never
	}
	m[pipeline.MarkLast] = max(m[pipeline.MarkLast], o.Position)
	for _, name := range o.Channels {
		was, there := u.cursors[name]
		if o.Mark <= max(was, m[pipeline.MarkAll], m[pipeline.MarkFirst]) || !there && full(len(u.cursors), l.limits.Cursors) {
			continue
		}
		put(&u.cursors, name, o.Mark)
		if !there {
			l.bytes += cursorBytes + len(name)
		}
	}
}

// full says that a bound lets nothing more in.
func full(n, bound int) bool { return bound > 0 && n >= bound }

// notice adds or withdraws one. A channel that is not configured is open while it
// has a notice; none is opened beyond the last that may be, and the oldest notice
// of a full one goes.
func (l *ledger) notice(o *pipeline.Operation) {
	name := o.Channels[0]
	ch := l.channels[name]
	switch {
	case o.Op == pipeline.OpNotice:
		if ch == nil {
			if full(len(l.channels), l.limits.Channels) {
				return
			}
			ch = &channel{at: map[uint64]pipeline.Position{}}
			l.channels[name] = ch
			l.bytes += userBytes
		}
		if _, twice := ch.at[o.ID]; twice {
			return
		}
		for full(len(ch.at), l.limits.Notices) {
			l.withdraw(ch, ch.order[0].post)
		}
		ch.at[o.ID] = o.Position
		ch.order = append(ch.order, post{o.Position, o.ID})
		l.bytes += postBytes
	case ch != nil:
		l.withdraw(ch, o.ID)
		if len(ch.at) == 0 && !slices.Contains(l.limits.Configured, name) {
			delete(l.channels, name)
			l.bytes -= userBytes
		}
	}
}

func (l *ledger) withdraw(ch *channel, notice uint64) {
	at, there := ch.at[notice]
	if !there {
		return
	}
	delete(ch.at, notice)
	i := sort.Search(len(ch.order), func(i int) bool { return ch.order[i].position >= at })
	ch.order = slices.Delete(ch.order, i, i+1)
	l.bytes -= postBytes
}

// narrow keeps a narrower sample alone.
func (l *ledger) narrow(to Sample) {
	l.sample, l.bytes = to, 0
	for _, p := range l.parts {
		if p == nil {
			continue
		}
		for i := range p.rows {
			p.rows[i].narrow(to)
		}
		maps.DeleteFunc(p.users, func(id uint64, _ *user) bool { return !to.Has(id) })
		maps.DeleteFunc(p.sets, func(of setOf, _ *set) bool { return !to.Has(of.id) })
		l.bytes += p.bytes()
	}
	for _, ch := range l.channels {
		l.bytes += userBytes + postBytes*len(ch.order)
	}
}
