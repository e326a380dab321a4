package shard

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// A column of unread that keeps items has a list of each user: what is new to them, by
// position. Its number is in the packed row, so that to ask for it needs no list.
//
// The list has the newest Items items that are no older than Keep. What leaves it stays
// away, and stays in the number until a read passes it. The list is on disk, the newest
// first, and may have more there than it shows: how many there are newer says which. When an
// item is taken out of a full list those that left it before must not come back: from
// then on the list has a floor, which is kept with the user's cursors.
//
//	read up to   max of the cursors "unread." (all columns) and "unread.COLUMN"
//	floor        "floor.COLUMN"
//	seen         "seen.COLUMN": the newest read that said how many were seen
//
// No channel's name has a dot. Of lists memory has the prints of all identities, as it has
// those of members (sets.go): an item whose identity has no print is new, and an identity
// that has none is not there. For the rest the list is needed, whole: Wants names it, and
// it stays in memory for a while.
type Item struct {
	Position pipeline.Position
	Second   int64           // of log time at which it came
	Identity pipeline.Member // which one item of the list has at most; the zero Member: it has none
	Actor    uint64          // 0: the identity has it, or there is none
	Post     uint64          // as well
	Read     bool            // by itself
}

// itemList is what a list shows, by position, as of now.
type itemList struct {
	items []Item
	at    map[pipeline.Member]pipeline.Position // of identities
	used  bool                                  // since lists were last forgotten
}

// The cursors of a set's lists, besides that of all.
const allKinds = "unread."

func kindMark(column string) string  { return allKinds + column }
func kindFloor(column string) string { return "floor." + column }
func kindSeen(column string) string  { return "seen." + column }

// find is the place of a position.
func (l *itemList) find(at pipeline.Position) (int, bool) {
	return slices.BinarySearchFunc(l.items, at, func(i Item, at pipeline.Position) int { return cmp.Compare(i.Position, at) })
}

// add adds the newest item, and has the oldest leave a list of so many.
func (l *itemList) add(i *Item, most int) {
	if len(l.items) == cap(l.items) {
		l.items = append(make([]Item, 0, 2*len(l.items)+8), l.items...)
	}
	l.items = append(l.items, *i)
	if i.Identity.A != 0 {
		l.at[i.Identity] = i.Position
	}
	if len(l.items) > most {
		l.leave(1)
	}
}

// leave has the oldest items leave.
func (l *itemList) leave(n int) {
	for i := range l.items[:n] {
		if id := l.items[i].Identity; l.at[id] == l.items[i].Position {
			delete(l.at, id)
		}
	}
	l.items = l.items[n:]
}

// forget has those leave that are too old in a log second, and says how many they are.
func (l *itemList) forget(t *set, now int64) (n int) {
	for n < len(l.items) && t.forgot(l.items[n].Second, now) {
		n++
	}
	l.leave(n)
	return n
}

// after is the place of the first item after a position.
func (l *itemList) after(mark pipeline.Position) int {
	at, found := l.find(mark)
	if found {
		at++
	}
	return at
}

// unread is how many after a place were not read by themselves.
func (l *itemList) unread(from int) (n int64) {
	for i := from; i < len(l.items); i++ {
		if !l.items[i].Read {
			n++
		}
	}
	return n
}

// itemBytes is about what an item of a list takes in memory.
const itemBytes = 128

// listsMax is how many items a shard has in memory in lists, about.
const listsMax = 1 << 14

// keepListLocked keeps a list in memory.
func (s *Shard) keepListLocked(t *set, user uint64, l *itemList) {
	l.used = true
	t.lists[user] = l
	t.listed += len(l.items) + 1
}

// shedListsLocked forgets lists that were not used since it last did; all: every list.
func (s *Shard) shedListsLocked(all bool) (left int) {
	for _, t := range s.sets {
		t.listed = 0
		for user, l := range t.lists {
			if all || !l.used {
				delete(t.lists, user)
				continue
			}
			l.used = false
			t.listed += len(l.items) + 1
		}
		left += t.listed
	}
	return left
}

