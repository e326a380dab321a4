package shard

import (
	"cmp"
	"runtime"
	"slices"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// Want is what a window, or a caller, needs in memory and only the disk has:
// each list ascending, everything once.
type Want struct {
	Users     []uint64
	Marks     []uint64 // users, without their followees
	Authors   []uint64
	Following []hot.Pair // (user, followee)
	Members   []Asked
	Lists     []Asked // of items; whole lists, without a Member
	Published uint64  // when it was wanted; see Pin
}

// Empty says that nothing is wanted.
func (w *Want) Empty() bool {
	return len(w.Users)+len(w.Marks)+len(w.Authors)+len(w.Following)+len(w.Members)+len(w.Lists) == 0
}

// sort puts the wants in the order of the disk, each once.
func (w *Want) sort() {
	for _, ids := range []*[]uint64{&w.Users, &w.Marks, &w.Authors} {
		slices.Sort(*ids)
		*ids = slices.Compact(*ids)
	}
	slices.SortFunc(w.Following, func(a, b hot.Pair) int { return cmp.Or(cmp.Compare(a.A, b.A), cmp.Compare(a.B, b.B)) })
	for _, asked := range []*[]Asked{&w.Members, &w.Lists} {
		slices.SortFunc(*asked, func(a, b Asked) int {
			return cmp.Or(cmp.Compare(a.Column, b.Column), cmp.Compare(a.ID, b.ID), a.Member.Compare(b.Member))
		})
		*asked = slices.Compact(*asked)
	}
	w.Following = slices.Compact(w.Following)
}

// Loaded is what the disk has of a Want: Following says of each pair whether it is
// there, Members of each member, Lists has the items of each list, the newest first, as
// many as it may have; users and authors may be more, or others.
type Loaded struct {
	Users     []User
	Authors   []Author
	Following []bool
	Members   []Membership
	Lists     [][]Item
}

// User is what is on disk of a user.
type User struct {
	ID      uint64
	Marks   [marksCount]uint64
	Thin    bool       // without the followees
	Follows []hot.Pair // (followee, position of the follow), ascending
	Cursors []Cursor
}

// Cursor is how far a user has read a channel.
type Cursor struct {
	Channel  string
	Position pipeline.Position
}

// Follow adds a followee, Cursor how far they have read a channel.
func (u *User) Follow(followee uint64, since pipeline.Position) {
	u.Follows = append(u.Follows, hot.Pair{A: followee, B: uint64(since)})
}

// Cursor is as Follow.
func (u *User) Cursor(channel string, position pipeline.Position) {
	u.Cursors = append(u.Cursors, Cursor{channel, position})
}

// Author is what is on disk of an author: (position, post), ascending.
type Author struct {
	ID    uint64
	Posts []hot.Pair
}

// Post adds a post.
func (a *Author) Post(position pipeline.Position, post uint64) {
	a.Posts = append(a.Posts, hot.Pair{A: uint64(position), B: post})
}

// Wants lists what a window needs and memory does not hold. If that is
// anything, pin is called at the same moment. Any goroutine may ask. Only the owner
// publishes and evicts: the answer holds until it has (Ready).
func (s *Shard) Wants(w *pipeline.Window, columns []pipeline.Column, pin func()) (want Want, at Moment) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.failed != nil {
		return want, at
	}
	section := pipeline.ReadSection(w.Sections[s.Number], w.From)
	members := askings.Get().(*asking)
	defer askings.Put(members)
	members.reset()
	for c, ok := section.Next(); ok; c, ok = section.Next() {
		if c.Op != pipeline.OpCell && section.Operation.ID != 0 { // no table can hold 0: Apply reports it
			s.wantsLocked(&section.Operation, w, columns, members, &want)
		}
	}
	s.askAllLocked(members, &want)
	if !want.Empty() {
		want.Published = s.residency.published
		want.sort()
		pin()
	}
	return want, s.momentLocked(members)
}

// asking are members that are asked for together, so that cache misses overlap.
type asking struct {
	n    int
	list [cellsMax]operation

	absent []absent
	lists  []listRef
	noted  printSet // of identities of items that operations of the window may put in
}

var askings = sync.Pool{New: func() any { return new(asking) }}

// reset begins with another window.
func (a *asking) reset() {
	clear(a.noted.at)
	a.n, a.absent, a.lists, a.noted.n = 0, a.absent[:0], a.lists[:0], 0
}

// printSet is some prints.
type printSet struct {
	at []hot.Print // where a print falls, or in the next free place; 0: free
	n  int
}

// add adds a print, and says whether it was there.
func (p *printSet) add(print hot.Print) (was bool) {
	if 2*p.n >= len(p.at) {
		old := p.at
		*p = printSet{at: make([]hot.Print, max(placesMin, 2*len(old)))}
		for _, print := range old {
			if print != 0 {
				p.add(print)
			}
		}
	}
	at := print.Home(len(p.at))
	for ; p.at[at] != 0; at = (at + 1) % len(p.at) {
		if p.at[at] == print {
			return true
		}
	}
	p.at[at] = print
	p.n++
	return false
}

// askLocked asks for one more.
func (s *Shard) askLocked(t *set, id uint64, m pipeline.Member, members *asking, want *Want) {
	if members.n == cellsMax {
		s.askAllLocked(members, want)
	}
	members.list[members.n] = operation{id: id, set: t, member: m, print: hot.PrintOf(id, m)}
	members.n++
}

