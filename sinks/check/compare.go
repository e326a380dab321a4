package check

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

// A shard may stand a little behind the one compared before it.
const (
	behindWait   = 5 * time.Millisecond
	behindWithin = 10 * time.Second
)

// compare compares a part of what is known of ids, as of one position; of members page by
// page, in the order of ids and members.
func (p *pass) compare(ctx context.Context, ask *tier.FactsAsk) error {
	for {
		last, err := p.comparePage(ctx, ask)
		if err != nil || last == all {
			return err
		}
		ask.IDs, ask.After = ask.IDs[slices.Index(ask.IDs, last.id):], last.member
		if err := p.pace.rest(ctx, 0); err != nil {
			return err
		}
	}
}

// upTo is up to where members are compared: of the ids before this one all are, and of
// this one those up to a member.
type upTo struct {
	id     uint64
	member pipeline.Member
}

// all: there is no more.
var all = upTo{math.MaxUint64, pipeline.Member{A: math.MaxUint64, B: math.MaxUint64}}

func (u upTo) compare(v upTo) int {
	return cmp.Or(cmp.Compare(u.id, v.id), u.member.Compare(v.member))
}

// comparePage reads what is served, brings the derivation to where that stands, and
// compares. It returns up to where it has.
func (p *pass) comparePage(ctx context.Context, ask *tier.FactsAsk) (last upTo, err error) {
	at, last, err := p.served(ctx, ask)
	if err != nil {
		return all, err
	}
	err = p.to(ctx, at)
	end := all
	if err == nil {
		p.should = p.should[:0]
		var more bool
		_, more, err = p.facts(ctx, ask, func(f tier.Fact) { p.should = append(p.should, f) })
		end = p.should.end(more)
	}
	if err != nil {
		return all, underived{err}
	}
	if end.compare(last) < 0 {
		last = end
	}
	for _, side := range []*facts{&p.is, &p.should} {
		if *side = side.upTo(last); ask.Part == tier.PartRows {
			p.see(*side)
		}
	}
	p.differ(p.settle(p.is, at), p.settle(p.should, at), at, func(d Difference) { p.note(d, ask.Shard) })
	return last, nil
}

// served reads what is served, into p.is, at or after where the derivation stands. Members
// are whole up to last.
func (p *pass) served(ctx context.Context, ask *tier.FactsAsk) (at pipeline.Position, last upTo, err error) {
	for begun := time.Now(); ; {
		p.is = p.is[:0]
		var more bool
		at, more, err = p.auditor.Served.Facts(ctx, ask, func(f tier.Fact) { p.is = append(p.is, f) })
		if err != nil || at >= p.at {
			return at, p.is.end(more), err
		}
		if time.Since(begun) > behindWithin {
			return 0, all, fmt.Errorf("check: it has stood at position %d for %v, and others at %d", at, behindWithin, p.at)
		}
		if err := p.pace.rest(ctx, behindWait); err != nil {
			return 0, all, err
		}
	}
}

// facts are some, of one part. Most come as they are ordered.
type facts []tier.Fact

// end is up to where they are whole.
func (e facts) end(more bool) upTo {
	if !more || len(e) == 0 {
		return all
	}
	f := &e[len(e)-1]
	return upTo{f.ID, f.Member}
}

// upTo are the members up to one.
func (e facts) upTo(last upTo) facts {
	if last == all {
		return e
	}
	return slices.DeleteFunc(e, func(f tier.Fact) bool { return last.compare(upTo{f.ID, f.Member}) < 0 })
}

// byMatter orders facts by what they are about, which is all of them but the value.
func byMatter(a, b *tier.Fact) int {
	if c := cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID)); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(a.Column, b.Column), cmp.Compare(a.Other, b.Other), a.Member.Compare(b.Member), cmp.Compare(a.Name, b.Name))
}

// order orders them.
func (e facts) order() {
	by := func(a, b tier.Fact) int { return byMatter(&a, &b) }
	if !slices.IsSortedFunc(e, by) {
		slices.SortFunc(e, by)
	}
}

// settle leaves of facts, served or derived, what is defined, and orders them. A follow from
// before what its user has read counts from then; a cursor before it says nothing; a post
// older than the retention is listed by nobody, stored or not; columns of earlier
// configurations are not derived. Marks, follows and cursors are of one user.
func (p *pass) settle(e facts, at pipeline.Position) facts {
	e.order()
	var marks [tier.MarksCount]int64
	for i := range e {
		if e[i].Kind == tier.FactMark {
			marks[e[i].Other] = e[i].Value
		}
	}
	schema, horizon := p.auditor.Schema, pipeline.Position(0)
	if len(e) > 0 && e[0].Kind == tier.FactPost {
		horizon = p.clock.Horizon(at, p.auditor.Users.Retention)
	}
	settled := e[:0]
	for _, f := range e {
		switch f.Kind {
		case tier.FactCell:
			if spec := &schema.Columns[f.Column]; spec.Hidden && spec.Name != pipeline.ExistsColumn {
				continue
			}
		case tier.FactFollows:
			if f.Value <= max(marks[tier.MarkFeed], marks[tier.MarkAll]) {
				f.Value = 0
			}
		case tier.FactCursor:
			if !strings.Contains(f.Name, ".") && f.Value <= max(marks[tier.MarkAll], marks[tier.MarkFirst]) { // of a channel
				continue
			}
		case tier.FactPost:
			if pipeline.Position(f.Value) < horizon {
				continue
			}
		}
		settled = append(settled, f)
	}
	return settled
}

// differ returns the facts in which two sides, both ordered, do not agree.
func (p *pass) differ(is, should facts, at pipeline.Position, tell func(Difference)) {
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
			tell(p.difference(&is[0], &is[0], nil, at))
			is = is[1:]
		case order > 0:
			tell(p.difference(&should[0], nil, &should[0], at))
			should = should[1:]
		default:
			if is[0].Value != should[0].Value {
				tell(p.difference(&is[0], &is[0], &should[0], at))
			}
			is, should = is[1:], should[1:]
		}
	}
}

// difference is what two sides say of the matter of f; nil: nothing.
func (p *pass) difference(f, is, should *tier.Fact, at pipeline.Position) Difference {
	value := func(said *tier.Fact) int64 {
		switch {
		case said != nil:
			return said.Value
		case f.Kind >= tier.FactFollows:
			return -1
		}
		return 0
	}
	d := Difference{Is: value(is), Should: value(should), At: at, cell: f.Kind == tier.FactCell}
	d.Counter, d.Column, d.ID = f.Names(p.auditor.Schema)
	return d
}

// both are the ids of two sides, each of which ascends.
func both(a, b iter.Seq2[tier.Stored, error]) iter.Seq2[tier.Stored, error] {
	return func(yield func(tier.Stored, error) bool) {
		next, stop := iter.Pull2(b)
		defer stop()
		other, err, more := next()
		// before hands over those of b that are before an id, and the kinds that b has of it.
		before := func(id uint64) (kinds tier.Kinds, goesOn bool) {
			for more && (err != nil || other.ID < id) {
				if !yield(other, err) {
					return 0, false
				}
				other, err, more = next()
			}
			if more && other.ID == id {
				kinds = other.Kinds
				other, err, more = next()
			}
			return kinds, true
		}
		for s, fault := range a {
			kinds, goesOn := before(s.ID)
			if s.Kinds |= kinds; !goesOn || !yield(s, fault) {
				return
			}
		}
		for more && yield(other, err) {
			other, err, more = next()
		}
	}
}
