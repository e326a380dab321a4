package check

import (
	"context"
	"slices"
	"sync"
)

// SearchBytes is what one explanation may hold of the log: a run that is read and what is
// kept of it, or messages that are fetched side by side.
const SearchBytes = lookUps << 20

// room is for how many explanations there is memory at a time. The others wait, and go on
// in the order in which they came.
type room struct {
	bytes func() int // that all may take together; nil: no bound

	mu      sync.Mutex
	taken   int             // by so many
	waiting []chan struct{} // each closed when its turn has come
}

// enter waits until there is memory.
func (r *room) enter(ctx context.Context) error {
	turn := make(chan struct{})
	r.mu.Lock()
	r.waiting = append(r.waiting, turn)
	r.admitLocked()
	r.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := slices.Index(r.waiting, turn); at >= 0 {
		r.waiting = slices.Delete(r.waiting, at, at+1)
	} else { // it came just now
		r.leaveLocked()
	}
	return ctx.Err()
}

func (r *room) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaveLocked()
}

func (r *room) leaveLocked() {
	r.taken--
	r.admitLocked()
}

// admitLocked lets waiting explanations in, as far as there is memory. One alone may
// always go on, however little there is, so one that waits, waits for one that ends.
func (r *room) admitLocked() {
	for len(r.waiting) > 0 && (r.taken == 0 || r.bytes == nil || (r.taken+1)*SearchBytes <= r.bytes()) {
		close(r.waiting[0])
		r.waiting = slices.Delete(r.waiting, 0, 1)
		r.taken++
	}
}

// Bytes is what those that run may hold.
func (x *Explainer) Bytes() int {
	x.room.mu.Lock()
	defer x.room.mu.Unlock()
	return x.room.taken * SearchBytes
}
