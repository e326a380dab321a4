package counting

import (
	"context"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

const (
	// endsEach is how often the log is asked where it ends, as a part of freshness: what
	// is left is for a question that comes late or is not answered.
	endsEach = 4
	// endsSooner is the same while the last answer does not count, or not for long.
	endsSooner = 10
	// firstEndWithin bounds how long a start waits for an answer that counts.
	firstEndWithin = 3 * time.Second
)

// freshnessWait is how long a read that waits waits for nodes that it cannot ask. Each
// process judges its own answers by its own file, so the longest freshness counts.
func (g *Generation) freshnessWait() time.Duration {
	return pipeline.FreshnessWait(max(g.Config.Freshness, g.View().Freshness()))
}

// logEnds asks where EVENTS ends, again and again. It belongs to one goroutine.
type logEnds struct {
	generation *Generation
	events     *jetlog.EventsEnd
}

// openEnds begins to ask where EVENTS ends, and returns once that is known, or is not
// to be known soon.
func (g *Generation) openEnds() error {
	events, err := g.streams.EndOver(g.Queries)
	if err != nil {
		return err
	}
	e := &logEnds{g, events}
	for until := time.Now().Add(firstEndWithin); g.ctx.Err() == nil && time.Now().Before(until); {
		if e.ask() {
			break
		}
		e.pause(g.Config.Freshness / endsSooner)
	}
	g.work.Go(e.run)
	return nil
}

func (e *logEnds) run() {
	for e.generation.ctx.Err() == nil {
		pause := e.generation.Config.Freshness / endsEach
		if !e.ask() || e.generation.fresh.Left() < e.generation.Config.Freshness/2 {
			pause = e.generation.Config.Freshness / endsSooner
		}
		e.pause(pause)
	}
}

func (e *logEnds) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-e.generation.ctx.Done():
	}
}

// ask asks once, and says whether the answer counts for all that it may.
func (e *logEnds) ask() bool {
	g := e.generation
	ctx, cancel := context.WithTimeout(g.ctx, g.Config.Freshness/2)
	defer cancel()
	asked := g.fresh.Now()
	state, err := e.events.State(ctx)
	if err != nil { // keep says so
		return false
	}
	g.ended.Store(&state)
	return g.fresh.Take(endOf(asked, g.fresh.Now(), &state))
}

// endOf is what a state of EVENTS says about where it ends.
func endOf(asked, answered time.Duration, s *jetlog.StreamState) pipeline.LogEnd {
	e := pipeline.LogEnd{Asked: asked, Answered: answered, Leader: s.Leader, Heard: s.Heard}
	if s.Last > 0 {
		e.End = pipeline.EndOf(s.Last)
	}
	return e
}
