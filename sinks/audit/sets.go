package audit

import (
	"context"
	"maps"
	"math"
	"sort"

	"github.com/tidemark-io/tidemark/pipeline"
)

// setOf says of which row a set is.
type setOf struct {
	column pipeline.Column
	id     uint64
}

// set is the members of one, each with the log second in which it was put in.
type set struct {
	since map[pipeline.Member]int64
	many  int // what is forgotten is looked for when it has so many
}

// What sets take, measured roughly, and when the first is looked over.
const (
	setBytes    = 128
	memberBytes = 56
	membersMany = 64
)

func (s *set) bytes() int { return setBytes + memberBytes*len(s.since) }

// seconds are the log seconds of a window's positions.
type seconds struct {
	before int64 // of what comes before the first mark
	marks  []pipeline.TimeMark
}

// at is the second of a position. Log time never goes back.
func (s *seconds) at(p pipeline.Position) int64 {
	n := sort.Search(len(s.marks), func(i int) bool { return s.marks[i].Position > p })
	if n == 0 {
		return s.before
	}
	return max(s.before, s.marks[n-1].Second)
}

// next goes on behind the window, to one with these marks.
func (s *seconds) next(marks []pipeline.TimeMark) {
	*s = seconds{s.at(pipeline.PositionMax), marks}
}

// member does an operation on a set: "Such a rule adds for what is not yet in the key's
// set of those fields' values and puts it in; what is in the set adds nothing; delete
// takes away what is there and nothing else." With `keep` a member is forgotten after
// that time since it was put in; what it counted stays.
func (l *ledger) member(o *pipeline.Operation) {
	if o.Column >= len(l.columns) || l.columns[o.Column] < 0 {
		return
	}
	of, now := setOf{pipeline.Column(l.columns[o.Column]), o.ID}, l.seconds.at(o.Position)
	spec := &l.schema.Columns[of.column]
	forgotten := int64(math.MinInt64) // before this second
	if spec.Set.Keep > 0 {
		forgotten = now - spec.Set.Keep
	}
	sets := l.of(o.ID).sets
	in := sets[of]
	since, there := int64(0), false
	if in != nil {
		since, there = in.since[o.Member]
		there = there && since >= forgotten
	}
	by := o.By
	switch {
	case o.Op == pipeline.OpEmpty:
		if in != nil {
			l.bytes -= in.bytes()
			delete(sets, of)
		}
		return
	case there == (o.Op == pipeline.OpAdd):
		return
	case there:
		delete(in.since, o.Member)
		l.bytes -= memberBytes
		by = -by
	default:
		l.remember(of, o.Member, now, forgotten)
	}
	l.change(int(of.column), o.ID, pipeline.Add(by))
	l.change(l.exists[spec.Counter], o.ID, pipeline.Set(1))
}

// remember puts a member in. What was forgotten goes once there may be much of it.
func (l *ledger) remember(of setOf, m pipeline.Member, second, forgotten int64) {
	part := l.of(of.id)
	s := part.sets[of]
	if s == nil {
		s = &set{since: map[pipeline.Member]int64{}, many: membersMany}
		put(&part.sets, of, s)
		l.bytes += setBytes
	}
	was := len(s.since)
	s.since[m] = second
	if len(s.since) >= s.many {
		maps.DeleteFunc(s.since, func(_ pipeline.Member, since int64) bool { return since < forgotten })
		s.many = max(membersMany, 2*len(s.since))
	}
	l.bytes += memberBytes * (len(s.since) - was)
}

// forgot says whether a member that was put in in a second is forgotten where the ledger
// stands.
func (l *ledger) forgot(column pipeline.Column, since int64) bool {
	keep := l.schema.Columns[column].Set.Keep
	return keep > 0 && l.seconds.at(pipeline.PositionMax)-since > keep
}

// sets compares the sets of ids, column by column: of those of which the log or a row
// says that there is anything, or of all.
func (p *pass) sets(ctx context.Context, s pipeline.Shard, ids []uint64, all bool) error {
	for _, column := range p.schema.Sets() {
		var some []uint64
		for _, id := range ids {
			of := setOf{column, id}
			if all || p.inSets[of] || p.parts[s].sets[of] != nil {
				some = append(some, id)
			}
		}
		if err := p.pages(ctx, &pipeline.FactsAsk{Part: pipeline.PartMembers, Shard: s, Column: column, IDs: some, Limit: page}); err != nil {
			return err
		}
	}
	return nil
}

// remembered visits the members that a set has where the ledger stands, with the values
// of their facts.
func (l *ledger) remembered(in *set, column pipeline.Column, visit func(m pipeline.Member, value int64)) {
	if in == nil {
		return
	}
	for m, since := range in.since {
		switch {
		case l.schema.Columns[column].Set.Keep == 0:
			visit(m, 1)
		case !l.forgot(column, since):
			visit(m, since)
		}
	}
}
