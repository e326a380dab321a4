package sim

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// schedule is a Gate that lets calls on one at a time, when it is told to. All
// else in a process runs between two of its calls, and does not depend on the
// order in which goroutines are woken: so in a synctest bubble, whose every
// goroutine waits here or for the clock, what happens is a function of what
// is let on when.
type schedule struct {
	mu      sync.Mutex
	waiting []*waiting
}

type waiting struct {
	*Call
	free chan Fate
}

// Pass implements Gate.
func (s *schedule) Pass(ctx context.Context, c *Call) (Fate, error) {
	if err := ctx.Err(); err != nil {
		return Fate{}, err
	}
	w := &waiting{c, make(chan Fate)}
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.mu.Unlock()
	select {
	case fate := <-w.free:
		return fate, nil
	case <-ctx.Done():
		s.drop(w)
		return Fate{}, ctx.Err()
	}
}

func (s *schedule) drop(w *waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(other *waiting) bool { return other == w })
}

// calls are those that wait, in an order that does not depend on who came
// first. Only to be called when everyone else waits.
func (s *schedule) calls() []*waiting {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(s.waiting, func(a, b *waiting) int {
		return cmp.Or(
			cmp.Compare(a.Process, b.Process), cmp.Compare(a.Turn, b.Turn),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key),
		)
	})
	return slices.Clone(s.waiting)
}

// let lets a call on.
func (s *schedule) let(w *waiting, fate Fate) {
	s.drop(w)
	w.free <- fate
}