// boundListsLocked forgets lists where there are too many. Owner only: a window that is to
// be applied finds those that it wanted, or is prepared again (Ready).
func (s *Shard) boundListsLocked() {
	n := 0
	for _, t := range s.sets {
		n += t.listed
	}
	if n > listsMax && s.shedListsLocked(false) > listsMax {
		s.shedListsLocked(true)
	}
}

// itemsLocked is a user's list in a log second.
func (s *Shard) itemsLocked(t *set, user uint64, now int64) (*itemList, error) {
	l := t.lists[user]
	if l == nil && s.residency.diskless {
		l = s.makeListLocked(t, user, nil)
		s.keepListLocked(t, user, l)
	}
	if l == nil {
		return nil, errNotLoaded
	}
	l.used = true
	t.listed -= l.forget(t, now)
	return l, nil
}

// makeListLocked makes a user's list of what is on disk, the newest first, and has changed
// since.
func (s *Shard) makeListLocked(t *set, user uint64, disk []Item) *itemList {
	p := s.listingLocked(t, user, t.items)
	p.overLocked(s, user)
	p.sort()
	for i := range disk {
		if !p.Add(&disk[i]) {
			break
		}
	}
	p.End()
	slices.Reverse(p.Items)
	l := &itemList{items: p.Items, at: make(map[pipeline.Member]pipeline.Position)}
	for i := range l.items {
		if id := l.items[i].Identity; id.A != 0 {
			l.at[id] = l.items[i].Position
		}
	}
	return l
}

// installListsLocked takes in lists that were wanted. One whose user has left memory since
// is left out: nobody knows its floor.
func (s *Shard) installListsLocked(want []Asked, disk [][]Item) {
	for i, of := range want {
		if t := s.setOf(of.Column); t.lists[of.ID] == nil && s.userKnownLocked(of.ID) {
			s.keepListLocked(t, of.ID, s.makeListLocked(t, of.ID, disk[i]))
		}
	}
}

// wantListLocked wants a user's list, and the user, for the list's floor.
func (s *Shard) wantListLocked(t *set, user uint64, members *asking, want *Want) {
	if !s.residency.diskless {
		members.lists = append(members.lists, listRef{t, user})
		if t.lists[user] == nil {
			want.Lists = append(want.Lists, Asked{Column: t.column, ID: user})
		}
	}
	s.wantMarksLocked(user, want)
}

func (s *Shard) wantMarksLocked(user uint64, want *Want) {
	if !s.residency.users.has(user) && !s.users.Has(user) {
		want.Marks = append(want.Marks, user)
	}
}

// itemLocked applies an operation on an item.
func (s *Shard) itemLocked(c *operation) error {
	if c.op == pipeline.OpItem {
		return s.addItemLocked(c)
	}
	return s.withdrawLocked(c)
}

// addItemLocked adds an item, unless the list has its identity.
func (s *Shard) addItemLocked(c *operation) error {
	t := c.set
	l := t.lists[c.id]
	if c.member.A != 0 && t.may(c.print) {
		var err error
		if l, err = s.itemsLocked(t, c.id, c.now); err != nil {
			return err
		}
		if _, there := l.at[c.member]; there {
			return nil
		}
	}
	i := Item{Position: c.position, Second: c.now, Identity: c.member, Actor: c.actor, Post: c.post}
	if l != nil {
		before := len(l.items)
		l.add(&i, t.items)
		t.listed += len(l.items) - before
	}
	if c.member.A != 0 {
		t.note(c.print, c.now)
		s.residency.noted++
	}
	s.changed.addItem(t.number, c.id, &i, itemNew)
	s.countLocked(t.column, true, c.id, 1)
	return nil
}

// withdrawLocked takes an item out.
func (s *Shard) withdrawLocked(c *operation) error {
	t := c.set
	if !t.may(c.print) {
		return nil
	}
	l, err := s.itemsLocked(t, c.id, c.now)
	if err != nil {
		return err
	}
	position, there := l.at[c.member]
	if !there {
		return nil
	}
	if !s.userLocked(c.id) {
		return errNotLoaded
	}
	if len(l.items) == t.items {
		s.moveCursorLocked(c.id, t.floor, l.items[0].Position)
	}
	at, _ := l.find(position)
	i := l.items[at]
	l.items = slices.Delete(l.items, at, at+1)
	delete(l.at, c.member)
	t.listed--
	s.changed.addItem(t.number, c.id, &i, itemGone)
	if !i.Read && i.Position > s.kindMarkLocked(t, c.id) {
		s.countItemsLocked(t, c.id, pipeline.Take(1))
	}
	return nil
}

