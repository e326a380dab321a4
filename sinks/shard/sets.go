package shard

import (
	"fmt"
	"runtime"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// A set is the members that rules with `once` have counted in one column of a row;
// a user's followers are one, too. A row's shard decides alone, in log order, whether
// a member is there: so nothing is counted twice, whatever is sent again.
//
// Of each set memory knows some members to be there, and some not; of the others the
// disk knows (residency.go). To empty a set costs the same however large it is: see
// hot.Sets, and run.Member for what is on disk.

// set is all sets of one column.
type set struct {
	number  uint16          // in Shard.sets
	column  pipeline.Column // NoColumn: followers
	keep    int64           // seconds of log time; 0: for ever
	members *hot.Sets
	loaded  frontier
}

func (s *Shard) makeSets(loaded frontier) {
	s.sets = []*set{{column: NoColumn, members: hot.NewSets(hot.SetsForm{}), loaded: loaded}}
	s.byColumn = make([]*set, len(s.schema.Columns))
	for _, column := range s.schema.Sets() {
		spec := s.schema.Columns[column].Set
		s.byColumn[column] = &set{
			number: uint16(len(s.sets)), column: column, keep: spec.Keep, loaded: loaded,
			members: hot.NewSets(hot.SetsForm{Wide: spec.Wide(), Emptied: true, Kept: spec.Keep > 0}),
		}
		s.sets = append(s.sets, s.byColumn[column])
	}
}

// setBytesLocked is the memory of all sets.
func (s *Shard) setBytesLocked() (n int) {
	for _, t := range s.sets {
		n += t.members.Bytes()
	}
	return n
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

// get says whether a member is there, if memory knows.
func (t *set) get(id uint64, m pipeline.Member) (second int64, there, known bool) {
	second, there, known = t.members.Get(id, m)
	return second, there, known || t.loaded.all
}

// setMemberLocked has a member be there, or not.
func (s *Shard) setMemberLocked(t *set, id uint64, m pipeline.Member, second int64, there bool) {
	if !there && t.loaded.all {
		t.members.Forget(id, m) // what is not known is not
	} else {
		t.members.Put(id, m, second, there)
	}
	s.changed.add(change{kind: kindMember, set: t.number, gone: !there, a: id, b: m.A, c: m.B, v: uint64(second)})
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

// setOfLocked is the set of an operation; nil where to empty it is nothing: another
// node's history has the column and this one's has not.
func (s *Shard) setOfLocked(o *pipeline.Operation, w *pipeline.Window, columns []pipeline.Column) (*set, error) {
	switch {
	case o.Column >= len(columns):
		return nil, fmt.Errorf("%w: operation %d of column %d and id %d", pipeline.ErrWindow, o.Op, o.Column, o.ID)
	case columns[o.Column] == NoColumn && o.Op == pipeline.OpEmpty:
		return nil, nil
	case columns[o.Column] == NoColumn || s.byColumn[columns[o.Column]] == nil:
		return nil, fmt.Errorf("the window changes the set of column %s, which this node's configuration does not have: its rules need `once`", w.Columns[o.Column])
	}
	return s.byColumn[columns[o.Column]], nil
}

// memberChange is an operation on a set, on its way there.
type memberChange struct {
	set    *set
	op     pipeline.Op
	id     uint64
	member pipeline.Member
	by     int64
	now    int64 // the log second of the event
}

// memberLocked takes an operation on a set in; flushLocked must follow, as behind
// addLocked.
func (s *Shard) memberLocked(o *pipeline.Operation, w *pipeline.Window, columns []pipeline.Column, now int64) error {
	t, err := s.setOfLocked(o, w, columns)
	if t == nil {
		return err
	}
	if (o.Member.A == 0) != (o.Op == pipeline.OpEmpty) {
		return fmt.Errorf("%w: operation %d of id %d, member %d", pipeline.ErrWindow, o.Op, o.ID, o.Member.A)
	}
	if s.cells.n > 0 || s.cells.operations == cellsMax {
		if err := s.flushLocked(); err != nil {
			return err
		}
	}
	s.cells.members[s.cells.operations] = memberChange{t, o.Op, o.ID, o.Member, o.By, now}
	s.cells.operations++
	return nil
}

// flushMembersLocked applies what was taken in, in its order. What is there already adds
// nothing, and what is not there takes nothing away.
func (s *Shard) flushMembersLocked() error {
	list := s.cells.members[:s.cells.operations]
	s.cells.operations = 0
	touched := uint64(0)
	for i := range list {
		c := &list[i]
		touched += c.set.members.Touch(c.id, c.member) + s.rows[s.schema.Columns[c.set.column].Counter].Touch(c.id)
	}
	runtime.KeepAlive(touched)
	for i := range list {
		if err := s.changeMemberLocked(&list[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Shard) changeMemberLocked(c *memberChange) error {
	t := c.set
	if c.op == pipeline.OpEmpty {
		t.members.Empty(c.id, t.loaded.all)
		s.changed.add(change{kind: kindMember, set: t.number, gone: true, a: c.id})
		return nil
	}
	came, there, known := t.get(c.id, c.member)
	if !known {
		return errNotLoaded
	}
	there = there && !t.forgot(came, c.now)
	add := c.op == pipeline.OpAdd
	if add == there {
		return nil
	}
	s.setMemberLocked(t, c.id, c.member, c.now, add)
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
			came, there, known := t.get(id, of.Member)
			if !known {
				is, changed := s.overDiskLocked(memberKey{kindMember, t.number, id, of.Member}, Membership{})
				if !changed {
					w.Members = append(w.Members, Asked{of.Column, id, of.Member})
					w.places = append(w.places, wantedAt{at, t})
				}
				came, there = is.Second, is.There
			}
			b.has[at] = there && !t.forgot(came, w.now)
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
