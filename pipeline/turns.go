package pipeline

import (
	"runtime"
	"time"
)

// Turns bound how many goroutines compute at once, of those that do one thing
// together. nil: as many as there are.
//
// A goroutine that holds a turn must not block on another goroutine's Take.
type Turns chan struct{}

// NewTurns are so many at once.
func NewTurns(n int) Turns { return make(Turns, n) }

// Take returns once it is the caller's turn; Give must follow.
func (t Turns) Take() {
	if t != nil {
		t <- struct{}{}
	}
}

// TakeWithin is Take for a caller that does not wait for longer than patience:
// false means that it has no turn, and Give must not follow.
func (t Turns) TakeWithin(patience time.Duration) bool {
	if t == nil {
		return false
	}
	select {
	case t <- struct{}{}:
		return true
	default:
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case t <- struct{}{}:
		return true
	case <-late.C:
		return false
	}
}

// Give ends the turn. A goroutine that waits for a processor gets it before the caller
// goes on.
func (t Turns) Give() {
	if t != nil {
		<-t
		runtime.Gosched()
	}
}

// Aside waits for something, in the caller's turn: others have it for that time.
func (t Turns) Aside(wait func()) {
	t.Give()
	defer t.Take()
	wait()
}

// Do works for a turn: some milliseconds, so that no other one waits for long.
func (t Turns) Do(work func()) {
	t.Take()
	defer t.Give()
	work()
}
