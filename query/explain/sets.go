package explain

import (
	"context"
	"maps"
	"math"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Whether an event's member was in the set of the row already depends on the last event
// that put it in or took it out, and on whether the row was deleted since.
//
//	newest ◄───────────────────────────────────────────── oldest
//	 +1? of member 7 │ … │ row deleted: all gone │ … │ +1 of member 7
//
// Where a set keeps members for some time, it depends on all events of the member that
// follow on one another within that time.

// memberOf is a member of one of the row's sets.
type memberOf struct {
	column pipeline.Column
	member pipeline.Member
}

// put is an event that puts a member in, or takes it out.
type put struct {
	position pipeline.Position
	second   int64 // log time
	in       bool
}

// sets knows what came to members of the row's sets, newest first.
type sets struct {
	events  map[memberOf][]put
	emptied map[pipeline.Column][]pipeline.Position
	specs   map[pipeline.Column]pipeline.SetSpec
	whole   bool  // what is not known is not there
	horizon int64 // what is not known has no later log second

	asked []asked // what a page says
}

// asked is an event of which it must be found out whether the member was there.
type asked struct {
	memberOf
	position pipeline.Position
	second   int64
}

// inSet says whether the step is an operation on a set.
func (s step) inSet() bool { return s.op.OfSet() }

// was says whether a member was in the set before an event, and whether that is known.
func (s *sets) was(of memberOf, at pipeline.Position, second int64) (there, sure bool) {
	since := pipeline.Position(0) // of the last time that the set was emptied
	for _, p := range s.emptied[of.column] {
		if p < at {
			since = p
			break
		}
	}
	st := membership{keep: s.specs[of.column].Keep, known: s.whole || since > 0}
	for _, e := range slices.Backward(s.events[of]) { // oldest first
		if e.position >= at {
			break
		}
		if e.position > since {
			st.pass(e.second, s.horizon)
			st.put(e)
		}
	}
	st.pass(second, s.horizon)
	return st.there, st.known
}

// membership is what follows from events of one member, oldest first.
type membership struct {
	keep  int64
	known bool
	some  bool  // there was an event
	there bool  // as far as is known
	since int64 // put in then; where that is not known, not later
}

// pass forgets the member at a second, if it is to be. What nothing is known of was put
// in at the horizon, at the latest.
func (m *membership) pass(second, horizon int64) {
	since := m.since
	switch {
	case m.keep == 0:
		return
	case !m.some && !m.known:
		since = horizon
	case !m.there:
		return
	}
	if second-since > m.keep {
		m.there, m.known = false, true
	}
}

// put goes on over an event.
func (m *membership) put(e put) {
	switch {
	case !e.in:
		m.there, m.known = false, true
	case m.keep == 0:
		m.there, m.known = true, true
	case !m.there || !m.known:
		m.since, m.there = e.second, true
	}
	m.some = true
}

// counted says whether an operation changed the set.
func (s *sets) counted(t *touch, of step) (did, sure bool) {
	there, sure := s.was(memberOf{of.column, of.member}, t.Position, t.second)
	if !sure { // as the event says
		return true, false
	}
	return there == (of.op == pipeline.OpTake), true
}

// added is what an operation adds to the cell.
func (s step) added(did bool) pipeline.Delta {
	switch {
	case !did:
		return pipeline.Identity
	case s.op == pipeline.OpTake:
		return pipeline.Add(-s.by)
	}
	return pipeline.Add(s.by)
}

// note takes in an operation that is older than those before.
func (s *sets) note(of step, at pipeline.Position, second int64) {
	if of.op == pipeline.OpEmpty {
		if list := s.emptied[of.column]; len(list) == 0 || list[len(list)-1] != at {
			s.emptied[of.column] = append(list, at)
		}
		return
	}
	m := memberOf{of.column, of.member}
	if list := s.events[m]; len(list) == 0 || list[len(list)-1].position != at { // else it is for another number
		s.events[m] = append(list, put{at, second, of.op == pipeline.OpAdd})
	}
}

// sets finds what the first of the touches depend on: first among all touches, then
// further back.
func (p *page) sets(ctx context.Context, depend int) (*sets, error) {
	s := &sets{
		events: make(map[memberOf][]put), emptied: make(map[pipeline.Column][]pipeline.Position), specs: make(map[pipeline.Column]pipeline.SetSpec),
		whole: p.whole(), horizon: p.horizon,
	}
	for i := range p.numbers {
		maps.Copy(s.specs, p.numbers[i].sets)
	}
	if len(s.specs) == 0 {
		return s, nil
	}
	second := int64(0)
	for _, t := range slices.Backward(p.touches) { // log time never goes back
		second = max(second, t.Time/1000)
		t.second = second
	}
	for at, t := range p.touches {
		s.take(t, at < depend)
	}
	if l := s.lost(); p.bottom() || len(l.open) == 0 {
		return s, nil
	}
	return s, p.furtherSets(ctx, s)
}

// take takes in a touch that is older than those before. What it says is asked, or only
// what it says of others.
func (s *sets) take(t *touch, ask bool) {
	for i := range t.steps {
		for _, step := range t.steps[i] {
			if !step.inSet() {
				continue
			}
			s.note(step, t.Position, t.second)
			if ask && step.op != pipeline.OpEmpty {
				s.asked = append(s.asked, asked{memberOf{step.column, step.member}, t.Position, t.second})
			}
		}
	}
}

// furtherSets looks for what is open in what is older than the touches.
func (p *page) furtherSets(ctx context.Context, s *sets) error {
	p.extend(ctx, 1)
	type found struct {
		step
		position pipeline.Position
		second   int64
	}
	var finds []found // in the stretch that is read, oldest first
	oldest := int64(math.MaxInt64)
	lost := s.lost()
	close := func() bool {
		for _, f := range slices.Backward(finds) {
			s.note(f.step, f.position, f.second)
		}
		finds = finds[:0]
		s.horizon, oldest = min(s.horizon, oldest), math.MaxInt64
		lost = s.lost()
		return len(lost.open) == 0
	}
	may := func(o *opened) (bool, error) {
		if has, err := o.has(p.ask.ID); !has || err != nil {
			return has, err
		}
		return lost.may(o)
	}
	visit := func(m *pipeline.Message) (some bool) {
		oldest = min(oldest, m.Time/1000)
		if !p.mention.may(m.Data) || !deleteIn(m.Data) && !lost.in(m.Data) {
			return false
		}
		had := len(finds)
		p.tracer.Trace(m, p.mention.may, func(t *pipeline.Traced) {
			for _, step := range lost.steps(t, p.ask.ID) {
				finds = append(finds, found{step, t.Position, m.Time / 1000})
			}
		})
		return len(finds) > had
	}
	reached, err := p.back(ctx, p.reached-1, quest{may, visit, func(first uint64) (uint64, bool) { return first, close() }})
	close()
	s.whole = reached <= p.extent.First && p.extent.First <= 1
	if ctx.Err() != nil { // what was not found is not sure
		return nil
	}
	return err
}

// lost is what is looked for.
type lost struct {
	open map[memberOf]bool // members of which something that is asked is not known
	ids  map[uint64]bool   // that stand in their events
	any  bool              // there are too many, or tokens of which only the digest is known
	all  [][]uint64        // of each, those that stand there together
}

func (s *sets) lost() (l lost) {
	l = lost{open: make(map[memberOf]bool), ids: make(map[uint64]bool)}
	for _, a := range s.asked {
		if _, sure := s.was(a.memberOf, a.position, a.second); !sure {
			l.open[a.memberOf] = true
		}
	}
	for of := range l.open {
		ids := []uint64{of.member.A}
		switch {
		case of.member.B == 0:
		case s.specs[of.column].Members == pipeline.MembersPairs:
			ids = append(ids, of.member.B)
		default:
			l.any = true
		}
		l.all = append(l.all, ids)
		for _, id := range ids {
			l.ids[id] = true
		}
	}
	l.any = l.any || len(l.open) > othersMax
	return l
}

// steps are what an event does to the members, and to all of a set.
func (l *lost) steps(t *pipeline.Traced, id uint64) (steps []step) {
	section := t.Changes(t.Ids)
	for change, ok := section.Next(); ok; change, ok = section.Next() {
		step := stepOf(&change, &section.Operation)
		if change.ID == id && step.inSet() && (step.op == pipeline.OpEmpty || l.open[memberOf{step.column, step.member}]) {
			steps = append(steps, step)
		}
	}
	return steps
}

// may asks a filter for events of the members, and for rows that were deleted.
func (l *lost) may(o *opened) (bool, error) {
	if l.any {
		return true, nil
	}
	if has, err := o.has(deleteKey); has || err != nil {
		return has, err
	}
	for _, ids := range l.all {
		if has, err := hasAll(ids...)(o); has || err != nil {
			return has, err
		}
	}
	return false, nil
}

// in says whether a text may have an event of one of the members.
func (l *lost) in(text []byte) bool {
	return l.any || escapes(text) || !eachNumber(text, func(u uint64) bool { return !l.ids[u] })
}
