package counting

import (
	"context"
	"log/slog"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/internal/kit/figures"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/node/history"
	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks/check"
)

// openExplainer makes what reads in the log which events are behind a number.
func (g *Generation) openExplainer() {
	log := history.New(g.streams, g.Config.NATS.Streams.Events.Archive, true, g.Log)
	explainer := check.NewExplainer(check.ExplainOptions{
		Schema:   g.store.Schema(),
		Users:    g.sinksOptions(nil, 0).Users,
		Tracer:   func() pipeline.Tracer { return g.program.NewTracer() },
		Log:      eventLog{log, g.Log},
		Dir:      g.Dir.Of(g.Number, datadir.FiltersDir),
		Upto:     g.upto,
		Rate:     g.Config.Explain.Rate,
		BytesMax: int64(g.Config.Explain.Disk),
		Memory:   int(g.memory.Load()) / explainShare,
		Logger:   g.Log,
	})
	g.explainer = explainer
	memory := func() int { return explainer.Bytes() + log.History.Bytes() }
	g.explains.Store(&memory)
}

// explainShare is the part of what the shards may have that explanations may take.
const explainShare = 8

// explaining is the memory that explanations take of what the shards may have.
func (g *Generation) explaining() int {
	if memory := g.explains.Load(); memory != nil {
		return (*memory)()
	}
	return 0
}

// upto is the sequence up to which EVENTS no longer changes: all of it is counted here,
// on disk. If its tail is lost, this generation counts no further.
func (g *Generation) upto() uint64 {
	kept := g.sinks.Kept()
	if len(kept) == 0 {
		return 0
	}
	return slices.Min(kept).Next() - 1
}

// explainFigures are those of explanations and of the filters that they ask.
func (g *Generation) explainFigures(c *figures.Collector) {
	of := func(value func(s *check.ExplainStats) uint64) func() float64 {
		return func() float64 {
			if g.explainer == nil {
				return 0
			}
			return float64(value(&g.explainer.Stats))
		}
	}
	size := func() (stretches int, bytes int64) {
		if g.explainer != nil {
			stretches, bytes = g.explainer.Size()
		}
		return stretches, bytes
	}
	c.Gauge("explain_memory_bytes", "Memory that explanations take now, of events that they read and of the segment of the archive that was read last. It is within memory_bytes.", func() float64 { return float64(g.explaining()) })
	c.Gauge("explain_filters", "Stretches of EVENTS that have a filter here.", func() float64 {
		stretches, _ := size()
		return float64(stretches)
	})
	c.Gauge("explain_filter_bytes", "Bytes of filters on disk.", func() float64 {
		_, bytes := size()
		return float64(bytes)
	})
	c.Counter("explain_filters_made_total", "Filters made.", of(func(s *check.ExplainStats) uint64 { return s.Made.Load() }))
	c.Counter("explain_filters_damaged_total", "Filters that were not as they were written; they are made again.", of(func(s *check.ExplainStats) uint64 { return s.Damaged.Load() }))
	c.Counter("explain_searches_total", "Pages of explanations that were looked for in EVENTS.", of(func(s *check.ExplainStats) uint64 { return s.Searches.Load() }))
	c.Counter("explain_messages_total", "Messages of EVENTS that were read for explanations.", of(func(s *check.ExplainStats) uint64 { return s.Messages.Load() }))
	c.Add(prometheus.CounterValue, "explain_parts_total", "Parts of EVENTS that explanations came to: passed by their filter, read and found, read in vain, read because they had no filter.",
		[]string{"result"}, func(emit func(float64, ...string)) {
			if g.explainer == nil {
				return
			}
			s := &g.explainer.Stats
			emit(float64(s.PassedOver.Load()), "passed")
			emit(float64(s.Read.Load()), "found")
			emit(float64(s.Vain.Load()), "in vain")
			emit(float64(s.Unfiltered.Load()), "no filter")
		})
	c.Gauge("explain_base_position", "Position up to which EVENTS holds nothing any more, as of the last explanation; 0: it is whole.", of(func(s *check.ExplainStats) uint64 { return s.Base.Load() }))
	c.Counter("explain_base_total", "Pages that ended at the base: what was before is told as one number, not event by event.", of(func(s *check.ExplainStats) uint64 { return s.Below.Load() }))
}

// eventLog is EVENTS as explanations read it: apart from the router, and without
// waiting for a run to fill.
type eventLog struct {
	history *history.History
	log     *slog.Logger
}

// Extent implements check.Log.
func (l eventLog) Extent(ctx context.Context) (check.Extent, error) {
	state, err := l.history.Streams.State(ctx, jetlog.EventsStream)
	return extentOf(l.history, state), err
}

// Begin implements check.Log.
func (l eventLog) Begin(ctx context.Context) (check.Parts, error) {
	parts, err := jetlog.OpenParts(ctx, l.history.Streams)
	return eventParts{parts, l.history, l.log}, err
}

// eventParts are parts of EVENTS.
type eventParts struct {
	*jetlog.Parts
	history *history.History
	log     *slog.Logger
}

// Extent implements check.Parts.
func (p eventParts) Extent() check.Extent { return extentOf(p.history, p.State()) }

// Open implements check.Parts.
func (p eventParts) Open(ctx context.Context, from pipeline.Position, messages int) (pipeline.Source, error) {
	return p.history.Open(ctx, from, func(ctx context.Context, from pipeline.Position) (pipeline.Source, error) {
		source, err := p.Parts.Open(ctx, from, messages, jetlog.RunOptions{Logger: p.log})
		if err != nil { // not a nil *Source
			return nil, err
		}
		return source, nil
	})
}

// Get implements check.Parts.
func (p eventParts) Get(ctx context.Context, sequence uint64) (m pipeline.Message, there bool, err error) {
	if state := p.State(); sequence >= state.First || sequence < p.history.Begins(state) {
		m, there, err = p.Parts.Get(ctx, sequence)
		if there || err != nil || sequence < state.First || sequence > state.Last {
			return m, there, err
		} // else a disk has lost it
	}
	source, err := p.Open(ctx, pipeline.EndOf(sequence-1), 1)
	if err != nil {
		return m, false, err
	}
	defer source.Close()
	messages, err := source.Next(ctx)
	if err != nil || messages[0].Sequence != sequence {
		return m, false, err
	}
	return messages[0], true, nil
}

func extentOf(h *history.History, s jetlog.StreamState) check.Extent {
	return check.Extent{First: h.Begins(s), Last: s.Last, Created: s.Created}
}

var _ pipeline.Tracer = (*operators.Tracer)(nil)
