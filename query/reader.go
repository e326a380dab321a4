package query

import (
	"context"
	"errors"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// ErrStopped: what was asked lies in a shard that is stopped, or is on disk while
// nothing is read there (reads=memory), so there is no answer. The asker gets it as
// "degraded", with the id as missing: never as an empty list or a zero.
var ErrStopped = errors.New("query: the shard is stopped")

// ErrCold: a part of the answer is on disk, and the asker did not allow to read it
// there. It says nothing of the data: asked again with disk, the same question has an
// answer.
var ErrCold = errors.New("query: a part of the answer is on disk")

// Reader is the state that answers come from: one node's shards, or several
// nodes' put together. All methods may be called concurrently.
//
// What is asked may be cold: on disk and not in memory. The last parameter of
// each reading method says whether the disk may be read. Without it the method
// blocks for no longer than a lock takes, and returns an error that wraps
// [ErrCold] where a part of the answer is cold, as soon as it sees that; the
// answer is void then. With it the method may block for as long as the disk
// takes, and never returns ErrCold; when ctx ends it returns ctx's error soon
// after. What the disk cost stands in the answer's Cost.
type Reader interface {
	// Applied is a position that every later answer of this node reflects:
	// all events at or before it (I6). It never goes back and costs no more
	// than a few atomic loads.
	Applied() pipeline.Position

	// WaitApplied blocks until Applied() >= p, or returns ctx's error when
	// ctx ends first. Any other error means that p cannot be reached.
	WaitApplied(ctx context.Context, p pipeline.Position) error

	// Rows reads columns of one counter for ids into rows, in the order of
	// ids, the same id as often as it is asked, and looks for rows.Sets in the rows' sets.
	// It calls rows.Reset first and keeps neither ids nor columns nor rows. Of each id all
	// is as of one moment, its values and its sets.
	//
	// An id whose shard is stopped, or that is left on disk, goes to rows.Missing
	// and is no error: an error means that there is no answer at all, and rows is
	// void.
	//
	// An answer that is put together from parts (shards, nodes) reaches as
	// far as the part that is furthest behind: AsOf is their minimum, and at
	// least what Applied() was when Rows was called. The same goes for the
	// AsOf of all other answers.
	Rows(ctx context.Context, counter int, columns []pipeline.Column, ids []uint64, rows *Rows, disk bool) error

	// Unread answers for users, in the order asked, the same user as often as
	// it is asked. It calls out.Reset first and keeps neither users nor out.
	//
	// channels are those to answer for, each once; nil: all there are. Others
	// are not looked at, and cost nothing. A name that nothing is known of is a
	// notice channel without notices.
	//
	// A user of whom any part cannot be read (their own shard is stopped, or
	// that of someone they follow) goes to out.Missing and is no error; an
	// error means that there is no answer at all, and out is void. An error of
	// out.Fits is returned as it is.
	Unread(ctx context.Context, users []uint64, channels []string, out *Unreads, disk bool) error

	// Feed reads the listed posts of everyone user follows now, also those
	// before the follow, newest first, at positions below before (0: from the
	// newest), at most limit of them (limit >= 1). It calls out.Reset first
	// and keeps nothing.
	//
	// Pages that are asked one after the other, each before the last post of
	// the one before, have no gap and no repeat while new posts arrive.
	//
	// Where the user's own shard is stopped the error wraps ErrStopped; where
	// only that of someone they follow is, the rest is read and out.Missing
	// set. After an error out is void.
	Feed(ctx context.Context, user uint64, before pipeline.Position, limit int, out *FeedPage, disk bool) error

	// Following lists the user's followees by id, ascending, those above after (0: from the
	// first), at most limit of them (limit >= 1). An unknown user follows nobody. It calls
	// out.Reset first and keeps nothing. A page costs the same at any depth.
	//
	// Where the user's shard is stopped the error wraps ErrStopped. After an
	// error out is void.
	Following(ctx context.Context, user, after uint64, limit int, out *UserPage, disk bool) error

	// Followers lists the user's followers; all else is as in Following.
	Followers(ctx context.Context, user, after uint64, limit int, out *UserPage, disk bool) error

	// Members lists the set of one row of a column, which has one, in order, those above
	// after (the zero Member: from the first). All else is as in Following; a row of
	// which nothing is known has an empty set.
	Members(ctx context.Context, column pipeline.Column, id uint64, after pipeline.Member, limit int, out *MemberPage, disk bool) error

	// Inbox lists what is in a user's lists of some columns, all of which keep items,
	// newest first. All else is as in Following. Pages have no gap and no repeat while
	// new items arrive.
	Inbox(ctx context.Context, ask *InboxAsk, out *InboxPage, disk bool) error
}

// InboxAsk asks for a page of a user's items.
type InboxAsk struct {
	User    uint64
	Columns []pipeline.Column // each keeps items, and is there once
	Before  pipeline.Position // those before it; 0: from the newest
	Limit   int               // so many at most, 1 at least; but all of the last one's event
	Unread  bool              // unread ones alone
}

// Cost is what the disk cost an answer: nothing, where all of it was in memory.
// It shows operators why a request was slow, and has no bearing on the answer.
// The Reader sets it; it may also stand where the method returns an error.
type Cost struct {
	// Cold counts the entries (rows, lists of edges, outboxes) that were read
	// from disk for this answer.
	Cold int
	// Disk is how long the method was held up by that. Where parts are read
	// side by side it is the longest of them, not their sum: it is never more
	// than what the whole call took.
	Disk time.Duration
	// Old: a part of the answer reaches less far than an answer of this process before,
	// and nobody has it further. It is no cost, but goes the same way.
	Old bool
}

// Rows is a Reader's answer: a matrix of ids by columns. It belongs to the
// caller, who uses it again and again; Reset keeps its memory.
type Rows struct {
	// Sets is set by the caller: members, each to be looked for in the sets of one of the
	// columns asked, which has sets, of members of that shape. Reset keeps it.
	Sets []pipeline.MemberOf
	// Values holds column j of the i-th id at [i*columns+j], as it is stored:
	// a sum may be below zero for a while. It means nothing where !Exist[i].
	Values []int64
	// Exist reports whether the i-th id has a row at all.
	Exist []bool
	// Has says at [i*len(Sets)+j] whether Sets[j] is in the set of the i-th id. It means
	// nothing where the id is missing.
	Has []bool
	// Missing lists the indexes of ids that could not be read, in any order,
	// each once.
	Missing []int
	// AsOf is the position that the answer reaches.
	AsOf pipeline.Position
	// Cost is what the disk cost it.
	Cost Cost
}

// Reset makes room for an answer of that size: all values 0, no row exists, no set has a
// member, nothing is missing, the disk cost nothing.
func (r *Rows) Reset(ids, columns int) {
	r.Values = zeroed(r.Values, ids*columns)
	r.Exist = zeroed(r.Exist, ids)
	r.Has = zeroed(r.Has, ids*len(r.Sets))
	r.Missing = r.Missing[:0]
	r.AsOf, r.Cost = 0, Cost{}
}

// Unreads is the answer of [Reader.Unread]. It belongs to the caller, who uses
// it again and again; Reset keeps its memory.
type Unreads struct {
	// Notices and Dots name the channels of each kind, ascending or in the
	// order asked; they are the same for all users. A channel is of one kind.
	Notices []string
	Dots    []string
	// Users holds the answers in the order asked.
	Users []UserUnread
	// Missing lists the indexes of users that could not be answered wholly,
	// in any order, each once. What Users holds of them means nothing.
	Missing []int
	// AsOf is the position that the answer reaches.
	AsOf pipeline.Position
	// Cost is what the disk cost it.
	Cost Cost

	// Fit is set by the caller: whether an answer with these channels fits. The
	// Reader calls Fits once it knows them, before it works out the answer. nil:
	// any answer fits.
	Fit func(notices, dots []string) error

	counts  []int64 // of all users, one behind the other; Users[i].Counts is a part
	notices []uint64
	dots    []bool
}

// UserUnread is what one user has not looked at yet.
type UserUnread struct {
	// Feed counts unread posts of those the user follows.
	Feed uint64
	// Counts holds the 1:1 counters, in the order of Schema.Visible(unread);
	// empty where the schema has no counter of that name. A sum may be below
	// zero for a while. Where the user has no row, the columns' defaults.
	Counts []int64
	// Notices[i] counts what is unread on the channel Unreads.Notices[i].
	Notices []uint64
	// Dots[i] reports whether the dot of the channel Unreads.Dots[i] is lit.
	Dots []bool
}

// Reset makes room for an answer of so many users, with so many 1:1 columns
// and these channels: nothing is unread, nothing is missing, the disk cost
// nothing. The names are copied, the slices are not kept. Fit stays.
func (u *Unreads) Reset(users, columns int, notices, dots []string) {
	u.Notices = append(u.Notices[:0], notices...)
	u.Dots = append(u.Dots[:0], dots...)
	u.counts = zeroed(u.counts, users*columns)
	u.notices = zeroed(u.notices, users*len(notices))
	u.dots = zeroed(u.dots, users*len(dots))
	u.Users = zeroed(u.Users, users)
	for i := range u.Users {
		u.Users[i].Counts = part(u.counts, i, columns)
		u.Users[i].Notices = part(u.notices, i, len(notices))
		u.Users[i].Dots = part(u.dots, i, len(dots))
	}
	u.Missing = u.Missing[:0]
	u.AsOf, u.Cost = 0, Cost{}
}

// Bytes is how much memory Reset keeps for the numbers of users.
func (u *Unreads) Bytes() int { return 8*(cap(u.counts)+cap(u.notices)) + cap(u.dots) }

// Fits is what Fit returns.
func (u *Unreads) Fits(notices, dots []string) error {
	if u.Fit == nil {
		return nil
	}
	return u.Fit(notices, dots)
}

// part is the i-th part of s when parts have n elements.
func part[T any](s []T, i, n int) []T { return s[i*n : (i+1)*n : (i+1)*n] }

// FeedPage is the answer of [Reader.Feed]. It belongs to the caller; Reset
// keeps its memory.
type FeedPage struct {
	// Posts are newest first: positions descend, each above 0.
	Posts []FeedPost
	// More says that there are posts older than the last of Posts, which is
	// then not empty.
	More bool
	// Missing says that some of the followees could not be read:
	// their posts are not in the page.
	Missing bool
	// AsOf is the position that the answer reaches.
	AsOf pipeline.Position
	// Cost is what the disk cost it.
	Cost Cost
}

// FeedPost is a post in someone's feed.
type FeedPost struct {
	Post, Author uint64
	Position     pipeline.Position // of the event that published it
}

// Reset empties the page; the disk cost nothing.
func (p *FeedPage) Reset() { *p = FeedPage{Posts: p.Posts[:0]} }

// UserPage is the answer of [Reader.Following] and [Reader.Followers]. It
// belongs to the caller; Reset keeps its memory.
type UserPage struct {
	// Users ascend.
	Users []uint64
	// More says that there are users above the last of Users, which is then
	// not empty.
	More bool
	// AsOf is the position that the answer reaches.
	AsOf pipeline.Position
	// Cost is what the disk cost it.
	Cost Cost
}

// Reset empties the page; the disk cost nothing.
func (p *UserPage) Reset() { *p = UserPage{Users: p.Users[:0]} }

// MemberPage is the answer of [Reader.Members]. It belongs to the caller; Reset keeps
// its memory.
type MemberPage struct {
	// Members ascend.
	Members []pipeline.Member
	// More says that there are members above the last of Members, which is then
	// not empty.
	More bool
	// AsOf is the position that the answer reaches.
	AsOf pipeline.Position
	// Cost is what the disk cost it.
	Cost Cost
}

// Reset empties the page; the disk cost nothing.
func (p *MemberPage) Reset() { *p = MemberPage{Members: p.Members[:0]} }

// InboxPage is the answer of [Reader.Inbox]. It belongs to the caller; Reset keeps its
// memory.
type InboxPage struct {
	// Items are the newest first.
	Items []InboxItem
	// More says that there are items before the last of Items, which is then not empty.
	More bool
	// AsOf is the position that the answer reaches.
	AsOf pipeline.Position
	// Cost is what the disk cost it.
	Cost Cost
}

// InboxItem is an item of a user's.
type InboxItem struct {
	Position    pipeline.Position // of its event
	Column      pipeline.Column
	Second      int64 // Unix; of log time, when it came
	Actor, Post uint64
	Read        bool
}

// Reset empties the page; the disk cost nothing.
func (p *InboxPage) Reset() { *p = InboxPage{Items: p.Items[:0]} }

func zeroed[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// Publisher puts read events into the log, subject events.read. It is for
// tidemark.read, which answers with the position that it got; no other
// endpoint writes.
//
// Publish returns when the event is stored in EVENTS (JetStream has
// acknowledged it), with the event's position. An error that wraps
// [pipeline.ErrFull] or [pipeline.ErrNoLog] means that it was not stored, any other that it is not
// known whether it was; it returns soon after ctx ends. It does not try again
// by itself unless it can tell a repeat from a second read. Event is one JSON
// object on one line and is not kept. It may be called concurrently.
type Publisher interface {
	Publish(ctx context.Context, event []byte) (pipeline.Position, error)
}
