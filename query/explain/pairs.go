package explain

import (
	"context"

	"github.com/tidemark-io/tidemark/pipeline"
)

// pairs knows which follows there were between an id and others, newest first:
// whether a follow changed anything depends on the last event between the two.
type pairs struct {
	events map[edge][]followed
	whole  bool // where there is none, there was none
}

// edge is one direction between the id and another.
type edge struct {
	other uint64
	in    bool // from the other to the id
}

type followed struct {
	position pipeline.Position
	on       bool
}

// before says how an edge was before a position.
func (p *pairs) before(e edge, position pipeline.Position) (on, sure bool) {
	for _, f := range p.events[e] {
		if f.position < position {
			return f.on, true
		}
	}
	return false, p.whole
}

// changed is what a follow, or its end, added to a column.
func (p *pairs) changed(g graphColumn, s step, position pipeline.Position) (n int64, sure bool) {
	in, on := s.follows()
	if g.rises && !on {
		return 0, true
	}
	was, sure := p.before(edge{s.other, in}, position)
	if !sure {
		was = !on // as the event says
	}
	if was == on {
		return 0, sure
	}
	if g.friend {
		back, known := p.before(edge{s.other, !in}, position)
		sure = sure && known
		if !back {
			return 0, sure
		}
	}
	if on {
		return 1, sure
	}
	return -1, sure
}

// pairs finds, for each follow among the first of the touches, the events between
// the same two that say what was before: first among all touches, then further
// back in what has both ids.
func (p *page) pairs(ctx context.Context, depend int) (*pairs, error) {
	all := &pairs{events: make(map[edge][]followed)}
	open := make(map[edge]bool)
	for at, t := range p.touches { // newest first
		for i := range t.steps {
			for _, s := range t.steps[i] {
				if s.op != pipeline.OpCell && !s.inSet() {
					all.note(open, at < depend, t.Position, s, p.numbers[i].graphOf(s))
				}
			}
		}
	}
	if len(open) == 0 || p.bottom() {
		all.whole = p.whole()
		return all, nil
	}
	return all, p.further(ctx, all, open)
}

// note takes in an event, older than those before. It says what was before them; what
// was before itself is open, if that is wanted.
func (p *pairs) note(open map[edge]bool, tell bool, at pipeline.Position, s step, g graphColumn) {
	in, on := s.follows()
	e := edge{s.other, in}
	if list := p.events[e]; len(list) > 0 && list[len(list)-1].position == at {
		return // for another number
	}
	p.events[e] = append(p.events[e], followed{at, on})
	delete(open, e)
	if tell {
		open[e] = true
		if g.friend {
			open[edge{s.other, !in}] = true
		}
	}
}

// further looks for what is open in what is older than the touches.
func (p *page) further(ctx context.Context, all *pairs, open map[edge]bool) error {
	p.extend(ctx, 1)
	others := make(map[uint64]bool)
	for e := range open {
		others[e.other] = true
	}
	any := func(line []byte) bool {
		return p.mention.may(line) && (escapes(line) || !eachNumber(line, func(u uint64) bool { return !others[u] }))
	}
	found := make(map[edge]followed) // in the stretch that is read: the last one stays
	close := func() bool {
		for e, f := range found {
			all.events[e] = append(all.events[e], f)
			delete(open, e)
		}
		clear(found)
		for other := range others {
			if !open[edge{other, true}] && !open[edge{other, false}] {
				delete(others, other)
			}
		}
		return len(open) == 0
	}
	may := func(o *opened) (bool, error) {
		if has, err := o.has(p.ask.ID); !has || err != nil || len(others) > othersMax {
			return has, err
		}
		for other := range others {
			if has, err := o.has(other); has || err != nil {
				return has, err
			}
		}
		return false, nil
	}
	visit := func(m *pipeline.Message) (some bool) {
		if !p.mention.may(m.Data) {
			return false
		}
		p.tracer.Trace(m, any, func(t *pipeline.Traced) {
			section := t.Changes(t.Ids)
			for change, ok := section.Next(); ok; change, ok = section.Next() {
				s := stepOf(&change, &section.Operation)
				if change.ID != p.ask.ID || !anyGraph.hears(s) {
					continue
				}
				in, on := s.follows()
				if e := (edge{s.other, in}); open[e] {
					found[e] = followed{t.Position, on}
					some = true
				}
			}
		})
		return some
	}
	reached, err := p.back(ctx, p.reached-1, quest{may, visit, func(first uint64) (uint64, bool) { return first, close() }})
	close()
	all.whole = reached <= p.extent.First && p.extent.First <= 1
	if ctx.Err() != nil { // what was not found is not sure
		return nil
	}
	return err
}

// othersMax is how many are asked of a filter: to read the stretch costs as much
// as to ask for more.
const othersMax = 1024

// anyGraph hears every follow.
var anyGraph = graphColumn{out: true, in: true}
