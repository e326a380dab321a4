package explain

import (
	"context"
	"sync"
)

// SearchBytes is what one explanation may hold of the log: the part that is read and
// three that are opened ahead of it (aheadMax), each of two requests of 2 MiB (jetlog.Parts).
const SearchBytes = (1 + aheadMax) * 4 << 20

// room is for how many explanations there is memory at a time. The others wait.
type room struct {
	bytes func() int // that all may take together; nil: no bound

	mu    sync.Mutex
	taken int           // by so many
	freed chan struct{} // closed when one has ended; nil: nobody waits
}

// enter waits until there is memory. One alone may always go on, however little there is.
func (r *room) enter(ctx context.Context) error {
	for {
		freed := r.try()
		if freed == nil {
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// try enters, or says what to wait for.
func (r *room) try() (freed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken == 0 || r.bytes == nil || (r.taken+1)*SearchBytes <= r.bytes() {
		r.taken++
		return nil
	}
	if r.freed == nil {
		r.freed = make(chan struct{})
	}
	return r.freed
}

func (r *room) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken--
	if r.freed != nil {
		close(r.freed)
		r.freed = nil
	}
}

// Bytes is what those that run may hold.
func (x *Explainer) Bytes() int {
	x.room.mu.Lock()
	defer x.room.mu.Unlock()
	return x.room.taken * SearchBytes
}
