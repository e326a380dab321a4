package check

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// ExplainOptions are what an Explainer is made of. Schema, Tracer and Log must be given.
type ExplainOptions struct {
	Schema *pipeline.Schema
	Users  shard.Limits
	Tracer func() pipeline.Tracer
	Log    Log
	Logger *slog.Logger

	// Dir is where filters are kept; "": everything is read.
	Dir string
	// Upto is the sequence up to which the log no longer changes:
	// what is not counted yet may be lost in a power cut, and its sequences used
	// again (I10). nil: filters are not made.
	Upto func() uint64
	// Rate is how many events a second are read to make filters; 0: none are.
	Rate int
	// BytesMax bounds the files; the oldest go.
	BytesMax int64
	// Memory is what all explanations may take at a time, searchBytes each; one always may,
	// more wait. 0: placesMax do.
	Memory int
	// Events are in a stretch; default 16,384: read in a tenth of a second.
	Events int
}

const (
	eventsDefault = 16_384
	// searchBytes is what one explanation may hold of the log: messages that are fetched side
	// by side, or a run that is read.
	searchBytes = lookUps << 20
	// placesMax bounds the explanations that run at a time.
	placesMax = 64
)

// Explainer implements [query.Explainer].
type Explainer struct {
	ExplainOptions

	mu      sync.Mutex
	filters *filters // of the EVENTS that is there; nil: there are none
	failed  error    // why there are none, said once

	places chan struct{} // one for each that runs

	made uint64 // Run's: up to here there is nothing to make a filter of

	// Stats are figures since the start.
	Stats ExplainStats
}

var _ query.Explainer = (*Explainer)(nil)

// NewExplainer makes one. Run makes its filters.
func NewExplainer(o ExplainOptions) *Explainer {
	if o.Events <= 0 {
		o.Events = eventsDefault
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	places := placesMax
	if o.Memory > 0 {
		places = min(max(1, o.Memory/searchBytes), placesMax)
	}
	return &Explainer{ExplainOptions: o, places: make(chan struct{}, places)}
}

// filtersOf are the filters of an EVENTS, opened when first asked for.
func (x *Explainer) filtersOf(e Extent) *filters {
	x.mu.Lock()
	defer x.mu.Unlock()
	created := e.Created.UnixNano()
	if x.Dir == "" || x.filters != nil && x.filters.created == created {
		return x.filters
	}
	f, err := openFilters(x.Dir, created)
	if err != nil && x.failed == nil {
		x.Logger.Warn("explain: there are no filters, and explanations read the whole log", "error", err)
	}
	x.filters, x.failed = f, err
	return f
}

// Size is how many stretches have filters, and their bytes on disk.
func (x *Explainer) Size() (stretches int, bytes int64) {
	x.mu.Lock()
	f := x.filters
	x.mu.Unlock()
	if f == nil {
		return 0, 0
	}
	return f.size()
}

// Bytes is what those that run may hold.
func (x *Explainer) Bytes() int { return len(x.places) * searchBytes }

// tries is how often an explanation begins again because the log's beginning was
// trimmed during it.
const tries = 3

// Explain implements [query.Explainer].
func (x *Explainer) Explain(ctx context.Context, ask *query.ExplainAsk, out *query.Explanation) (err error) {
	select {
	case x.places <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-x.places }()
	x.Stats.Searches.Add(1)
	for range tries {
		var parts Parts
		if parts, err = x.Log.Begin(ctx); err != nil {
			return err
		}
		extent := parts.Extent()
		extent.First = max(extent.First, 1)
		p := &explanation{
			ask: ask, below: min(ask.Before, ask.AsOf+1), schema: x.Schema, users: x.Users, tracer: x.Tracer(),
			search: search{parts: parts, stats: &x.Stats, filters: x.filtersOf(extent), extent: extent, mention: mentionOf(ask.ID), soft: ask.Soft, turn: ask.Turn},
		}
		if err = p.make(ctx, out); !errors.Is(err, pipeline.ErrGap) {
			x.Stats.Base.Store(uint64(out.Base))
			if out.Read = p.read; err == nil && out.Base > 0 && out.Next == 0 {
				x.Stats.Below.Add(1)
			}
			return err
		}
	}
	return err
}
