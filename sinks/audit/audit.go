// Package audit holds what is served to the log: it derives ids again from
// EVENTS, keeps what follows in maps, the simplest form that is right, and
// compares that with what is read of the shards, at exactly one position.
//
//	EVENTS ─► lane ─► windows ─► ledger: the sampled ids, in maps ─┐
//	                                                               ├─► differences
//	shards ─► facts of some ids, as of position P ─────────────────┘
//	             the ledger is brought to P before they are compared
//
// Where the log has lost its beginning the ledger begins with a base: what was counted
// up to there, of the same ids.
//
// What the log says of an event is the operators' (they derive windows, as
// everywhere). What windows do to rows, lists and marks is written here a second
// time, apart from the shards: a fault in either is found, and so are rows that
// have changed in memory or on disk by no event. An id that no event has ever
// named is looked at only when it is asked for, or all that is stored is (stored.go).
//
// sample.go says which ids, ledger.go, sets.go and part.go keep them, derive.go brings the ledger on,
// compare.go compares, run.go is one audit, loop.go the one that never ends.
package audit

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync/atomic"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Served is what is audited: the shards that this process answers for, and the
// channels. Its methods may be called while windows are applied.
type Served interface {
	// Answering are the shards that answer, ascending.
	Answering() []pipeline.Shard
	// Facts gives what is served of ids of one shard exactly as of the position `at`, which
	// never goes back. Followers come by user and id; more says that there are others after
	// those that came, which are some then. yield must return at once. It is an error when
	// the shard does not answer, or no longer does.
	Facts(ctx context.Context, ask *pipeline.FactsAsk, yield func(pipeline.Fact)) (at pipeline.Position, more bool, err error)
	// Stored are ids that a shard has something of on disk, some more often than once.
	// After an error, as of a shard that does not answer, there are no more.
	Stored(s pipeline.Shard) iter.Seq2[uint64, error]
	// ChannelNames are the channels that are open.
	ChannelNames() []string
}

// Limits are what the configuration says about lists and ages.
type Limits struct {
	PostsMax, PostsKept int      // newest posts of an author that count, that are kept; kept 0: all
	Retention, Inactive int64    // seconds of log time
	Channels, Notices   int      // open channels, notices of one; 0: no bound
	Configured          []string // channels that are always open
	Cursors             int      // channels that one user has cursors in; 0: no bound
}

// Auditor derives and compares. It may do so for several callers at a time.
type Auditor struct {
	Served Served
	// Open reads EVENTS on after a position; an error that wraps pipeline.ErrGap
	// says that what comes there is gone.
	Open func(ctx context.Context, from pipeline.Position) (pipeline.Source, error)
	Lane func() pipeline.Deriver // that derives for Shards shards
	// Bases are what a derivation may begin with, the best first; none, or a nil
	// func: with nothing, as the log has its first event. An error that wraps
	// ErrBeginning says that it has not, and why there is no base.
	Bases  func(ctx context.Context) ([]Base, error)
	Schema *pipeline.Schema
	Shards int
	Limits Limits
	Logger *slog.Logger
	Stats  Stats

	refused atomic.Value // string: why a base could not be used, as last logged
}

// Base is what was counted before a part of the log that is gone: where a derivation
// begins instead of with nothing. What was wrong in it already is not found.
type Base interface {
	String() string
	// Stands are where each shard stands in it, and last the channels and log time.
	Stands() []pipeline.Position
	// Log reads the events that the base has itself, from where the lowest shard
	// stands to Position; behind that the log goes on.
	Log() (pipeline.Source, error)
	Position() pipeline.Position
	// Marks are log time, as far back as ages reach.
	Marks(ctx context.Context) ([]pipeline.TimeMark, error)
	// Facts gives all facts of ids of a shard, those for which keep holds, which is
	// asked for each fact: of ids, which ascend, or, where that is nil, of all. Shard Shards: notices, by position.
	Facts(ctx context.Context, shard pipeline.Shard, ids []uint64, keep func(id uint64) bool, yield func(pipeline.Fact)) error
}

// Stats are figures since the process started.
type Stats struct {
	Events  atomic.Uint64 // read from the log
	IDs     atomic.Uint64 // compared, each with all that is known of it
	Differ  atomic.Uint64 // of these, differed
	Passes  atomic.Uint64 // samples done by the loop
	FullAt  atomic.Int64  // wall clock, Unix ms, of when the loop had last done all samples; 0: never
	Refused atomic.Bool   // the loop cannot derive: the log lacks its beginning, and there is no base
}

// Errors.
var (
	// ErrBeginning: EVENTS does not hold what ids were counted from, and there is no base.
	ErrBeginning = errors.New("audit: the log does not hold its beginning")
	// ErrMemory: one id alone does not fit into the memory given.
	ErrMemory = errors.New("audit: too little memory")
)

// Difference is one number that is not what the log says. What is absent is 0 of
// a cell, a mark or a cursor, and -1 of an entry of a list.
type Difference struct {
	Counter string            `json:"counter"` // its name; or what else it is: see difference
	ID      uint64            `json:"id,string"`
	Column  string            `json:"column"` // of the counter; of a list, the other id; of a mark or cursor, its name
	Is      int64             `json:"is"`
	Should  int64             `json:"should"`
	At      pipeline.Position `json:"at,string"`
	Shard   pipeline.Shard    `json:"-"`
	cell    bool              // of a counter

	// Whose it is, where several were asked: the caller fills it in.
	Node       string `json:"node,omitempty"`
	Generation uint32 `json:"generation,omitempty"`
}

// Name is what kind of number it is: "post.like", or "following", "follower",
// "listed post", "mark", "cursor", "notice".
func (d *Difference) Name() string {
	if d.cell {
		return d.Counter + "." + d.Column
	}
	return d.Counter
}
