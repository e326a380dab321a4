package check

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// explanation is one page of an explanation in work.
//
//	touches[0] newest ─► page, limit at most ─► older ones that set a number ─► context
//
// All touches are replayed, the oldest first, by a private shard of the code that serves:
// what an event changed is the number after it less the number before. A number that begins
// anywhere will do for what adds. What does not is replayed from the last event that set the
// number. Whether an event's member was in its set, or two users followed each other, says
// the context: the last events of the same member before the touches.
type explanation struct {
	search
	ask    *query.ExplainAsk
	schema *pipeline.Schema // whose columns those of events are
	users  shard.Limits
	tracer pipeline.Tracer
	below  pipeline.Position // nothing at or after this is looked at

	touches []*touch // newest first
	reached uint64   // all messages from here on have been seen, as far as below
	bytes   int      // of the bodies of touches
}

const (
	// bodiesMax is when a page ends because of its bytes: it must fit a message.
	bodiesMax = 256 << 10
	// contextMax bounds the older events that a page's changes depend on.
	contextMax = 65_536
)

// touch is an event that changes one of the numbers, or may.
type touch struct {
	query.ExplainedEvent
	section []byte // what it does to the id
	numbers []numberTouch
	row     rowStep
	unsure  bool // what it depends on is not known
}

// numberTouch is what an event does to a number.
type numberTouch struct {
	touched bool
	delta   pipeline.Delta // of the cell, without what depends on a set or the graph
	says    int64          // what operations on sets and the graph say that they add

	// Of a number that counts items:
	ofItems bool
	readAll bool // a read has all of them be read
	listed  bool // what changed depends on what the list has
}

// rowStep says whether an event makes or deletes the row.
type rowStep int8

const (
	rowKept rowStep = iota
	rowMade
	rowGone
)

// shown is how many bytes of the body a page shows: all, or none where it is too
// long.
func (t *touch) shown() int {
	if t.Bytes > query.ExplainBodyMax {
		return 0
	}
	return t.Bytes
}

func (p *explanation) make(ctx context.Context, out *query.Explanation) error {
	*out = query.Explanation{}
	if p.extent.First > 1 {
		out.Base = pipeline.EndOf(p.extent.First - 1)
	}
	from := min(p.extent.Last, (p.below-1).Sequence()) + 1
	if p.reached = from; len(p.ask.Columns) == 0 { // sets alone
		return p.join(ctx, out)
	}
	limit := p.ask.Limit
	// One more than asked shows whether there are more, and what was before.
	err := p.gather(ctx, func() bool { return len(p.touches) > limit || p.bytes > bodiesMax })
	if err != nil || ctx.Err() != nil && p.reached == from {
		return errors.Join(err, ctx.Err())
	}
	n := p.fitting(limit)
	switch {
	case n < len(p.touches):
		out.Next = p.touches[n-1].Position
	case !p.bottom(): // it is late
		out.Next = pipeline.At(p.reached, 0)
	}
	if err := p.anchor(ctx, n); err != nil {
		return err
	}
	context, err := p.context(ctx)
	if err == nil {
		err = p.replay(context, n)
	}
	if err != nil {
		return err
	}
	for _, t := range p.touches[:n] {
		if t.Changes != nil {
			out.Events = append(out.Events, t.ExplainedEvent)
		}
	}
	if len(p.ask.Members) == 0 && p.ask.Upto == 0 {
		return nil
	}
	return p.join(ctx, out)
}

// bottom says that the log has been seen down to its beginning.
func (p *explanation) bottom() bool { return p.reached <= p.extent.First }

// whole says that it is the beginning of all.
func (p *explanation) whole() bool { return p.bottom() && p.extent.First <= 1 }

// fitting is how many touches go on a page: by their number and their bytes, but
// one at least.
func (p *explanation) fitting(limit int) (n int) {
	for bytes := 0; n < min(limit, len(p.touches)); n++ {
		if bytes += p.touches[n].shown(); bytes > bodiesMax && n > 0 {
			break
		}
	}
	return n
}

