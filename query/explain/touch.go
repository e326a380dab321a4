package explain

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// number is one of those to explain: a column of a row.
type number struct {
	column pipeline.Column
	spec   *pipeline.ColumnSpec
	exists pipeline.Column // of its counter; itself where there is none
	graph  graphColumn
	row    graphColumn // which follows make its row, where the column has a default

	// Sets that bear on it: its own and, where it has a default, all of its counter,
	// which make the row.
	sets map[pipeline.Column]pipeline.SetSpec
}

// graphColumn says how the follow graph changes a column.
type graphColumn struct {
	out, in, friend bool // by follows of the id, by follows from others, by both
	rises           bool // it only does: unfollows leave it alone
}

var graphColumns = map[string]graphColumn{
	"user.following":  {out: true},
	"user.follower":   {in: true},
	"user.friend":     {out: true, in: true, friend: true},
	"unread.follower": {in: true, rises: true},
}

func numberOf(schema *pipeline.Schema, column pipeline.Column) number {
	n := number{column: column, spec: &schema.Columns[column], exists: column, graph: graphColumns[schema.FullName(column)]}
	counter := schema.Counters[n.spec.Counter].Name
	if exists, ok := schema.Find(counter + "." + pipeline.ExistsColumn); ok {
		n.exists = exists
	}
	for name, graph := range graphColumns {
		if _, ok := schema.Find(name); ok && n.spec.Default != 0 && strings.HasPrefix(name, counter+".") {
			n.row.out, n.row.in = n.row.out || graph.out, n.row.in || graph.in
			n.row.rises = graph.rises
		}
	}
	for _, c := range schema.Sets() {
		if spec := &schema.Columns[c]; c == column || n.spec.Default != 0 && spec.Counter == n.spec.Counter {
			if n.sets == nil {
				n.sets = make(map[pipeline.Column]pipeline.SetSpec)
			}
			n.sets[c] = spec.Set
		}
	}
	return n
}

// graphOf is what a step's follow is about.
func (n *number) graphOf(s step) graphColumn {
	if s.row {
		return n.row
	}
	return n.graph
}

// touch is an event that changes one of the numbers, or may.
type touch struct {
	query.ExplainedEvent
	steps [][]step // by number, in order
	row   rowStep  // where a number has a default

	second int64 // log time, where there are sets
}

// step is a part of what an event does to a number: a change of the cell, or a
// follow or its end, or a member that comes or goes, of which it must be found out
// whether it changes anything.
type step struct {
	delta pipeline.Delta
	op    pipeline.Op // pipeline.OpCell: delta
	other uint64
	row   bool // it bears on whether the row exists alone

	column pipeline.Column // of an operation on a set
	member pipeline.Member
	by     int64
}

// stepOf is a change that is an operation.
func stepOf(c *pipeline.Change, o *pipeline.Operation) step {
	if c.Op < pipeline.OpAdd {
		return step{op: c.Op, other: o.Other}
	}
	return step{op: c.Op, column: pipeline.Column(o.Column), member: o.Member, by: o.By}
}

// rowStep says whether an event makes or deletes the row.
type rowStep int8

const (
	rowKept rowStep = iota
	rowMade
	rowGone
)

// follows says of which direction an operation is, and whether it is a follow.
func (s step) follows() (in, on bool) {
	return s.op == pipeline.OpFollowed || s.op == pipeline.OpUnfollowed, s.op == pipeline.OpFollow || s.op == pipeline.OpFollowed
}

// touchOf is what an event does to the numbers of an id; nil: nothing.
func touchOf(t *pipeline.Traced, id uint64, numbers []number, time int64) *touch {
	var touched *touch
	at := func(i int) *[]step {
		if touched == nil {
			touched = &touch{steps: make([][]step, len(numbers))}
		}
		return &touched.steps[i]
	}
	section := t.Changes(t.Ids)
	for change, ok := section.Next(); ok; change, ok = section.Next() {
		if change.ID != id {
			continue
		}
		for i := range numbers {
			n := &numbers[i]
			switch {
			case change.Op.OfSet():
				s := stepOf(&change, &section.Operation)
				s.row = s.column != n.column
				if _, bears := n.sets[s.column]; bears && !touched.has(i, s) {
					steps := at(i)
					*steps = append(*steps, s)
				}
			case change.Op != pipeline.OpCell:
				s := stepOf(&change, &section.Operation)
				s.row = !n.graph.hears(s)
				if !s.row || n.row.hears(s) {
					steps := at(i)
					*steps = append(*steps, s)
				}
			case change.Column == int(n.column):
				steps := at(i)
				*steps = append(*steps, step{delta: change.Delta})
			case change.Column == int(n.exists):
				at(i)
				if touched.row = rowMade; change.Delta == pipeline.Set(0) {
					touched.row = rowGone
				}
			}
		}
	}
	if touched != nil {
		touched.Position, touched.Time, touched.Type = t.Position, time, t.Type
		if touched.Bytes = len(t.Line); touched.shown() > 0 {
			touched.Body = bytes.Clone(t.Line)
		}
	}
	return touched
}

// has says whether the event has a step already: two rules may name one member.
func (t *touch) has(number int, s step) bool {
	return t != nil && slices.Contains(t.steps[number], s)
}

// shown is how many bytes of the body a page shows: all, or none where it is too
// long.
func (t *touch) shown() int {
	if t.Bytes > query.ExplainBodyMax {
		return 0
	}
	return t.Bytes
}

// hears says whether an operation bears on the column.
func (g graphColumn) hears(s step) bool {
	switch s.op {
	case pipeline.OpFollow, pipeline.OpUnfollow:
		return g.out
	case pipeline.OpFollowed, pipeline.OpUnfollowed:
		return g.in
	}
	return false
}

// mute says of one that does that it never changes the column, but shows what was
// before others.
func (g graphColumn) mute(s step) bool {
	_, on := s.follows()
	return s.op != pipeline.OpCell && g.rises && !on
}