// emptyListLocked takes all items out. The number is not changed.
func (s *Shard) emptyListLocked(t *set, user uint64) {
	if l := t.lists[user]; l != nil {
		t.listed -= len(l.items)
		t.lists[user] = &itemList{at: make(map[pipeline.Member]pipeline.Position), used: true}
	}
	s.changed.add(change{kind: kindItem, set: t.number, gone: true, a: user})
}

// countItemsLocked changes a user's number.
func (s *Shard) countItemsLocked(t *set, user uint64, d pipeline.Delta) {
	s.changeLocked(t.column, user, d)
	if e := s.exists[s.schema.Columns[t.column].Counter]; e >= 0 {
		s.changeLocked(pipeline.Column(e), user, pipeline.Set(1))
	}
}

// kindMarkLocked is up to where a user, who is in memory, has read a column's items.
func (s *Shard) kindMarkLocked(t *set, user uint64) pipeline.Position {
	if s.users.Len(user, listCursors) == 0 {
		return 0
	}
	return max(s.cursorLocked(user, allKinds), s.cursorLocked(user, t.mark))
}

// moveCursorLocked moves one of the cursors that a user has besides those in channels.
func (s *Shard) moveCursorLocked(user uint64, name string, position pipeline.Position) {
	if s.setCursorLocked(user, name, position, math.MaxInt) {
		s.keepUserLocked(user)
		s.changed.addCursor(user, name, uint64(position))
	}
}

// keepUserLocked keeps a user in memory until what has changed of them is on disk.
func (s *Shard) keepUserLocked(user uint64) {
	if last, _ := s.users.Word(user, markLast); last&dirtyBit == 0 {
		s.changed.add(change{kind: kindMarks, a: user})
		s.users.SetWord(user, markLast, last|dirtyBit)
	}
}

// kindsLocked are the columns that a read looks at.
func (s *Shard) kindsLocked(o *pipeline.Operation, w *pipeline.Window, columns []pipeline.Column) (kinds []*set, err error) {
	for _, k := range o.Kinds {
		if k.Column >= len(columns) {
			return nil, fmt.Errorf("%w: a read of column %d by user %d", pipeline.ErrWindow, k.Column, o.ID)
		}
		t := s.setAtLocked(columns[k.Column])
		if t == nil || t.items == 0 {
			return nil, fmt.Errorf("the window has a read of what column %s keeps, which in this node's configuration has no items", w.Columns[k.Column])
		}
		kinds = append(kinds, t)
	}
	return kinds, nil
}

// newFollowers are the lists of users' new followers; nil: there are none.
func (s *Shard) newFollowers() *set {
	if !s.graph.has[3] {
		return nil
	}
	if t := s.byColumn[s.graph.unread]; t != nil && t.items > 0 {
		return t
	}
	return nil
}

// ofFollowerLocked puts a new follower into the user's list, or takes them out.
func (s *Shard) ofFollowerLocked(o *pipeline.Operation, now int64) error {
	t := s.newFollowers()
	if t == nil {
		return nil
	}
	m := pipeline.Member{A: o.Other}
	c := operation{op: pipeline.OpItem, id: o.ID, set: t, member: m, position: o.Position, print: hot.PrintOf(o.ID, m), now: now}
	if o.Op == pipeline.OpUnfollowed {
		c.op = pipeline.OpWithdrawn
	}
	return s.itemLocked(&c)
}