// gather goes on back through the log until it is done, or late.
func (p *explanation) gather(ctx context.Context, done func() bool) error {
	if p.bottom() {
		return nil
	}
	keys := []key{keyOf(p.ask.ID)}
	reached, err := p.back(ctx, p.reached, quest{
		keys: func() []key { return keys },
		visit: func(m *pipeline.Message) (some bool) {
			var of []*touch
			p.tracer.Trace(m, p.mention.in, func(t *pipeline.Traced) {
				if touched := p.touch(t, m.Time); touched != nil && t.Position < p.below {
					of = append(of, touched)
				}
			})
			for _, t := range slices.Backward(of) {
				p.add(t)
			}
			return len(of) > 0
		},
		done: done,
	})
	p.reached = reached
	if ctx.Err() != nil { // what was found stands
		return nil
	}
	return err
}

// add adds a touch that is older than those before. The page has the bodies of its first
// ones alone.
func (p *explanation) add(t *touch) {
	if len(p.touches) > p.ask.Limit || p.bytes > bodiesMax {
		t.Body = nil
	}
	p.bytes += t.shown()
	p.touches = append(p.touches, t)
}

// touch is what an event does to the numbers of the id; nil: nothing.
func (p *explanation) touch(t *pipeline.Traced, time int64) *touch {
	out := &touch{numbers: make([]numberTouch, len(p.ask.Columns))}
	for i := range out.numbers {
		out.numbers[i].delta = pipeline.Identity
	}
	some := false
	section := t.Changes(t.Ids)
	for c, ok := section.Next(); ok; c, ok = section.Next() {
		if c.ID != p.ask.ID {
			continue
		}
		out.section = appendChange(out.section, t.Position-1, &c, &section.Operation)
		columns := shard.Columns(p.schema, &c, &section.Operation)
		undone := columns // what a later event of the same two may change again
		if c.Op == pipeline.OpUnfollowed {
			undone = shard.Columns(p.schema, &pipeline.Change{Op: pipeline.OpFollowed}, nil)
		}
		for i, column := range p.ask.Columns {
			n, spec := &out.numbers[i], &p.schema.Columns[column]
			if slices.Contains(columns, column) {
				n.touched, some = true, true
				n.take(&c, &section.Operation, spec.Set.Items > 0)
			}
			if some = some || slices.Contains(undone, column); spec.Default == 0 {
				continue
			}
			for _, of := range undone { // its row may be made or go
				if p.schema.Columns[of].Counter != spec.Counter {
					continue
				}
				some = true
				if p.schema.Columns[of].Name == pipeline.ExistsColumn {
					if out.row = rowMade; c.Delta == pipeline.Set(0) {
						out.row = rowGone
					}
				}
			}
		}
	}
	if !some {
		return nil
	}
	out.Position, out.Time, out.Type = t.Position, time, t.Type
	if out.Bytes = len(t.Line); out.shown() > 0 {
		out.Body = bytes.Clone(t.Line)
	}
	return out
}

// take takes in a change of the number; of items says that it counts those of a list.
func (n *numberTouch) take(c *pipeline.Change, o *pipeline.Operation, ofItems bool) {
	n.ofItems = ofItems
	switch c.Op {
	case pipeline.OpCell:
		n.delta = n.delta.Then(c.Delta)
	case pipeline.OpAdd:
		n.says += o.By
	case pipeline.OpTake:
		n.says -= o.By
	case pipeline.OpFollow, pipeline.OpFollowed, pipeline.OpItem:
		n.says++
	case pipeline.OpRead:
		all := o.Mark == o.Position && len(o.Items) == 0 && !slices.ContainsFunc(o.Kinds, func(k pipeline.Kind) bool { return k.Seen != pipeline.SeenAll })
		if n.readAll, n.listed = all, !all; all {
			n.delta = pipeline.Set(0)
		}
	default:
		n.says--
		n.listed = ofItems
	}
}

// appendChange appends a change to a section of a window from a position on.
func appendChange(section []byte, from pipeline.Position, c *pipeline.Change, o *pipeline.Operation) []byte {
	if c.Op == pipeline.OpCell {
		return pipeline.AppendChange(section, c.Column, c.ID, c.Delta)
	}
	return pipeline.AppendOperation(section, from, o)
}

// extend gives what is to come a share of the time that is left.
func (p *explanation) extend(ctx context.Context, share time.Duration) {
	if end, ok := ctx.Deadline(); ok {
		p.soft = time.Now().Add(time.Until(end) / share)
	} else {
		p.soft = time.Now().Add(time.Hour)
	}
}

