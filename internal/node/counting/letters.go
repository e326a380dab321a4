package counting

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
)

// letterGate keeps the dead letters of a generation while it serves, and no others:
// everybody's are in one stream. It implements pipeline.DeadLetters.
//
// When a generation comes to serve it may have routed events already whose letters the
// one before did not store: all after the position that the record has of it. Its router
// begins again, and first stores those (owed).
type letterGate struct {
	to letterStore // where they are kept; before the router runs

	mu     sync.Mutex
	serves bool
	begin  context.CancelCauseFunc // has the router begin again; nil: it does not run
}

// letterStore is where letters are kept; see letters.DeadLetters.
type letterStore interface {
	pipeline.DeadLetters
	// Begin says that letters may come that an earlier run has stored.
	Begin()
}

var errLetters = errors.New("this generation serves from now on")

// keep stores letters from now on, or none. It goes by the record, not by which
// generation answers here. A process that routes the one that serves may answer by the one
// before for long, and no other process stores its letters once none are owed.
func (l *letterGate) keep(serves bool) {
	if serves {
		l.on()
	} else {
		l.off()
	}
}

// on stores letters from now on.
func (l *letterGate) on() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.serves {
		return
	}
	l.serves = true
	if l.begin != nil {
		l.begin(errLetters)
	}
}

// off stores none from now on.
func (l *letterGate) off() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.serves = false
}

// keepIn says where letters are kept.
func (l *letterGate) keepIn(to letterStore) *letterGate {
	l.to = to
	return l
}

// Keep implements pipeline.DeadLetters. What is being stored when the generation
// serves no more is stored.
func (l *letterGate) Keep(ctx context.Context, of []pipeline.DeadLetter) error {
	l.mu.Lock()
	serves := l.serves
	l.mu.Unlock()
	if !serves {
		return nil
	}
	return l.to.Keep(ctx, of)
}

// routing is the context of a run of the router, which ends when what it stores
// changes; kept says whether it stores letters. An earlier run may have stored some of
// its letters.
func (l *letterGate) routing(ctx context.Context) (running context.Context, kept bool, end context.CancelCauseFunc) {
	l.to.Begin()
	running, end = context.WithCancelCause(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begin = end
	return running, l.serves, end
}

// owed stores the letters of what this generation has routed before it served: from after
// what the record says is stored, up to where its router goes on. Then the record says
// that nothing is owed.
func (g *Generation) owed(ctx context.Context) error {
	set := g.host.Generations()
	is := set.All[g.Number]
	if set.Serving != g.Number || is.Letters == 0 {
		return nil
	}
	tail, _, err := g.deltas.Tail(ctx)
	if err != nil {
		return err
	}
	from, to := pipeline.Position(is.Letters), tail.To
	if cuts := g.guard.Cuts(); to == 0 && len(cuts) > 0 {
		to = cuts[len(cuts)-1] // there the router begins a log that is empty
	}
	if from < to {
		if err := g.storeLetters(ctx, from, to); err != nil {
			return fmt.Errorf("dead letters of positions %d to %d: %w", from, to, err)
		}
	}
	_, err = g.host.ChangeRecord(ctx, func(set generations.Set) (generations.Set, error) {
		if set.Serving != g.Number {
			return set, generations.ErrNotServing
		}
		return set.Settled()
	})
	return err
}

// storeLetters derives a part of the log again, for its letters alone.
func (g *Generation) storeLetters(ctx context.Context, from, to pipeline.Position) error {
	source, err := g.events.Open(ctx, from)
	if err != nil {
		return err
	}
	source = pipeline.PassHoles(source, g.events.Open, func(pipeline.Hole) {}) // the router has named them
	defer source.Close()
	lane := g.lane()
	for from < to {
		messages, err := source.Next(ctx)
		if err != nil {
			return err
		}
		end := min(pipeline.EndOf(messages[len(messages)-1].Sequence), to)
		if end <= from {
			continue
		}
		derived, err := lane.Derive(from, end, messages)
		if err == nil {
			err = g.storeEach(ctx, derived)
		}
		if err != nil {
			return err
		}
		from = end
	}
	return nil
}

func (g *Generation) storeEach(ctx context.Context, derived []pipeline.Derived) error {
	for _, d := range derived {
		if err := g.letters.to.Keep(ctx, d.Letters); err != nil {
			return err
		}
	}
	return nil
}
