package archive

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Stream is what of an EVENTS decides whether an archive can be read before it.
type Stream struct {
	First   uint64 // the message that it begins with
	Created time.Time
	// It goes on from another EVENTS, after a message of that; 0: from the first.
	After  uint64
	Before time.Time // when the other one was created; zero: it does not
}

// History is all of EVENTS: what the stream holds and, of what was trimmed from its
// beginning, what was archived. What the stream still holds is read there. It may be
// used concurrently.
type History struct {
	// Archive opens the archive as it is now; nil: nothing is archived.
	Archive func() (*Directory, error)
	// State looks at the stream.
	State func(ctx context.Context) (Stream, error)
	// Some says that it is read a little here and a little there (Keeping).
	Some bool

	mu       sync.Mutex
	archived *Directory // as it was when last opened; nil: it was not yet

	keeping atomic.Pointer[Directory] // archived, where what was read of it is kept
}

// Open reads on after from: the stream, which stream opens, or, where that lacks
// what comes after from, the archive and after it the stream. So it does where the stream
// is damaged and the archive has what it lacks. An error that wraps pipeline.ErrGap says
// what is missing.
func (h *History) Open(ctx context.Context, from pipeline.Position, stream func(context.Context, pipeline.Position) (pipeline.Source, error)) (pipeline.Source, error) {
	source, err := stream(ctx, from)
	switch {
	case err == nil && h.Archive == nil:
		return source, nil
	case err == nil:
		return &mendedSource{source, h, stream}, nil
	case h.Archive == nil || !errors.Is(err, pipeline.ErrGap):
		return nil, err
	}
	return h.openArchive(ctx, from, stream, err)
}

// openArchive reads on after from in the archive, and then in the stream, which failed.
func (h *History) openArchive(ctx context.Context, from pipeline.Position, stream func(context.Context, pipeline.Position) (pipeline.Source, error), err error) (pipeline.Source, error) {
	state, serr := h.State(ctx)
	if serr != nil {
		return nil, serr
	}
	d, aerr := h.joined(state, from.Next())
	if aerr != nil {
		if errors.Is(aerr, errNothing) {
			aerr = errors.Join(err, aerr)
		}
		return nil, aerr
	}
	_, last, _ := d.Extent()
	if from.Next() > last { // what is missing is not in the archive
		return nil, err
	}
	// By then more may be archived, and trimmed.
	return d.Then(from, func() (pipeline.Source, error) { return h.Open(ctx, pipeline.EndOf(last), stream) })
}

// mendedSource reads a stream and, from where that is damaged, the archive and after it
// the stream.
type mendedSource struct {
	pipeline.Source
	history *History
	stream  func(context.Context, pipeline.Position) (pipeline.Source, error)
}

// Next implements pipeline.Source.
func (s *mendedSource) Next(ctx context.Context) ([]pipeline.Message, error) {
	messages, err := s.Source.Next(ctx)
	hole, is := errors.AsType[*pipeline.Hole](err)
	if !is {
		return messages, err
	}
	source, mending := s.history.openArchive(ctx, pipeline.EndOf(hole.First-1), s.stream, err)
	if mending != nil {
		return nil, mending
	}
	_ = s.Source.Close()
	s.Source = source
	return s.Source.Next(ctx)
}

// joined is the archive, if the stream goes on where it ends or before. It is opened again
// if it did not have a message when it was.
func (h *History) joined(state Stream, message uint64) (*Directory, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.archived; d != nil && d.Joins(state) == nil {
		if _, last, _ := d.Extent(); message <= last {
			return d, nil
		}
	}
	d, err := h.Archive()
	if err == nil {
		err = d.Joins(state)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: EVENTS begins with message %d, and what was archived (nats.streams.events.archive) cannot be read before it: %w", pipeline.ErrGap, state.First, err)
	}
	if h.Some {
		d = d.Keeping()
		h.keeping.Store(d)
	}
	h.archived = d
	return d, nil
}

// Bytes is the memory of what was read of the archive and is kept.
func (h *History) Bytes() int {
	if d := h.keeping.Load(); d != nil {
		return d.Bytes()
	}
	return 0
}

// Forget lets go what is known of the archive: it is opened again.
func (h *History) Forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.archived = nil
}

// First is the first message that can be read, of an EVENTS that is so.
func (h *History) First(state Stream) (uint64, error) {
	if h.Archive == nil || state.First <= 1 {
		return state.First, nil
	}
	d, err := h.joined(state, state.First-1)
	if err != nil {
		return 0, err
	}
	first, _, _ := d.Extent()
	return min(first, state.First), nil
}

// Has is an error if the archive, as it can be read before an EVENTS that is so, ends before
// a message.
func (h *History) Has(state Stream, message uint64) error {
	if h.Archive == nil {
		return errors.New("there is no archive")
	}
	d, err := h.joined(state, message)
	if err != nil {
		return err
	}
	if _, last, _ := d.Extent(); last < message {
		return fmt.Errorf("%s ends with message %d", d.files, last)
	}
	return nil
}

// errNothing: nothing is archived yet.
var errNothing = errors.New("there is nothing")

// Joins says what keeps an archive from being read before a stream: no sequence
// means two events.
func (d *Directory) Joins(state Stream) error {
	_, last, of := d.Extent()
	goesOn := of.Equal(state.Before) && last <= state.After
	switch {
	case last == 0:
		return fmt.Errorf("%w in %s", errNothing, d.files)
	case !of.Equal(state.Created) && !goesOn:
		return fmt.Errorf("%s is of the EVENTS created at %v, and this one was created at %v", d.files, of, state.Created)
	case last+1 < state.First:
		return fmt.Errorf("%s ends with message %d: messages %d to %d are in neither", d.files, last, last+1, state.First-1)
	}
	return nil
}
