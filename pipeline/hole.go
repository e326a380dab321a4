package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Hole says that EVENTS lacks messages between others that it has. It denies deletions,
// so a disk has lost them. A Source returns it as an error where they would come, and what
// is read after them is not all that was stored: nothing that is counted may be judged, or
// counted again, by it.
type Hole struct {
	First, Last uint64 // sequences of the messages that are missing
}

func (h Hole) String() string {
	if h.First == h.Last {
		return fmt.Sprintf("message %d", h.First)
	}
	return fmt.Sprintf("messages %d to %d", h.First, h.Last)
}

// Holes are those that are known of EVENTS, in order.
type Holes []Hole

func (all Holes) String() string {
	names := make([]string, len(all))
	for i, h := range all {
		names[i] = h.String()
	}
	return strings.Join(names, ", ")
}

// Messages is how many are missing.
func (all Holes) Messages() (n uint64) {
	for _, h := range all {
		n += h.Last - h.First + 1
	}
	return n
}

// Error implements error.
func (h *Hole) Error() string {
	return "EVENTS is damaged: it lacks " + h.String() + ", which no one can have deleted (docs/failures.md, Damaged files)"
}

// PassHoles is a source that goes on behind holes, where open opens EVENTS again. passed is
// called for each.
func PassHoles(source Source, open func(ctx context.Context, from Position) (Source, error), passed func(Hole)) Source {
	return &holeySource{source, open, passed}
}

type holeySource struct {
	Source
	open   func(ctx context.Context, from Position) (Source, error)
	passed func(Hole)
}

// Next implements Source.
func (s *holeySource) Next(ctx context.Context) ([]Message, error) {
	for {
		messages, err := s.Source.Next(ctx)
		hole, is := errors.AsType[*Hole](err)
		if !is {
			return messages, err
		}
		s.passed(*hole)
		next, err := s.open(ctx, EndOf(hole.Last))
		if err != nil {
			return nil, fmt.Errorf("pipeline: open EVENTS after position %d: %w", EndOf(hole.Last), err)
		}
		_ = s.Source.Close()
		s.Source = next
	}
}