// anchor gathers on until the changes of the first n touches are known: until there is
// one before them that does not depend on what was before it itself. What is not needed
// for that is let go of.
func (p *explanation) anchor(ctx context.Context, n int) error {
	depend, anchored := p.dependOn(n)
	if !anchored {
		most, looked := n+contextMax, len(p.touches)
		p.extend(ctx, 2)
		err := p.gather(ctx, func() bool {
			if len(p.touches) > looked {
				looked = len(p.touches)
				depend, anchored = p.dependOn(n)
			}
			return anchored || len(p.touches) > most
		})
		if err != nil {
			return err
		}
	}
	if anchored && depend < len(p.touches) {
		p.reached = p.touches[depend].Position.Sequence() + 1 // from there on it is context
		p.touches = p.touches[:depend:depend]
	}
	return nil
}

// dependOn is how many touches the changes of the first n follow from, and
// whether that is enough.
func (p *explanation) dependOn(n int) (depend int, enough bool) {
	depend = n
	for i, column := range p.ask.Columns {
		var known []func(*touch) bool
		if slices.ContainsFunc(p.touches[:n], func(t *touch) bool { return !t.numbers[i].plain(p.ask.Differences) }) {
			known = append(known, func(t *touch) bool { return t.numbers[i].begins() })
		}
		if p.schema.Columns[column].Default != 0 { // was there a row?
			known = append(known, func(t *touch) bool { return t.row != rowKept })
		}
		for _, is := range known {
			at := slices.IndexFunc(p.touches[n:], is)
			if at < 0 {
				return len(p.touches), false
			}
			depend = max(depend, n+at+1)
		}
	}
	return depend, true
}

// plain says that a change follows from the event itself: it adds, or it sets the
// cell and no difference is wanted.
func (n *numberTouch) plain(differences bool) bool {
	if n.listed { // it depends on what the list has, and on what of that is read
		return false
	}
	_, adds := n.delta.Amount()
	return adds || n.sets() && !differences
}

// begins says whether neither the cell nor what of a list is read depends on what was before.
func (n *numberTouch) begins() bool { return n.sets() && (n.readAll || !n.ofItems) }

// sets says whether the cell is set, whatever it was.
func (n *numberTouch) sets() bool {
	_, sets := n.delta.Value()
	return sets
}

// together is an id together with another one, or with a member of one of its sets.
type together struct {
	column pipeline.Column // of the set; NoColumn: of the graph
	in     bool            // of the graph: from the other one
	member pipeline.Member
}

// togetherOf is what an operation is about; false: it is about something else.
func togetherOf(c *pipeline.Change, o *pipeline.Operation) (of together, is bool) {
	switch c.Op {
	case pipeline.OpAdd, pipeline.OpTake, pipeline.OpItem, pipeline.OpWithdrawn:
		return together{column: pipeline.Column(o.Column), member: o.Member}, o.Member.A != 0
	case pipeline.OpFollow, pipeline.OpUnfollow:
		return together{pipeline.NoColumn, false, pipeline.Member{A: o.Other}}, true
	case pipeline.OpFollowed, pipeline.OpUnfollowed:
		return together{pipeline.NoColumn, true, pipeline.Member{A: o.Other}}, true
	}
	return of, false
}

// depends are what the changes of touches depend on besides the touches, each with the log
// second of the oldest event of it that is known.
func (p *explanation) depends() (on map[together]int64) {
	on = map[together]int64{}
	friend, _ := p.schema.Find("user.friend")
	friends := slices.Contains(p.ask.Columns, friend)
	for _, t := range p.touches {
		t.each(func(of together, emptied bool) {
			if emptied {
				return
			}
			if on[of] = t.Time / 1000; friends && of.column == pipeline.NoColumn {
				of.in = !of.in
				on[of] = t.Time / 1000
			}
		})
	}
	return on
}

// each visits what a touch is about, and the columns whose sets it empties.
func (t *touch) each(visit func(of together, emptied bool)) {
	section := pipeline.ReadSection(t.section, t.Position-1)
	for c, ok := section.Next(); ok; c, ok = section.Next() {
		if of, is := togetherOf(&c, &section.Operation); is {
			visit(of, false)
		} else if c.Op == pipeline.OpEmpty {
			visit(together{column: pipeline.Column(section.Operation.Column)}, true)
		}
	}
}

