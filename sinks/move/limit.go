package move

import (
	"context"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/internal/kit"
)

// Limiter keeps all moves of a node below a rate together. A nil Limiter does
// not limit.
type Limiter struct {
	rate float64 // bytes a second

	mu      sync.Mutex
	free    time.Time // when what was let through so far is over
	waiting int       // for their turn
}

const (
	// turnSeconds is how long the bytes of one turn take at most where nobody else
	// waits; of many that wait, each takes its part of that. A turn must come well
	// within exportIdle: over there an export that nobody reads is closed.
	turnSeconds = 2
	turnMin     = 1 << 10
)

// Turn is how many bytes to ask for at a time.
func (l *Limiter) Turn() int64 {
	if l == nil {
		return chunkMax
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(max(int64(l.rate*turnSeconds)/int64(l.waiting+1), turnMin), chunkMax)
}

// NewLimiter makes a limiter of a rate in bytes a second; 0: nil.
func NewLimiter(rate int64) *Limiter {
	if rate <= 0 {
		return nil
	}
	return &Limiter{rate: float64(rate)}
}

// Wait returns when so many bytes may come. Nothing is saved up: after a rest
// the rate is what it was.
func (l *Limiter) Wait(ctx context.Context, bytes int) error {
	if l == nil {
		return ctx.Err()
	}
	l.mu.Lock()
	now := time.Now()
	begin := l.free
	if begin.Before(now) {
		begin = now
	}
	l.free = begin.Add(time.Duration(float64(bytes) / l.rate * float64(time.Second)))
	l.waiting++
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.waiting--
		l.mu.Unlock()
	}()
	return kit.Sleep(ctx, begin.Sub(now))
}
