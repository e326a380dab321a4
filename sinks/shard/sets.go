package shard

import (
	"fmt"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// A set is the members that rules with `once` have counted in one column of a row;
// a user's followers are one, too. A row's shard decides alone, in log order, whether
// a member is there: so nothing is counted twice, whatever is sent again.
//
// The members are on disk, and what has come since the last checkpoint in the changes.
// Most that are asked for are new, and that they are nowhere a filter says, which has a
// print of each member that ever was there since the start or is on disk: some 6 bytes,
// where the member would take 20. Of the others what was read from the disk is kept for
// a while.
//
//	filter ── not there ─────────────────────────────────► no
//	   │ perhaps
//	read from disk, if it was ─► changes ─► disk (want.go)
//
// A filter is whole once all on disk was loaded (warm.go), and where memory is short it
// is given up (shed.go): then the disk is asked, and the filters of its runs. To empty a
// set costs the same however large it is: see hot.Sets, and run.Member for what is on disk.

// set is all sets of one column.
type set struct {
	number uint16          // in Shard.sets
	column pipeline.Column // NoColumn: followers
	keep   int64           // seconds of log time; 0: for ever
	read   *hot.Sets       // members as they are now, of which the disk was asked

	filter *hot.Filter // of all there are, once loaded has all; nil: it was given up
	loaded frontier
	// Of a set that forgets, older is the filter of before turned, a log second. It is as
	// long as keep until the next turn, and then all in older has been forgotten.
	older  *hot.Filter
	turned int64

	// Of a column that keeps items, see items.go.
	items             int                  // that a list has at most; 0: it keeps none
	lists             map[uint64]*itemList // by user
	listed            int                  // items in them, about
	mark, floor, seen string               // names of cursors
}

func (s *Shard) makeSets(loaded frontier) {
	s.sets = []*set{{column: NoColumn, read: hot.NewSets(hot.SetsForm{}), filter: hot.NewFilter(), loaded: loaded}}
	s.byColumn = make([]*set, len(s.schema.Columns))
	for _, column := range s.schema.Sets() {
		spec, name := s.schema.Columns[column].Set, s.schema.Columns[column].Name
		s.byColumn[column] = &set{
			number: uint16(len(s.sets)), column: column, keep: spec.Keep, filter: hot.NewFilter(), loaded: loaded,
			read:  hot.NewSets(hot.SetsForm{Wide: spec.Wide(), Emptied: true, Kept: spec.Keep > 0}),
			items: spec.Items, lists: make(map[uint64]*itemList), mark: kindMark(name), floor: kindFloor(name), seen: kindSeen(name),
		}
		s.sets = append(s.sets, s.byColumn[column])
	}
}

// setBytesLocked is the memory of all sets.
func (s *Shard) setBytesLocked() (n int) {
	for _, t := range s.sets {
		n += t.bytes()
	}
	return n
}

func (t *set) bytes() int { return t.read.Bytes() + t.filterBytes() + t.listed*itemBytes }

func (t *set) filterBytes() (n int) {
	for _, f := range []*hot.Filter{t.filter, t.older} {
		if f != nil {
			n += f.Bytes()
		}
	}
	return n
}

// known is the number of members that memory knows something about.
func (t *set) known() (n int) {
	for _, f := range []*hot.Filter{t.filter, t.older} {
		if f != nil {
			n += f.Len()
		}
	}
	return max(n, t.read.Known())
}

// followers are the sets of users' followers.
func (s *Shard) followers() *set { return s.sets[0] }

// setOf is that of a column, nil where it has none; NoColumn stands for followers.
func (s *Shard) setOf(column pipeline.Column) *set {
	if column == NoColumn {
		return s.followers()
	}
	return s.byColumn[column]
}

// forgot says whether a member that came in one log second is forgotten in another:
// more than keep has passed.
func (t *set) forgot(came, now int64) bool { return t.keep > 0 && now-came > t.keep }

// filtered says that the filter is whole: what it does not have is not there.
func (t *set) filtered() bool { return t.filter != nil && t.loaded.all }

// may says whether a member may be there.
func (t *set) may(print hot.Print) bool {
	return !t.filtered() || t.filter.Has(print) || t.older != nil && t.older.Has(print)
}

// note adds a member, which is there in a log second, to the filter.
func (t *set) note(print hot.Print, now int64) {
	if t.filter == nil {
		return
	}
	if t.keep > 0 && now-t.turned > t.keep {
		t.older, t.filter, t.turned = t.filter, hot.NewFilter(), now
	}
	t.filter.Add(print)
}

// giveUp lets go of the filter.
func (t *set) giveUp() { t.filter, t.older, t.loaded = nil, nil, frontier{} }

// memberLocked says whether a member is there, if memory knows.
func (s *Shard) memberLocked(t *set, id uint64, m pipeline.Member, print hot.Print) (is Membership, known bool) {
	if !t.may(print) {
		return Membership{}, true
	}
	if second, there, known := t.read.Get(id, m); known {
		return Membership{second, there}, true
	}
	return s.overDiskLocked(memberKey{kindMember, t.number, id, m}, Membership{})
}

// ownedLocked says whether a member is there, while a window is applied. What Wants found
// unknown was installed. What is unknown still, and filtered, had no print when Wants
// looked, and so is not on disk: the print is another's, which came since.
func (s *Shard) ownedLocked(t *set, id uint64, m pipeline.Member, print hot.Print) (Membership, error) {
	is, known := s.memberLocked(t, id, m, print)
	if !known && !t.filtered() {
		return is, errNotLoaded
	}
	return is, nil
}

// setMemberLocked has a member be there, or not.
func (s *Shard) setMemberLocked(t *set, id uint64, m pipeline.Member, print hot.Print, second int64, there bool) {
	if t.read.Known() > 0 {
		if _, _, known := t.read.Get(id, m); known {
			t.read.Put(id, m, second, there)
		}
	}
	if there {
		t.note(print, second)
	}
	s.changed.add(change{kind: kindMember, set: t.number, gone: !there, print: print, a: id, b: m.A, c: m.B, v: uint64(second)})
}

// write passes a change of a member on.
func (t *set) write(to Sink, c *change) {
	switch m := c.member(); {
	case t.column == NoColumn:
		to.Follower(c.a, c.b, !c.gone)
	case c.b == 0:
		to.Empty(t.column, c.a)
	default:
		to.Member(t.column, c.a, m.member, int64(c.v), !c.gone)
	}
}

// setOfLocked is the set or the lists of an operation; nil where to empty it is nothing:
// another node's history has the column and this one's has not.
func (s *Shard) setOfLocked(o *pipeline.Operation, w *pipeline.Window, columns []pipeline.Column) (*set, error) {
	switch {
	case o.Column >= len(columns):
		return nil, fmt.Errorf("%w: operation %d of column %d and id %d", pipeline.ErrWindow, o.Op, o.Column, o.ID)
	case columns[o.Column] == NoColumn && o.Op == pipeline.OpEmpty:
		return nil, nil
	}
	t := s.setAtLocked(columns[o.Column])
	if t == nil || o.Op.OfItem() != (t.items > 0) && o.Op != pipeline.OpEmpty {
		return nil, fmt.Errorf("the window changes what column %s keeps, and this node's configuration has it keep something else: its rules need `once`, or it needs `items`, as they have at other nodes", w.Columns[o.Column])
	}
	return t, nil
}

// setAtLocked is that of a column, which may be none.
func (s *Shard) setAtLocked(column pipeline.Column) *set {
	if column == NoColumn {
		return nil
	}
	return s.byColumn[column]
}

// ofSetLocked takes an operation on a set in; flushLocked must follow, as behind
// addLocked.
func (s *Shard) ofSetLocked(o *pipeline.Operation, w *pipeline.Window, columns []pipeline.Column, now int64) error {
	t, err := s.setOfLocked(o, w, columns)
	if t == nil {
		return err
	}
	if (o.Member.A == 0) != (o.Op == pipeline.OpEmpty) && o.Op != pipeline.OpItem {
		return fmt.Errorf("%w: operation %d of id %d, member %d", pipeline.ErrWindow, o.Op, o.ID, o.Member.A)
	}
	return s.waitLocked(operation{
		op: o.Op, id: o.ID, set: t, member: o.Member, print: hot.PrintOf(o.ID, o.Member), by: o.By, now: now,
		actor: o.Actor, post: o.Post, position: o.Position,
	})
}

// changeMemberLocked applies an operation on a set. What is there already adds nothing,
// and what is not there takes nothing away.
func (s *Shard) changeMemberLocked(c *operation) error {
	t := c.set
	if c.op.OfItem() {
		return s.itemLocked(c)
	}
	if c.op == pipeline.OpEmpty {
		if t.items > 0 {
			s.emptyListLocked(t, c.id)
			return nil
		}
		t.read.Empty(c.id)
		s.changed.add(change{kind: kindMember, set: t.number, gone: true, print: c.print, a: c.id})
		return nil
	}
	is, err := s.ownedLocked(t, c.id, c.member, c.print)
	if err != nil {
		return err
	}
	there := is.There && !t.forgot(is.Second, c.now)
	add := c.op == pipeline.OpAdd
	if add == there {
		return nil
	}
	s.setMemberLocked(t, c.id, c.member, c.print, c.now, add)
	by := c.by
	if !add {
		by = -by
	}
	s.countLocked(t.column, true, c.id, by)
	return nil
}

// seconds is the log's second at positions of a window, which ascend: that of the
// newest event before or at them, of all that the log has had. It depends on events
// alone, and not on how they were cut into windows.
type seconds struct {
	now   int64
	marks []pipeline.TimeMark
}

func (s *Shard) secondsLocked(w *pipeline.Window) seconds {
	return seconds{now: s.state.Time / 1000, marks: w.Marks}
}

func (t *seconds) at(position pipeline.Position) int64 {
	for len(t.marks) > 0 && t.marks[0].Position <= position {
		t.now = max(t.now, t.marks[0].Second)
		t.marks = t.marks[1:]
	}
	return t.now
}

// Asked is a member that is asked for, of a row of a column; NoColumn: one of a user's followers.
type Asked struct {
	Column pipeline.Column
	ID     uint64
	Member pipeline.Member
}

// Membership is what the disk has of one: whether it is there, and the log second in which
// it came, where that is kept.
type Membership struct {
	Second int64
	There  bool
}

// wanted is what memory does not know of the members that a read looks for.
type wanted struct {
	Want
	now    int64
	places []wantedAt
}

// wantedAt is where a member of Want belongs.
type wantedAt struct {
	at  int // in Batch.has
	set *set
}

// hasLocked looks for b.Sets in the sets of rows. What memory does not know is in
// b.members.
func (s *Shard) hasLocked(ids []uint64, b *Batch) {
	b.members = wanted{}
	b.has = grown(b.has, len(ids)*len(b.Sets))
	if len(b.has) == 0 {
		return
	}
	w := &b.members
	w.now, w.Published = s.state.Time/1000, s.residency.published
	for j, of := range b.Sets {
		t := s.setOf(of.Column)
		for i, id := range ids {
			at := i*len(b.Sets) + j
			is, known := s.memberLocked(t, id, of.Member, hot.PrintOf(id, of.Member))
			if !known {
				w.Members = append(w.Members, Asked{of.Column, id, of.Member})
				w.places = append(w.places, wantedAt{at, t})
			}
			b.has[at] = is.There && !t.forgot(is.Second, w.now)
		}
	}
}

// Has says of the i-th id asked for which of b.Sets are in its sets.
func (b *Batch) Has(i int) []bool { return b.has[i*len(b.Sets):][:len(b.Sets)] }

// Wanted are the members that must be read from the disk.
func (b *Batch) Wanted() *Want { return &b.members.Want }

// LayMembers lays down what the disk has of Wanted.
func (b *Batch) LayMembers(found []Membership) {
	for i, p := range b.members.places {
		b.has[p.at] = found[i].There && !p.set.forgot(found[i].Second, b.members.now)
	}
}
