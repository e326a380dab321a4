// Package history reads all of EVENTS: what the stream holds and, of what was trimmed from
// its beginning, what was archived (nats.streams.events.archive). All readers of EVENTS use
// it: the router, shards that catch up, the audit, explanations.
//
// [History.Lacks] says why a generation cannot be counted from it from the beginning (lacks.go).
//
// [New] makes a [History] of open streams; it holds nothing that has to be closed, and is
// safe for concurrent use. [Whole] reads it in runs, as pipeline.Events.
package history

import (
	"context"
	"log/slog"
	"sync"

	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/archive"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// History is all of EVENTS. It opens the archive when it needs it.
type History struct {
	*archive.History
	Streams *jetlog.Streams
	log     *slog.Logger

	mu   sync.Mutex
	said kit.Paced // guarded by mu
}

// New makes a History with an archive in a directory; "": nothing is archived. some: its
// readers read a little in many places, as explanations do.
func New(streams *jetlog.Streams, dir string, some bool, log *slog.Logger) *History {
	h := &History{Streams: streams, log: log, History: &archive.History{Some: some, State: func(ctx context.Context) (archive.Stream, error) {
		state, err := streams.State(ctx, jetlog.EventsStream)
		return StreamOf(state), err
	}}}
	if dir != "" {
		h.Archive = func() (*archive.Directory, error) { return archive.OpenDirectory(dir) }
	}
	return h
}

// StreamOf is a state of EVENTS in the words of the archive.
func StreamOf(s jetlog.StreamState) archive.Stream {
	return archive.Stream{First: s.First, Created: s.Created, After: s.Continues.After, Before: s.Continues.Events}
}

// Whole is EVENTS with its history. It implements pipeline.Events.
type Whole struct {
	*jetlog.Events
	History *History
}

var _ pipeline.Events = Whole{}

// Open implements pipeline.Events.
func (w Whole) Open(ctx context.Context, from pipeline.Position) (pipeline.Source, error) {
	return w.History.Open(ctx, from, w.Events.Open)
}

// ReadThrough reads all events up to a message, 0 for none, and fails where one is missing.
func (w Whole) ReadThrough(ctx context.Context, last uint64) error {
	if last == 0 {
		return nil
	}
	source, err := w.Open(ctx, 0)
	if err != nil {
		return err
	}
	defer source.Close()
	for read := uint64(0); read < last; {
		messages, err := source.Next(ctx)
		if err != nil {
			return err
		}
		read = messages[len(messages)-1].Sequence
	}
	return nil
}

// FirstOf is the first message that can be read of an EVENTS in a state.
func (h *History) FirstOf(state jetlog.StreamState) (uint64, error) { return h.First(StreamOf(state)) }

// Begins is FirstOf. If there is an archive and it cannot be read, Begins logs that and
// returns the first message of the stream.
func (h *History) Begins(state jetlog.StreamState) uint64 {
	first, err := h.FirstOf(state)
	if err == nil {
		return first
	}
	h.mu.Lock()
	tell := h.said.Due(err.Error())
	h.mu.Unlock()
	if tell {
		h.log.Error("tidemark: what was archived of EVENTS cannot be read", "error", err)
	}
	return state.First
}
