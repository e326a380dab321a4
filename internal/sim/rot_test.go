package sim

import (
	"context"

	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// rot takes a message away from the middle of EVENTS that the end of DELTAS has not come to:
// a router has it in hand, and counts it, or passes over it.
func (w *world) rot() error {
	tail, _, err := w.server.NewClient(-1, nil).Deltas().Tail(context.Background())
	if err != nil {
		return nil // there is no leader now
	}
	first, last := tail.To.Next(), w.server.State(jetlog.EventsStream).Last
	if first <= 1 || last <= first { // not the first of all, nor the last, which the fake does not miss
		return nil
	}
	lost := first + w.rand.Uint64N(last-first)
	w.note("rot %d", lost)
	w.server.Delete(jetlog.EventsStream, lost)
	return nil
}

// oddHeaders are what producers send beside their events: headers that cannot be decoded
// come as none.
var oddHeaders = []map[string][]string{nil, nil, {"Status": {"404"}}, {"Tidemark-Moved": {"1 1"}}, {"Tidemark-Type": {"follow"}}}
