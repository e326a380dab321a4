package query

import (
	"context"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Explainer reads in the log which events are behind a number. Explain may be
// called concurrently. It blocks for as long as it reads, until ctx ends at most.
type Explainer interface {
	Explain(ctx context.Context, ask *ExplainAsk, out *Explanation) error
}

// ExplainAsk asks for one page.
type ExplainAsk struct {
	ID      uint64
	Columns []pipeline.Column // of ID's rows, all of one counter; none: sets alone

	// Members are events behind numbers that are sizes of sets, newest first. Those
	// below Upto are not all of them; 0: they are all.
	Members []SetEvent
	Upto    pipeline.Position

	AsOf   pipeline.Position // the number is as of this
	Before pipeline.Position // events before this are listed
	Limit  int
	// Differences asks for what was really added, also where a number was set:
	// changes of several columns can be added up then.
	Differences bool
	Turn        func(work func()) // does what takes a processor, some milliseconds at a time, when it may
	Soft        time.Time         // when a page ends with what has been found; ctx ends later
}

// SetEvent is an event behind a number that is the size of a set. It is an operation
// of a kind, about ids: a post of an author ID, a notice ID in a channel; or the read
// of user ID that a mark may come from.
type SetEvent struct {
	Position  pipeline.Position
	Number    int // its place
	Op        pipeline.Op
	ID, Other uint64
	Channel   string
	Change    NumberChange
}

// SetChange is what an event did to the size of a set.
type SetChange struct {
	Number int // its place
	NumberChange
}

// Explanation is a page.
type Explanation struct {
	Events []ExplainedEvent // newest first
	// Next is where the next page begins: before it there may be more. 0: there
	// is none.
	Next pipeline.Position
	// Base is the position up to which messages were removed; 0: it
	// is whole.
	Base pipeline.Position
	Read int // messages that were read
}

// ExplainedEvent is an event and what it changed.
type ExplainedEvent struct {
	Position pipeline.Position
	Time     int64 // of the log, Unix ms
	Type     string
	Body     []byte         // nil where it is longer than ExplainBodyMax
	Bytes    int            // of the body
	Changes  []NumberChange // of the columns, in their order
	Sets     []SetChange    // of sets
}

// ExplainBodyMax is the longest event that is shown.
const ExplainBodyMax = 64 << 10

// NumberChange is what an event did to a number.
type NumberChange struct {
	Touched bool
	Set     bool  // to N; else N was added
	N       int64 // as stored
	// Unsure: what it depends on was not found in time, or is no longer in the log. N is
	// what the event says.
	Unsure bool
}
