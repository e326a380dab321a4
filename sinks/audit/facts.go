package audit

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/tidemark-io/tidemark/pipeline"
)

// facts are some, of one part. Most come as they are ordered.
type facts []pipeline.Fact

// byMatter orders facts by what they are about, which is all of them but the value.
func byMatter(a, b *pipeline.Fact) int {
	if c := cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID)); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(a.Column, b.Column), cmp.Compare(a.Other, b.Other), a.Member.Compare(b.Member), cmp.Compare(a.Name, b.Name))
}

// order orders them. Of what was said twice the last stands.
func (e facts) order() facts {
	by := func(a, b pipeline.Fact) int { return byMatter(&a, &b) }
	if !slices.IsSortedFunc(e, by) {
		slices.SortStableFunc(e, by)
	}
	n := 0
	for i := range e {
		if n > 0 && byMatter(&e[n-1], &e[i]) == 0 {
			n--
		}
		e[n] = e[i]
		n++
	}
	return e[:n]
}

// facts appends what the ledger knows of what was asked, in the form of an answer.
// Members are those after ask.After, up to last.
func (l *ledger) facts(e facts, ask *pipeline.FactsAsk, last whole) facts {
	add := func(f pipeline.Fact) { e = append(e, f) }
	if ask.Part == pipeline.PartMembers {
		return l.members(e, ask, last)
	}
	for _, id := range ask.IDs {
		of := l.parts[ask.Shard]
		u := of.users[id]
		switch {
		case ask.Part == pipeline.PartRows:
			first := l.schema.Counters[ask.Counter].First
			for i, v := range of.rows[ask.Counter].row(id) {
				if v != 0 {
					add(pipeline.Fact{Kind: pipeline.FactCell, Column: first + pipeline.Column(i), ID: id, Value: v})
				}
			}
		case u == nil:
		case ask.Part == pipeline.PartUser:
			for which, at := range u.marks {
				if at != 0 {
					add(pipeline.Fact{Kind: pipeline.FactMark, ID: id, Other: uint64(which), Value: int64(at)})
				}
			}
			for other, since := range u.follows {
				add(pipeline.Fact{Kind: pipeline.FactFollows, ID: id, Other: other, Value: int64(since)})
			}
			for _, name := range ask.Channels { // not what was read since it was asked
				if at := u.cursors[name]; at != 0 {
					add(pipeline.Fact{Kind: pipeline.FactCursor, ID: id, Name: name, Value: int64(at)})
				}
			}
		case ask.Part == pipeline.PartPosts:
			for _, p := range u.posts[max(0, len(u.posts)-l.limits.PostsMax):] {
				add(pipeline.Fact{Kind: pipeline.FactPost, ID: id, Other: p.post, Value: int64(p.position)})
			}
		}
	}
	if ask.Part == pipeline.PartNotices {
		if ch := l.channels[ask.Channels[0]]; ch != nil {
			for notice, at := range ch.at {
				add(pipeline.Fact{Kind: pipeline.FactNotice, Name: ask.Channels[0], Other: notice, Value: int64(at)})
			}
		}
	}
	return e
}

// members appends what the ledger knows of sets.
func (l *ledger) members(e facts, ask *pipeline.FactsAsk, last whole) facts {
	of := l.parts[ask.Shard]
	for i, id := range ask.IDs {
		add := func(m pipeline.Member, value int64) {
			after := i > 0 || m.Compare(ask.After) > 0
			if after && (id < last.id || id == last.id && m.Compare(last.member) <= 0) {
				e = append(e, pipeline.Fact{Kind: pipeline.FactMember, Column: ask.Column, ID: id, Member: m, Value: value})
			}
		}
		if ask.Column != pipeline.NoColumn {
			l.remembered(of.sets[setOf{ask.Column, id}], ask.Column, add)
		} else if u := of.users[id]; u != nil {
			for follower := range u.followers {
				add(pipeline.Member{A: follower}, 1)
			}
		}
	}
	return e
}

// settle leaves of facts, served or derived, what is defined: "compare what an
// answer can tell". A follow from before what its user has read counts from then;
// a cursor before it says nothing; a post older than the retention is listed by
// nobody, stored or not; columns of earlier configurations are not derived.
//
// They are ordered afterwards. Marks, follows and cursors are of one user.
func (l *ledger) settle(e facts, at pipeline.Position) facts {
	e = e.order()
	var marks [pipeline.MarksCount]int64
	for i := range e {
		if e[i].Kind == pipeline.FactMark {
			marks[e[i].Other] = e[i].Value
		}
	}
	horizon := pipeline.Position(0)
	if len(e) > 0 && e[0].Kind == pipeline.FactPost {
		horizon = l.clock.horizon(at, l.limits.Retention)
	}
	settled := e[:0]
	for _, f := range e {
		switch f.Kind {
		case pipeline.FactCell:
			if spec := &l.schema.Columns[f.Column]; spec.Hidden && l.exists[spec.Counter] != int(f.Column) {
				continue
			}
		case pipeline.FactFollows:
			if f.Value <= max(marks[pipeline.MarkFeed], marks[pipeline.MarkAll]) {
				f.Value = 0
			}
		case pipeline.FactCursor:
			if f.Value <= max(marks[pipeline.MarkAll], marks[pipeline.MarkFirst]) {
				continue
			}
		case pipeline.FactPost:
			if pipeline.Position(f.Value) < horizon {
				continue
			}
		}
		settled = append(settled, f)
	}
	return settled
}

