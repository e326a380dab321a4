package pipeline

import (
	"context"
	"sync/atomic"
)

// LetterGate is [DeadLetters] that a generation keeps only while it is told to: all
// generations route the same events, and one of them stores what is refused. It begins
// shut. Any goroutine may open and shut it; what is being stored then is stored.
type LetterGate struct {
	to   DeadLetters
	open atomic.Pointer[Position] // nil: shut
}

var _ DeadLetters = (*LetterGate)(nil)

// NewLetterGate keeps letters in to.
func NewLetterGate(to DeadLetters) *LetterGate { return &LetterGate{to: to} }

// Open has letters behind a position stored, as of the next Keep. Those up to it are
// stored already.
func (g *LetterGate) Open(after Position) { g.open.Store(&after) }

// Shut has no letters stored, as of the next Keep.
func (g *LetterGate) Shut() { g.open.Store(nil) }

// Keep implements DeadLetters.
func (g *LetterGate) Keep(ctx context.Context, letters []DeadLetter) error {
	after := g.open.Load()
	if after == nil {
		return nil
	}
	kept := letters
	for i := range letters {
		if letters[i].Position > *after {
			continue
		}
		// Letters are not promised to come in order.
		kept = make([]DeadLetter, 0, len(letters))
		for _, l := range letters {
			if l.Position > *after {
				kept = append(kept, l)
			}
		}
		break
	}
	if len(kept) == 0 {
		return nil
	}
	return g.to.Keep(ctx, kept)
}