// readKindsLocked has items be read, of a user who is in memory.
func (s *Shard) readKindsLocked(o *pipeline.Operation, kinds []*set, now int64) error {
	for i, t := range kinds {
		var err error
		if len(o.Items) > 0 {
			err = s.readItemsLocked(t, o, now)
		} else {
			err = s.readKindLocked(t, o, o.Kinds[i].Seen, now)
		}
		if err != nil {
			return err
		}
	}
	if o.Looked&pipeline.LookedKinds != 0 {
		s.moveCursorLocked(o.ID, allKinds, o.Mark)
	}
	return nil
}

// readKindLocked has a column's items be read up to the read's mark, or so many of those
// of them that are unread, the oldest.
func (s *Shard) readKindLocked(t *set, o *pipeline.Operation, seen int, now int64) error {
	mark, was := o.Mark, s.kindMarkLocked(t, o.ID)
	if seen >= 0 {
		if mark < o.Position && mark <= s.cursorLocked(o.ID, t.seen) {
			return nil // what was shown then has been counted off since
		}
		s.moveCursorLocked(o.ID, t.seen, o.Position)
	}
	if mark <= was || seen == 0 {
		return nil
	}
	if seen < 0 && mark == o.Position {
		s.countItemsLocked(t, o.ID, pipeline.Set(0))
	} else {
		l, err := s.itemsLocked(t, o.ID, now)
		if err != nil {
			return err
		}
		if seen >= 0 {
			mark = l.oldest(was, mark, seen)
		}
		if len(l.items) == 0 || mark >= l.items[0].Position { // else what has left the list may be unread
			s.countItemsLocked(t, o.ID, pipeline.Set(l.unread(l.after(mark))))
		}
	}
	if o.Looked&pipeline.LookedKinds == 0 {
		s.moveCursorLocked(o.ID, t.mark, mark)
	}
	return nil
}

// oldest is the position of the n-th of the unread items after one position and up to
// another; that one, where there are no more than n.
func (l *itemList) oldest(after, upTo pipeline.Position, n int) pipeline.Position {
	last := pipeline.Position(0)
	for i := l.after(after); i < len(l.items) && l.items[i].Position <= upTo; i++ {
		if l.items[i].Read {
			continue
		}
		if n == 0 {
			return last
		}
		n, last = n-1, l.items[i].Position
	}
	return upTo
}

// readItemsLocked has single items be read.
func (s *Shard) readItemsLocked(t *set, o *pipeline.Operation, now int64) error {
	l, err := s.itemsLocked(t, o.ID, now)
	if err != nil {
		return err
	}
	was := s.kindMarkLocked(t, o.ID)
	for _, position := range o.Items {
		at, there := l.find(position)
		if !there || position <= was || l.items[at].Read {
			continue
		}
		i := &l.items[at]
		i.Read = true
		s.changed.addItem(t.number, o.ID, i, itemAgain)
		s.countItemsLocked(t, o.ID, pipeline.Take(1))
	}
	return nil
}

// How a change of an item is noted.
const (
	itemNew   = iota // it came with the change
	itemAgain        // it was there before
	itemGone
)

// itemRest is what of an item does not fit into a change, which has its position.
type itemRest struct {
	Item
	again bool // it was there before the change
}

// addItem adds a change of an item.
func (c *changes) addItem(set uint16, user uint64, i *Item, how int) {
	e := change{kind: kindItem, set: set, gone: how == itemGone, a: user, b: uint64(i.Position)}
	if !e.gone {
		e.v = uint64(c.items.Len())
		c.items.Add(itemRest{*i, how == itemAgain})
	}
	c.add(e)
}

// writeItem passes a change of an item on.
func (c *changes) writeItem(to Sink, column pipeline.Column, e *change) {
	switch {
	case e.b == 0:
		to.Empty(column, e.a)
	case e.gone:
		to.Item(column, e.a, &Item{Position: pipeline.Position(e.b)}, false)
	default:
		to.Item(column, e.a, &c.items.At(int(e.v)).Item, true)
	}
}

// Listing is a piece of a user's list, the newest first. What of it is on disk is added
// with Add, the newest first, until that says no.
type Listing struct {
	Items []Item
	State State             // that the answer reflects
	Mark  pipeline.Position // up to which the user has read the column
	Cold  bool              // the user's cursors must be added from the disk, with Cursor, before items

	of    *set
	most  int
	now   int64
	floor pipeline.Position
	over  []Item                         // that have come since what is on disk, or changed, the newest first
	since map[pipeline.Position]struct{} // those, and what is gone since
	whole bool                           // nothing on disk counts
	done  bool                           // nothing older does
}