// askAllLocked adds those to want that memory does not know.
func (s *Shard) askAllLocked(members *asking, want *Want) {
	list := members.list[:members.n]
	members.n = 0
	touched := uint64(0)
	for i := range list {
		if m := &list[i]; m.set.filter != nil {
			touched += m.set.filter.Touch(m.print)
		}
	}
	runtime.KeepAlive(touched)
	for i := range list {
		m := &list[i]
		if m.set.items > 0 {
			s.askItemLocked(m, members, want)
		} else if _, known := s.memberLocked(m.set, m.id, m.member, m.print); !known {
			want.Members = append(want.Members, Asked{m.set.column, m.id, m.member})
		}
	}
}

// askItemLocked adds the list to want in which an identity may be: by then, or because an
// operation before this one may have put it there.
func (s *Shard) askItemLocked(m *operation, members *asking, want *Want) {
	was := members.noted.add(m.print)
	if was || m.set.may(m.print) {
		s.wantListLocked(m.set, m.id, members, want)
	} else {
		members.absent = append(members.absent, absent{m.set, m.print})
	}
}

func (s *Shard) wantsLocked(o *pipeline.Operation, w *pipeline.Window, columns []pipeline.Column, members *asking, want *Want) {
	id, other := o.ID, o.Other
	switch o.Op {
	case pipeline.OpFollow, pipeline.OpUnfollow, pipeline.OpFollowed, pipeline.OpUnfollowed:
		if _, known := s.followsLocked(id, other); !known {
			want.Following = append(want.Following, hot.Pair{A: id, B: other})
		}
		s.askLocked(s.followers(), id, pipeline.Member{A: other}, members, want)
		if t := s.newFollowers(); t != nil && (o.Op == pipeline.OpFollowed || o.Op == pipeline.OpUnfollowed) {
			s.askLocked(t, id, pipeline.Member{A: other}, members, want)
		}
	case pipeline.OpItem, pipeline.OpWithdrawn:
		t, err := s.setOfLocked(o, w, columns)
		if err != nil || o.Member.A == 0 { // it has none; or Apply says so
			return
		}
		s.askLocked(t, id, o.Member, members, want)
	case pipeline.OpAdd, pipeline.OpTake:
		t, err := s.setOfLocked(o, w, columns)
		if err != nil || o.Member.A == 0 { // Apply says so
			return
		}
		s.askLocked(t, id, o.Member, members, want)
	case pipeline.OpPost, pipeline.OpUnpost:
		if !s.residency.outboxes.all && !s.outboxes.Has(id) {
			want.Authors = append(want.Authors, id)
		}
	case pipeline.OpRead:
		s.wantMarksLocked(id, want)
		kinds, err := s.kindsLocked(o, w, columns)
		if err != nil { // Apply says so
			return
		}
		for i, t := range kinds {
			if len(o.Items) > 0 || o.Mark < o.Position || o.Kinds[i].Seen >= 0 {
				s.wantListLocked(t, id, members, want)
			}
		}
	}
}

// Install puts into memory what was loaded, as it was when it was wanted, with what has
// changed since over it. It does nothing, and says so, when something was published
// since; for the owner that cannot be.
func (s *Shard) Install(want *Want, l *Loaded) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.currentLocked(want.Published) {
		return false
	}
	s.installUsersLocked(l.Users)
	s.installAuthorsLocked(l.Authors)
	for i, p := range want.Following {
		if _, known := s.followsLocked(p.A, p.B); !known {
			m := pipeline.Member{A: p.B}
			is, _ := s.overDiskLocked(memberKey{kindFollowing, 0, p.A, m}, Membership{There: l.Following[i]})
			s.following.Put(p.A, m, 0, is.There)
		}
	}
	for i := range want.Members {
		s.installMemberLocked(&want.Members[i], l.Members[i])
	}
	s.installListsLocked(want.Lists, l.Lists)
	s.measureLocked()
	return true
}

// What is in memory already stays: it knows more.

func (s *Shard) installMemberLocked(of *Asked, onDisk Membership) {
	t := s.setOf(of.Column)
	if _, _, known := t.read.Get(of.ID, of.Member); known {
		return
	}
	is, _ := s.overDiskLocked(memberKey{kindMember, t.number, of.ID, of.Member}, onDisk)
	t.read.Put(of.ID, of.Member, is.Second, is.There)
}

func (s *Shard) installUsersLocked(users []User) {
	for i := range users {
		switch u := &users[i]; {
		case !s.users.Has(u.ID) && u.Thin:
			s.putUserLocked(u, nil)
		case !s.users.Has(u.ID):
			s.putUserLocked(u, s.overLocked(kindFollowing, u.ID).pairs(u.Follows))
		case !u.Thin && s.thinLocked(u.ID):
			s.fattenLocked(u, s.overLocked(kindFollowing, u.ID).pairs(u.Follows))
		}
	}
}

func (s *Shard) installAuthorsLocked(authors []Author) {
	for i := range authors {
		if a := &authors[i]; !s.outboxes.Has(a.ID) {
			s.putOutboxLocked(a.ID, s.overLocked(kindPost, a.ID).pairs(a.Posts))
		}
	}
}
