package sinks

import (
	"context"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
)

// progress is a position that only grows, with those who wait for it.
type progress struct {
	mu       sync.Mutex
	position pipeline.Position
	waiters  map[*waiter]struct{}
}

type waiter struct {
	position pipeline.Position
	reached  chan struct{}
}

func (p *progress) get() pipeline.Position {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.position
}

func (p *progress) set(position pipeline.Position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if position <= p.position {
		return
	}
	p.position = position
	for w := range p.waiters {
		if w.position <= position {
			close(w.reached)
			delete(p.waiters, w)
		}
	}
}

// wait blocks until the position is reached, or ctx ends (its error).
func (p *progress) wait(ctx context.Context, position pipeline.Position) error {
	p.mu.Lock()
	if position <= p.position {
		p.mu.Unlock()
		return nil
	}
	w := &waiter{position, make(chan struct{})}
	if p.waiters == nil {
		p.waiters = make(map[*waiter]struct{})
	}
	p.waiters[w] = struct{}{}
	p.mu.Unlock()
	select {
	case <-w.reached:
		return nil
	case <-ctx.Done():
		p.mu.Lock()
		delete(p.waiters, w)
		p.mu.Unlock()
		return ctx.Err()
	}
}
