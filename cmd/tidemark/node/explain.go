package node

import (
	"context"
	"log/slog"
	"slices"

	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query/explain"
)

// openExplainer makes what reads in the log which events are behind a number.
func (n *generation) openExplainer() {
	n.explainer = explain.New(explain.Options{
		Schema:   n.store.Schema(),
		Tracer:   func() pipeline.Tracer { return n.program.NewTracer() },
		Log:      eventLog{n.streams, n.log},
		Dir:      n.dir.join(filtersDir),
		Upto:     n.upto,
		Rate:     n.config.Explain.Rate,
		BytesMax: int64(n.config.Explain.Disk),
		Logger:   n.log,
	})
}

// upto is the sequence up to which EVENTS does not change any more: all of it is
// counted here, on disk. If its tail is lost, what comes at those sequences is
// published again behind the end.
func (n *generation) upto() uint64 {
	kept := n.sinks.Kept()
	if len(kept) == 0 {
		return 0
	}
	return slices.Min(kept).Next() - 1
}

// eventLog is EVENTS as explanations read it: apart from the router, and without
// waiting for a run to fill.
type eventLog struct {
	streams *jetlog.Streams
	log     *slog.Logger
}

// Open implements explain.Log. It asks for no more than half of what is read at a
// time: a stretch of packs has some sixty messages, and what the server sends
// beyond it is thrown away.
func (l eventLog) Open(ctx context.Context, from pipeline.Position, messages int) (pipeline.Source, error) {
	source, err := jetlog.OpenSource(ctx, l.streams, from, jetlog.RunOptions{Ahead: (messages + 1) / 2, Logger: l.log})
	if err != nil { // not a nil *Source
		return nil, err
	}
	return source, nil
}

// Extent implements explain.Log.
func (l eventLog) Extent(ctx context.Context) (explain.Extent, error) {
	state, err := l.streams.State(ctx, jetlog.EventsStream)
	return explain.Extent{First: state.First, Last: state.Last, Created: state.Created}, err
}

var _ pipeline.Tracer = (*operators.Tracer)(nil)