// keep is for how long a member is remembered, seconds; 0: for ever.
func (p *explanation) keep(of together) int64 {
	if of.column == pipeline.NoColumn {
		return 0
	}
	return p.schema.Columns[of.column].Set.Keep
}

// decide takes out of what is open what an event decides that is older than those before.
// Where members are forgotten it decides nothing: the member may have been there before.
func (p *explanation) decide(on map[together]int64, t *touch) {
	t.each(func(of together, emptied bool) {
		switch _, open := on[of]; {
		case emptied:
			maps.DeleteFunc(on, func(o together, _ int64) bool { return o.column == of.column })
		case p.keep(of) == 0:
			delete(on, of)
		case open:
			on[of] = t.Time / 1000
		}
	})
}

// context finds the events before the touches that say what was together then, the newest
// first. A touch of which that is not found in time, or is no longer in the log, is unsure.
func (p *explanation) context(ctx context.Context) (found []*touch, err error) {
	on := p.depends()
	if len(on) == 0 || p.whole() {
		return nil, nil
	}
	p.extend(ctx, 1)
	id, before := keyOf(p.ask.ID), p.touches[len(p.touches)-1].Position
	reached, err := p.back(ctx, p.reached, quest{
		keys: func() []key {
			keys := []key{id.emptied()}
			for of := range on {
				keys = append(keys, id.with(of.member.A, of.member.B))
			}
			return keys
		},
		visit: func(m *pipeline.Message) bool {
			had := len(found)
			p.tracer.Trace(m, p.mention.in, func(t *pipeline.Traced) {
				if touched := p.contextOf(t, m.Time, on); touched != nil && t.Position < before {
					found = append(found, touched)
				}
			})
			slices.Reverse(found[had:])
			for _, t := range found[had:] {
				p.decide(on, t)
			}
			return len(found) > had
		},
		done: func() bool {
			maps.DeleteFunc(on, func(of together, at int64) bool { // forgotten by then
				keep := p.keep(of)
				return keep > 0 && p.passed != never && at-p.passed > keep
			})
			return len(on) == 0 || len(found) > contextMax
		},
	})
	if reached > p.extent.First || p.extent.First > 1 {
		p.doubt(on)
	}
	if ctx.Err() != nil { // what was not found is not sure
		return found, nil
	}
	return found, err
}

// contextOf is what an event says of what touches depend on; nil: nothing.
func (p *explanation) contextOf(t *pipeline.Traced, time int64, on map[together]int64) *touch {
	out := &touch{}
	section := t.Changes(t.Ids)
	for c, ok := section.Next(); ok; c, ok = section.Next() {
		of, is := togetherOf(&c, &section.Operation)
		_, open := on[of]
		if c.ID == p.ask.ID && (is && open || c.Op == pipeline.OpEmpty) {
			out.section = appendChange(out.section, t.Position-1, &c, &section.Operation)
		}
	}
	if out.section == nil {
		return nil
	}
	out.Position, out.Time = t.Position, time
	return out
}

// doubt marks the touches of which it is not known what was before: the oldest of each, or
// where members are forgotten all.
func (p *explanation) doubt(on map[together]int64) {
	for _, t := range slices.Backward(p.touches) {
		t.each(func(of together, emptied bool) {
			back := of
			back.in = !of.in
			_, open := on[of]
			_, too := on[back]
			t.unsure = t.unsure || !emptied && (open || too && of.column == pipeline.NoColumn)
		})
		p.decide(on, t)
	}
}

