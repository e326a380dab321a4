package sinks

import (
	"context"
	"sync"
)

// progress is a position, or a count, that only grows, with its waiters.
type progress[T ~uint64] struct {
	mu      sync.Mutex
	at      T
	waiters map[*waiter[T]]struct{}
}

type waiter[T ~uint64] struct {
	at      T
	reached chan struct{}
}

func (p *progress[T]) get() T {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at
}

func (p *progress[T]) set(to T) { p.move(func(T) T { return to }) }

// move sets it to what a function makes of where it stands. Nothing moves it
// while the function runs.
func (p *progress[T]) move(to func(at T) T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := to(p.at)
	if at <= p.at {
		return
	}
	p.at = at
	for w := range p.waiters {
		if w.at <= at {
			close(w.reached)
			delete(p.waiters, w)
		}
	}
}

// wait blocks until it is reached, or ctx ends (its error).
func (p *progress[T]) wait(ctx context.Context, at T) error {
	p.mu.Lock()
	if at <= p.at {
		p.mu.Unlock()
		return nil
	}
	w := &waiter[T]{at, make(chan struct{})}
	if p.waiters == nil {
		p.waiters = make(map[*waiter[T]]struct{})
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
