// Package hands has work done by goroutines that are kept when they have none.
package hands

import "context"

// Hands do work, each in a goroutine of its own. Some of those are kept when their
// work is done: their stacks have grown to what it takes, which for a new goroutine is
// a tenth of a small work.
type Hands struct {
	ctx  context.Context
	next chan func()   // to a goroutine that is idle
	idle chan struct{} // a place for each of those
}

// New are hands of which so many wait for work at most, until ctx ends.
func New(ctx context.Context, idle int) *Hands {
	return &Hands{ctx, make(chan func()), make(chan struct{}, idle)}
}

// Do has work done at once, also when ctx has ended, and does not wait for it. A caller
// that must know when it is done has it say so.
func (h *Hands) Do(work func()) {
	select {
	case h.next <- work:
	default:
		go func() {
			for work := work; work != nil; work = h.wait() {
				work()
			}
		}()
	}
}

// wait returns the next work; nil: there is none, or enough others wait.
func (h *Hands) wait() func() {
	select {
	case h.idle <- struct{}{}:
	default:
		return nil
	}
	defer func() { <-h.idle }()
	select {
	case work := <-h.next:
		return work
	case <-h.ctx.Done():
		return nil
	}
}