// listingLocked is a piece of so many, with what has changed since what is on disk.
func (s *Shard) listingLocked(t *set, user uint64, most int) *Listing {
	p := &Listing{State: s.state, of: t, most: most, now: s.state.Time / 1000}
	if s.userKnownLocked(user) {
		p.floor, p.Mark = s.cursorLocked(user, t.floor), s.kindMarkLocked(t, user)
	} else { // cursors that are not on disk yet keep a user in memory
		p.Cold = true
	}
	return p
}

// userKnownLocked says that memory has all there is of a user's cursors.
func (s *Shard) userKnownLocked(user uint64) bool {
	return s.users.Has(user) || s.residency.users.has(user)
}

// overLocked takes in what has changed since what is on disk.
func (p *Listing) overLocked(s *Shard, user uint64) {
	came := 0
	for _, changes := range []*changes{s.changed, s.flight.changed} {
		for _, c := range changes.of(listKey{kindItem, p.of.number, user}, nil) {
			at := pipeline.Position(c.b)
			if _, newer := p.since[at]; newer {
				continue
			}
			if p.whole = at == 0 || came == p.of.items; p.whole { // the list was emptied, or is full
				return
			}
			if p.since == nil {
				p.since = make(map[pipeline.Position]struct{})
			}
			if p.since[at] = struct{}{}; c.gone {
				continue
			}
			i := changes.items.At(int(c.v))
			if p.over = append(p.over, i.Item); !i.again {
				came++
			}
		}
	}
}

// Cursor adds one of the user's on disk.
func (p *Listing) Cursor(name string, position pipeline.Position) {
	switch name {
	case p.of.floor:
		p.floor = position
	case allKinds, p.of.mark:
		p.Mark = max(p.Mark, position)
	}
}

// Add adds the next item that is on disk, if it still is there, and before it those that
// came since. It says whether more are wanted.
func (p *Listing) Add(i *Item) (more bool) {
	if p.Whole() {
		return false
	}
	p.until(i.Position)
	if _, changed := p.since[i.Position]; !changed {
		p.put(i)
	}
	return !p.Whole()
}

// End says that nothing else is on disk.
func (p *Listing) End() { p.until(0) }

// Whole says that nothing on disk is wanted.
func (p *Listing) Whole() bool { return p.whole || p.done }

// until puts in what came since, after a position.
func (p *Listing) until(position pipeline.Position) {
	for len(p.over) > 0 && p.over[0].Position > position && !p.done {
		p.put(&p.over[0])
		p.over = p.over[1:]
	}
}

// put puts an item in, if there is room.
func (p *Listing) put(i *Item) {
	if p.done = p.done || i.Position < p.floor || p.of.forgot(i.Second, p.now); !p.done {
		p.Items = append(p.Items, *i)
		p.done = len(p.Items) >= p.most
	}
}

// Lists lists the newest items of lists, at most so many of each, at one moment. Where some
// may be on disk (not Whole, or Cold), pin is called at the same moment; nil: that is left.
func (s *Shard) Lists(asked []Asked, most int, pin func()) ([]*Listing, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.failed != nil {
		return nil, s.failed
	}
	all, pinned := make([]*Listing, len(asked)), pin == nil
	for i, of := range asked {
		t, user := s.setOf(of.Column), of.ID
		p := s.listingLocked(t, user, min(most, t.items))
		if l := t.lists[user]; l != nil && !p.Cold {
			p.over, p.whole = slices.Clone(l.items), true
			slices.Reverse(p.over)
		} else {
			p.overLocked(s, user)
			p.sort()
		}
		if all[i] = p; !pinned && (p.Cold || !p.Whole()) {
			pin()
			pinned = true
		}
	}
	return all, nil
}

func (p *Listing) sort() {
	slices.SortFunc(p.over, func(a, b Item) int { return cmp.Compare(b.Position, a.Position) })
}
