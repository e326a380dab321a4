package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/archive"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// history is all of EVENTS: what the stream holds and, of what was trimmed from its
// beginning, what was archived (nats.streams.events.archive). Whoever reads EVENTS
// reads it through this: the router and those who catch up, the audit, explanations.
// What the stream still holds is read there.
type history struct {
	streams *jetlog.Streams
	dir     string // "": nothing is archived
	some    bool   // it is read a little here and a little there
	log     *slog.Logger

	mu       sync.Mutex
	archived *archive.Directory // as it was when last opened; nil: it was not yet
	said     paced

	keeping atomic.Pointer[archive.Directory] // archived, where what was read of it is kept
}

// events is EVENTS with its history. It implements pipeline.Events.
type events struct {
	*jetlog.Events
	history *history
}

var _ pipeline.Events = events{}

// eventsIn reads EVENTS and its history in runs within the options.
func (n *generation) eventsIn(o jetlog.RunOptions) events {
	return events{jetlog.NewEvents(n.streams, o), n.history}
}

// Open implements pipeline.Events.
func (e events) Open(ctx context.Context, from pipeline.Position) (pipeline.Source, error) {
	return e.history.open(ctx, from, e.Events.Open)
}

// open opens the stream or, where that lacks what comes after from, the archive and
// after it the stream. An error that wraps pipeline.ErrGap says what is missing.
func (h *history) open(ctx context.Context, from pipeline.Position, stream func(context.Context, pipeline.Position) (pipeline.Source, error)) (pipeline.Source, error) {
	source, err := stream(ctx, from)
	if err == nil {
		return source, nil
	}
	if h.dir == "" || !errors.Is(err, pipeline.ErrGap) {
		return nil, err
	}
	state, serr := h.streams.State(ctx, jetlog.EventsStream)
	if serr != nil {
		return nil, serr
	}
	d, aerr := h.joined(state)
	if aerr != nil {
		return nil, aerr
	}
	_, last, _ := d.Extent()
	if from.Next() > last { // it is not the beginning that is gone
		return nil, err
	}
	// By then more may be archived, and trimmed.
	return d.Then(from, func() (pipeline.Source, error) { return h.open(ctx, pipeline.EndOf(last), stream) })
}

// joined is the archive, if the stream goes on where it ends or before.
func (h *history) joined(state jetlog.StreamState) (*archive.Directory, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.archived != nil && h.joins(h.archived, state) == nil {
		return h.archived, nil
	}
	d, err := archive.OpenDirectory(h.dir)
	if err == nil {
		err = h.joins(d, state)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: EVENTS begins with message %d, and what was archived (nats.streams.events.archive) cannot be read before it: %w", pipeline.ErrGap, state.First, err)
	}
	if h.some {
		d = d.Keeping()
		h.keeping.Store(d)
	}
	h.archived = d
	return d, nil
}

// kept is the memory of what was read of the archive.
func (h *history) kept() int {
	if d := h.keeping.Load(); d != nil {
		return d.Bytes()
	}
	return 0
}

// joins says what keeps an archive from being read before the stream.
func (h *history) joins(d *archive.Directory, state jetlog.StreamState) error {
	_, last, of := d.Extent()
	goesOn := of.Equal(state.Continues.Events) && last <= state.Continues.After
	switch {
	case last == 0:
		return fmt.Errorf("there is nothing in %s", h.dir)
	case !of.Equal(state.Created) && !goesOn:
		return fmt.Errorf("%s is of the EVENTS created at %v, and this one was created at %v", h.dir, of, state.Created)
	case last+1 < state.First:
		return fmt.Errorf("%s ends with message %d: messages %d to %d are in neither", h.dir, last, last+1, state.First-1)
	}
	return nil
}

// first is the first message that can be read, of an EVENTS that is so.
func (h *history) first(state jetlog.StreamState) (uint64, error) {
	if h.dir == "" || state.First <= 1 {
		return state.First, nil
	}
	d, err := h.joined(state)
	if err != nil {
		return 0, err
	}
	first, _, _ := d.Extent()
	return min(first, state.First), nil
}

// begins is first. Where there is an archive that cannot be read, that is logged, and
// the stream's own is the first.
func (h *history) begins(state jetlog.StreamState) uint64 {
	first, err := h.first(state)
	if err == nil {
		return first
	}
	h.mu.Lock()
	tell := h.said.tell(err.Error())
	h.mu.Unlock()
	if tell {
		h.log.Error("tidemark: what was archived of EVENTS cannot be read", "error", err)
	}
	return state.First
}
