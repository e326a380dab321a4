package node

import (
	"context"
	"log/slog"
	"sync"

	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/archive"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// history is all of EVENTS: what the stream holds and, of what was trimmed from its
// beginning, what was archived (nats.streams.events.archive). All
// readers of EVENTS use it: the router, shards that catch up, the audit, explanations.
type history struct {
	*archive.History
	streams *jetlog.Streams
	log     *slog.Logger

	mu   sync.Mutex
	said kit.Paced
}

// newHistory is one with an archive in a directory; "": nothing is archived. some: it
// is read a little here and a little there.
func newHistory(streams *jetlog.Streams, dir string, some bool, log *slog.Logger) *history {
	h := &history{streams: streams, log: log, History: &archive.History{Some: some, State: func(ctx context.Context) (archive.Stream, error) {
		state, err := streams.State(ctx, jetlog.EventsStream)
		return streamOf(state), err
	}}}
	if dir != "" {
		h.Archive = func() (*archive.Directory, error) { return archive.OpenDirectory(dir) }
	}
	return h
}

func streamOf(s jetlog.StreamState) archive.Stream {
	return archive.Stream{First: s.First, Created: s.Created, After: s.Continues.After, Before: s.Continues.Events}
}

// events is EVENTS with its history. It implements pipeline.Events.
type events struct {
	*jetlog.Events
	history *history
}

var _ pipeline.Events = events{}

// eventsIn reads EVENTS and its history in runs within the options.
func (g *generation) eventsIn(o jetlog.RunOptions) events {
	return events{jetlog.NewEvents(g.streams, o), g.history}
}

// Open implements pipeline.Events.
func (e events) Open(ctx context.Context, from pipeline.Position) (pipeline.Source, error) {
	return e.history.Open(ctx, from, e.Events.Open)
}

// first is the first message that can be read, of an EVENTS that is so.
func (h *history) first(state jetlog.StreamState) (uint64, error) { return h.First(streamOf(state)) }

// begins is first. Where there is an archive that cannot be read, that is logged, and
// the stream's own is the first.
func (h *history) begins(state jetlog.StreamState) uint64 {
	first, err := h.first(state)
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
