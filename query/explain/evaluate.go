package explain

import (
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// count is a number as the touches go by, oldest first.
type count struct {
	number
	value int64
	known bool
	state rowStep // of the row; rowKept: not known
}

// evaluate says what each of the first n touches has changed. Of what is older
// it takes what the count was. The changes of a touch that changes nothing that
// was asked stay nil.
func (p *page) evaluate(n int, pairs *pairs, sets *sets) {
	counts := make([]count, len(p.numbers))
	for i := range counts {
		counts[i] = count{number: p.numbers[i], known: p.whole()}
		switch {
		case p.whole():
			counts[i].state = rowGone
		case p.bottom(): // of a log without its beginning: there is something before
			counts[i].state = rowMade
		}
	}
	for at := len(p.touches) - 1; at >= 0; at-- {
		t := p.touches[at]
		changes := make([]query.NumberChange, len(counts))
		some := false
		for i := range counts {
			changes[i] = counts[i].take(t, t.steps[i], pairs, sets, p.ask.Differences)
			some = some || changes[i].Touched
		}
		if at < n && some {
			t.Changes = changes
		}
	}
}

// take goes on over a touch, and says what it changed.
func (c *count) take(t *touch, steps []step, pairs *pairs, sets *sets, difference bool) query.NumberChange {
	change, row := query.NumberChange{}, t.row
	all := pipeline.Identity
	for _, s := range steps {
		delta := s.delta
		switch {
		case s.op == pipeline.OpCell:
		case s.op == pipeline.OpEmpty: // the cell is set beside it
			continue
		case s.inSet():
			did, sure := sets.counted(t, s)
			if did && row == rowKept {
				row = rowMade
			}
			if s.row {
				continue
			}
			delta, change.Unsure = s.added(did), change.Unsure || !sure
		default:
			n, sure := pairs.changed(c.graphOf(s), s, t.Position)
			if n != 0 && row == rowKept {
				row = rowMade
			}
			if s.row || c.graph.mute(s) {
				continue
			}
			delta, change.Unsure = pipeline.Add(n), change.Unsure || !sure
		}
		change.Touched = true
		all = all.Then(delta)
	}
	before := c.value
	c.value = all.Apply(before)
	if v, sets := all.Value(); sets {
		if change.N = v; difference && c.known {
			change.N = v - before
		} else {
			change.Set, change.Unsure = true, difference
		}
		c.known = true
	} else if n, adds := all.Amount(); adds {
		change.N = n
	} else if c.known {
		change.N = c.value - before
	} else {
		change.Unsure, change.N = true, all.Low-all.From // what a read says it saw
	}
	c.withDefault(row, &change)
	return change
}

// withDefault makes good that a row that does not exist is answered with the
// column's default, where that is not 0.
func (c *count) withDefault(row rowStep, change *query.NumberChange) {
	if c.spec.Default == 0 {
		return
	}
	was := c.state
	if row != rowKept {
		c.state = row
	}
	switch {
	case row == rowKept && (was != rowGone || !change.Touched):
	case row != rowMade: // a deletion; of a row that was not there, too
		*change = query.NumberChange{Touched: true, Set: true, N: c.spec.Default}
	case was == rowGone: // it begins at 0
		*change = query.NumberChange{Touched: true, Set: true, N: c.value}
	}
}
