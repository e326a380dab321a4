package check

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// join lays the members of sets among the events that change columns, and reads
// theirs. A page ends where either is no longer known.
func (p *explanation) join(ctx context.Context, out *query.Explanation) error {
	lower := out.Next
	if p.ask.Upto >= pipeline.At(p.extent.First, 0) {
		lower = max(lower, p.ask.Upto)
	}
	events := make(map[pipeline.Position]*query.ExplainedEvent)
	for i := range out.Events {
		events[out.Events[i].Position] = &out.Events[i]
	}
	members := make(map[pipeline.Position][]query.SetEvent)
	for _, m := range p.ask.Members {
		if m.Position < p.ask.Before && m.Position >= lower && m.Position.Sequence() >= p.extent.First {
			members[m.Position] = append(members[m.Position], m)
		}
	}
	var order []pipeline.Position // of all, newest first
	for at := range events {
		if at >= lower {
			order = append(order, at)
		}
	}
	for at := range members {
		if events[at] == nil {
			order = append(order, at)
		}
	}
	slices.SortFunc(order, func(a, b pipeline.Position) int { return cmp.Compare(b, a) })
	if len(order) > p.ask.Limit {
		order = order[:p.ask.Limit]
		lower = order[len(order)-1]
	}
	joined, lower, err := p.joined(ctx, order, lower, events, members)
	out.Events, out.Next = joined, lower
	return err
}

// joined are the events at positions, newest first, those of members read. Where
// they become too many bytes, or it is late, it ends, and lower is where.
func (p *explanation) joined(ctx context.Context, order []pipeline.Position, lower pipeline.Position, events map[pipeline.Position]*query.ExplainedEvent, members map[pipeline.Position][]query.SetEvent) (all []query.ExplainedEvent, _ pipeline.Position, err error) {
	bytes := 0
	for len(order) > 0 {
		some, sequences := order[:0:0], []uint64(nil)
		for len(order) > 0 && len(sequences) < lookUps {
			some = append(some, order[0])
			if s := order[0].Sequence(); len(members[order[0]]) > 0 && !slices.Contains(sequences, s) {
				sequences = append(sequences, s)
			}
			order = order[1:]
		}
		messages, err := p.get(ctx, sequences)
		if err != nil {
			if ctx.Err() != nil && len(all) > 0 {
				return all, all[len(all)-1].Position, nil
			}
			return nil, 0, err
		}
		for _, at := range some {
			var m *pipeline.Message
			if i := slices.Index(sequences, at.Sequence()); i >= 0 {
				m = messages[i]
			}
			event, ok := p.event(at, events[at], members[at], m)
			if !ok {
				continue
			}
			if bytes += len(event.Body); bytes > bodiesMax && len(all) > 0 {
				return all, all[len(all)-1].Position, nil
			}
			all = append(all, event)
		}
	}
	return all, lower, nil
}

// event is one with its changes of sets. What the log has at its place must be what
// put the member there; where it is not, a member is unsure, and a read that a
// mark may come from is none: the mark came with its as_of.
func (p *explanation) event(at pipeline.Position, of *query.ExplainedEvent, members []query.SetEvent, m *pipeline.Message) (event query.ExplainedEvent, ok bool) {
	event = query.ExplainedEvent{Position: at, Changes: make([]query.NumberChange, len(p.ask.Columns))}
	if of != nil {
		event, ok = *of, true
	}
	is := make([]bool, len(members))
	if m != nil && len(members) > 0 {
		event.Time = m.Time
		p.tracer.Trace(m, func(line []byte) bool {
			return slices.ContainsFunc(members, func(m query.SetEvent) bool { return mentionOf(m.ID).in(line) })
		}, func(t *pipeline.Traced) {
			if t.Position != at {
				return
			}
			for i := range members {
				is[i] = puts(t, &members[i])
			}
			event.Type = t.Type
			if event.Bytes = len(t.Line); event.Bytes <= query.ExplainBodyMax && event.Body == nil {
				event.Body = bytes.Clone(t.Line)
			}
		})
	}
	for i, m := range members {
		if m.Op == pipeline.OpRead && !is[i] {
			continue
		}
		m.Change.Unsure = !is[i]
		event.Sets, ok = append(event.Sets, query.SetChange{Number: m.Number, NumberChange: m.Change}), true
	}
	return event, ok
}

// puts says whether an event put a member there.
func puts(t *pipeline.Traced, m *query.SetEvent) bool {
	sections := t.Ids
	if m.Op == pipeline.OpNotice {
		sections = t.Commons
	}
	section := t.Changes(sections)
	for change, ok := section.Next(); ok; change, ok = section.Next() {
		o := &section.Operation
		if change.Op != m.Op || o.ID != m.ID {
			continue
		}
		switch m.Op {
		case pipeline.OpPost:
			if o.Other == m.Other {
				return true
			}
		case pipeline.OpNotice:
			if o.Channels[0] == m.Channel {
				return true
			}
		case pipeline.OpRead:
			return o.Mark == m.Position
		}
	}
	return false
}
