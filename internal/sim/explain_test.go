package sim

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/tidemark-io/tidemark/internal/twin"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks/check"
)

// searched is EVENTS as explanations read it, in the end: it no longer changes. It implements
// check.Log.
type searched struct {
	events Events
	state  jetlog.StreamState
}

func (s searched) Extent(context.Context) (check.Extent, error) {
	return check.Extent{First: s.state.First, Last: s.state.Last, Created: s.state.Created}, nil
}

func (s searched) Begin(context.Context) (check.Parts, error) { return searchedParts{s}, nil }

// searchedParts implements check.Parts: all of it.
type searchedParts struct{ searched }

func (s searchedParts) Extent() check.Extent {
	e, _ := s.searched.Extent(context.Background())
	return e
}

func (s searchedParts) Open(ctx context.Context, from pipeline.Position, _ int) (pipeline.Source, error) {
	return s.events.Open(ctx, from)
}

func (s searchedParts) Get(ctx context.Context, sequence uint64) (m pipeline.Message, there bool, err error) {
	stored, err := s.events.message(ctx, sequence)
	if err != nil || stored == nil {
		return m, false, err
	}
	return stored.message(), true, nil
}

// wholes counts the worlds whose EVENTS is whole in the end, and explained the events that were
// explained of them.
var wholes, explained atomic.Uint64

// explainedIDs is of how many ids a world explains all numbers.
const explainedIDs = 3

// explains asks which events are behind the numbers of some ids: what they changed, one after
// the other, comes to what the model says of the log as it is. Of a log whose beginning was
// removed nobody knows with what it begins, and a damaged one is refused.
func (w *world) explains() error {
	state, held := w.server.State(jetlog.EventsStream), w.server.Held(jetlog.EventsStream)
	if uint64(len(held)) != state.Last {
		return nil
	}
	p := w.processes[w.rand.IntN(len(w.processes))]
	m, nothing, all := twin.NewModel(), facts{}, facts{}
	for fact, n := range m.Facts(w.story) {
		nothing.add(fact, n)
	}
	for _, s := range held {
		if t, is := s.Tag.(*told); is {
			m.Tell(t.Message, s.Sequence, 0, pipeline.EndOf(state.Last))
		}
	}
	for fact, n := range m.Facts(w.story) {
		all.add(fact, n)
	}
	schema := p.node.Schema()
	x := check.NewExplainer(check.ExplainOptions{
		Schema: schema, Users: p.options.Users,
		Tracer: func() pipeline.Tracer { return program(w.shards, w.events[p.number]).NewTracer() },
		Log:    searched{w.server.NewClient(p.number, nil).Events(p.runs()), state},
	})
	ids := slices.Concat(w.story.Users, w.story.Posts, w.story.Pages)
	wholes.Add(1)
	for range explainedIDs {
		id := ids[w.rand.IntN(len(ids))]
		for counter := range schema.Counters {
			columns := schema.Visible(counter)
			events, err := explainAll(x, &query.ExplainAsk{
				ID: id, Columns: columns, AsOf: pipeline.EndOf(state.Last), Before: pipeline.PositionMax, Limit: 1 + w.rand.IntN(20),
			})
			if err != nil {
				return fmt.Errorf("explaining %s of %d: %w", schema.Counters[counter].Name, id, err)
			}
			for i, name := range names(schema, columns) {
				value := nothing.of(name, id)
				for _, e := range slices.Backward(events) {
					c := e.Changes[i]
					if c.Unsure {
						return fmt.Errorf("explaining %s of %d: what the event at %d changed is unsure, and the log is whole", name, id, e.Position)
					}
					if c.Set {
						value = 0
					}
					value += c.N
				}
				if want := all.of(name, id); value != want {
					return fmt.Errorf("%s of %d is %d by the %d events that explain it, want %d: %+v", name, id, value, len(events), want, events)
				}
			}
		}
	}
	return nil
}

// explainAll are all pages, the newest event first.
func explainAll(x *check.Explainer, ask *query.ExplainAsk) (events []query.ExplainedEvent, err error) {
	for {
		var page query.Explanation
		if err := x.Explain(context.Background(), ask, &page); err != nil {
			return nil, err
		}
		events = append(events, page.Events...)
		explained.Add(uint64(len(page.Events)))
		if ask.Before = page.Next; page.Next == 0 {
			return events, nil
		}
	}
}