// seed takes in a fact of a base. Posts and notices come by position.
func (l *ledger) seed(f pipeline.Fact) {
	switch f.Kind {
	case pipeline.FactCell:
		l.change(int(f.Column), f.ID, pipeline.Set(f.Value))
	case pipeline.FactMark:
		l.user(f.ID).marks[f.Other] = pipeline.Position(f.Value)
	case pipeline.FactCursor:
		put(&l.user(f.ID).cursors, f.Name, pipeline.Position(f.Value))
		l.bytes += cursorBytes + len(f.Name)
	case pipeline.FactFollows:
		put(&l.user(f.ID).follows, f.Other, pipeline.Position(f.Value))
		l.bytes += edgeBytes
	case pipeline.FactMember:
		if f.Column != pipeline.NoColumn {
			l.remember(setOf{f.Column, f.ID}, f.Member, f.Value, math.MinInt64)
			break
		}
		put(&l.user(f.ID).followers, f.Member.A, true)
		l.bytes += edgeBytes
	case pipeline.FactPost:
		l.list(l.user(f.ID), &pipeline.Operation{Op: pipeline.OpPost, ID: f.ID, Other: f.Other, Position: pipeline.Position(f.Value)})
	case pipeline.FactNotice:
		l.notice(&pipeline.Operation{Op: pipeline.OpNotice, ID: f.Other, Position: pipeline.Position(f.Value), Channels: []string{f.Name}})
	}
}

// markNames are those of a user's marks.
var markNames = [pipeline.MarksCount]string{
	pipeline.MarkFeed: "feed", pipeline.MarkAll: "all", pipeline.MarkFirst: "first", pipeline.MarkLast: "last",
}

// differ returns the facts in which two sides, both ordered, do not agree.
func (l *ledger) differ(is, should facts, at pipeline.Position, tell func(Difference)) {
	for len(is)+len(should) > 0 {
		order := 0
		switch {
		case len(is) == 0:
			order = 1
		case len(should) == 0:
			order = -1
		default:
			order = byMatter(&is[0], &should[0])
		}
		switch {
		case order < 0:
			tell(l.difference(&is[0], &is[0], nil, at))
			is = is[1:]
		case order > 0:
			tell(l.difference(&should[0], nil, &should[0], at))
			should = should[1:]
		default:
			if is[0].Value != should[0].Value {
				tell(l.difference(&is[0], &is[0], &should[0], at))
			}
			is, should = is[1:], should[1:]
		}
	}
}

// difference is what two sides say of the matter of f; nil: nothing.
func (l *ledger) difference(f, is, should *pipeline.Fact, at pipeline.Position) Difference {
	value := func(said *pipeline.Fact) int64 {
		switch {
		case said != nil:
			return said.Value
		case f.Kind >= pipeline.FactFollows:
			return -1
		}
		return 0
	}
	d := Difference{ID: f.ID, Column: strconv.FormatUint(f.Other, 10), Is: value(is), Should: value(should), At: at}
	switch f.Kind {
	case pipeline.FactCell:
		spec := &l.schema.Columns[f.Column]
		d.Counter, d.Column, d.cell = l.schema.Counters[spec.Counter].Name, spec.Name, true
	case pipeline.FactMark:
		d.Counter, d.Column = "mark", markNames[f.Other]
	case pipeline.FactCursor:
		d.Counter, d.Column = "cursor", f.Name
	case pipeline.FactFollows:
		d.Counter = "following"
	case pipeline.FactMember:
		d.Counter, d.Column = "follower", strconv.FormatUint(f.Member.A, 10)
		if f.Column != pipeline.NoColumn {
			d.Counter = "member of " + l.schema.FullName(f.Column)
		}
		if f.Member.B != 0 {
			d.Column += "," + strconv.FormatUint(f.Member.B, 10)
		}
	case pipeline.FactPost:
		d.Counter = "listed post"
	case pipeline.FactNotice:
		d.Counter, d.Column, d.ID = "notice", f.Name, f.Other
	}
	return d
}
