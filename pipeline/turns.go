package pipeline

import "runtime"

// Turns bound how many goroutines compute at once, of those that do one thing
// together. nil: as many as there are.
//
// Who has a turn must not wait for another one to get one.
type Turns chan struct{}

// NewTurns are so many at once.
func NewTurns(n int) Turns { return make(Turns, n) }

// Take returns once it is the caller's turn; Give must follow.
func (t Turns) Take() {
	if t != nil {
		t <- struct{}{}
	}
}

// Give ends the turn. Whoever waits for a processor has it before the caller goes
// on.
func (t Turns) Give() {
	if t != nil {
		<-t
		runtime.Gosched()
	}
}

// Aside waits for something, in the caller's turn: others have it meanwhile.
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