// replay applies context and touches, the oldest first, and says what each of the first n
// touches has changed. Of one that changes nothing that was asked the changes stay nil.
func (p *explanation) replay(context []*touch, n int) error {
	counts := make([]count, len(p.ask.Columns))
	for i, column := range p.ask.Columns {
		counts[i] = count{spec: &p.schema.Columns[column], known: p.whole()}
		switch {
		case p.whole():
			counts[i].row = rowGone
		case p.bottom(): // of a log without its beginning: there is something before
			counts[i].row = rowMade
		}
	}
	r := newReplay(p.schema, p.users, p.ask.ID, counts[0].spec.Counter)
	for _, t := range slices.Backward(context) {
		if err := r.apply(t); err != nil {
			return err
		}
	}
	first := p.schema.Counters[counts[0].spec.Counter].First
	for at, t := range slices.Backward(p.touches) {
		if err := r.apply(t); err != nil {
			return err
		}
		changes, some := make([]query.NumberChange, len(counts)), false
		for i, column := range p.ask.Columns {
			cell := column - first
			changes[i] = counts[i].change(t, &t.numbers[i], r.before[cell], r.after[cell], r.made(), p.ask.Differences)
			some = some || changes[i].Touched
		}
		if at < n && some {
			t.Changes = changes
		}
	}
	return nil
}

// count is a number as the touches go by, oldest first.
type count struct {
	spec  *pipeline.ColumnSpec
	known bool    // what the replay has is what it was
	row   rowStep // whether there is one; rowKept: not known
}

// change goes on over a touch, and says what it changed.
func (c *count) change(t *touch, n *numberTouch, before, after int64, made, differences bool) (change query.NumberChange) {
	if change.Touched = n.touched; n.touched {
		change.Unsure = t.unsure
		_, adds := n.delta.Amount()
		switch {
		case n.sets() && (!differences || !c.known):
			change.Set, change.N, change.Unsure, c.known = true, after, change.Unsure || differences, true
		case n.sets(), adds, c.known:
			if change.N = after - before; t.unsure && change.N == 0 {
				change.N = n.says
			}
		default:
			change.Unsure, change.N = true, n.delta.Low-n.delta.From // what a read says it saw
		}
	}
	if c.spec.Default == 0 {
		return change
	}
	// A row that does not exist is answered with the default.
	was, row := c.row, t.row
	if row == rowKept && made {
		row = rowMade
	}
	if row != rowKept {
		c.row = row
	}
	switch {
	case was == rowKept && row == rowMade && change.Touched:
		change.Unsure = true
	case row == rowKept && (was != rowGone || !change.Touched):
	case row != rowMade: // a deletion; of a row that was not there, too
		return query.NumberChange{Touched: true, Set: true, N: c.spec.Default}
	case was == rowGone: // it begins at 0
		return query.NumberChange{Touched: true, Set: true, N: after}
	}
	return change
}

// replay is a private shard that applies events of one id, one by one.
type replay struct {
	shard   *shard.Shard
	id      uint64
	counter int
	exists  int               // the cell that says whether there is a row; -1: none does
	columns []pipeline.Column // of windows: the same

	before, after []int64 // the cells of the row
}

func newReplay(schema *pipeline.Schema, users shard.Limits, id uint64, counter int) *replay {
	cells := schema.Counters[counter].Count
	r := &replay{id: id, counter: counter, exists: -1, before: make([]int64, cells), after: make([]int64, cells)}
	for i := range schema.Columns {
		r.columns = append(r.columns, pipeline.Column(i))
	}
	r.shard = shard.New(0, schema, users, shard.NewClock(max(users.Retention, users.Inactive)), shard.State{})
	r.shard.Joins = func(applied pipeline.Position, w *pipeline.Window) (bool, error) { return w.To > applied, nil }
	if column, ok := schema.Find(schema.Counters[counter].Name + "." + pipeline.ExistsColumn); ok {
		r.exists = int(column - schema.Counters[counter].First)
	}
	return r
}

// apply applies an event.
func (r *replay) apply(t *touch) error {
	w := &pipeline.Window{
		Header:   pipeline.Header{From: t.Position - 1, To: t.Position, Time: t.Time},
		Marks:    []pipeline.TimeMark{{Second: t.Time / 1000, Position: t.Position}},
		Sections: [][]byte{t.section},
	}
	if err := r.shard.Apply(uint64(t.Position), w, r.columns); err != nil {
		return err
	}
	copy(r.before, r.after)
	var b shard.Batch
	_, err := r.shard.Read(r.counter, []uint64{r.id}, &b, nil, func(_ int, cells []int64) { copy(r.after, cells) })
	return err
}

// made says that the last event has made the row.
func (r *replay) made() bool {
	return r.exists >= 0 && r.before[r.exists] == 0 && r.after[r.exists] != 0
}
