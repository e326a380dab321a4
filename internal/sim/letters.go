package sim

import (
	"context"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// Letters keeps dead letters. It implements pipeline.DeadLetters.
type Letters struct{ c *Client }

var _ pipeline.DeadLetters = Letters{}

// Letters is DEADLETTER as this client uses it.
func (c *Client) Letters() Letters { return Letters{c} }

// Keep implements pipeline.DeadLetters. A call that the gate lets fail has
// kept the first half of the letters, as one that was interrupted may have.
func (l Letters) Keep(ctx context.Context, letters []pipeline.DeadLetter) error {
	if len(letters) == 0 {
		return nil
	}
	half := letters[:len(letters)/2]
	fate, err := l.c.pass(ctx, Call{Kind: Keep, Land: func() { l.keep(half) }})
	if err != nil {
		return err
	}
	if fate.Err != nil {
		if fate.Done {
			half = letters
		}
		l.keep(half)
		return fate.Err
	}
	l.keep(letters)
	return nil
}

func (l Letters) keep(letters []pipeline.DeadLetter) {
	s := l.c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, letter := range letters {
		id := letterID{letter.Position, string(letter.Data)}
		at, known := s.kept[id]
		if known && time.Since(at) < jetlog.DuplicateWindow {
			continue
		}
		s.kept[id] = time.Now()
		s.letters = append(s.letters, letter)
	}
	s.changedLocked()
}

// letterID identifies a letter.
type letterID struct {
	position pipeline.Position
	body     string
}
