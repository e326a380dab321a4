// Package check says what the log says of some ids, and compares that with what is served.
//
//	EVENTS ─► lane ─► windows, of the chosen ids ─► shards, in memory and scratch files ─┐
//	                                                                                    ├─► differences
//	what is served: facts of some ids, as of position P ─────────────────────────────────┘
//	                the derivation is brought to P before they are compared
//
// What the log says is derived in one way (derive.go): the operators derive windows, as
// everywhere, and private shards of the code that serves apply them. Where the log has lost
// its beginning, these shards begin with those of a backup, the base. What an event means is
// thus written once in the product; that this is right is held by the model of the tests.
//
// compare.go compares, run.go is one audit, loop.go the one that never ends.
package check

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync/atomic"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/backup"
	"github.com/tidemark-io/tidemark/sinks/shard"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

// Served is what is audited: the shards that this process answers for, and the
// channels. Its methods may be called while windows are applied.
type Served interface {
	// Answering are the shards that answer, ascending.
	Answering() []pipeline.Shard
	// Facts gives what is served of ids of one shard exactly as of the position `at`, which
	// never goes back. Members come by id and member; more says that there are others after
	// those that came, which are some then. yield must return at once. It is an error when
	// the shard does not answer, or no longer does.
	Facts(ctx context.Context, ask *tier.FactsAsk, yield func(tier.Fact)) (at pipeline.Position, more bool, err error)
	// Stored are the ids that a shard has something of on disk, ascending.
	// After an error, as of a shard that does not answer, there are no more.
	Stored(s pipeline.Shard) iter.Seq2[tier.Stored, error]
	// ChannelNames are the channels that are open.
	ChannelNames() []string
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
	Bases func(ctx context.Context) ([]*backup.Base, error)
	// Filters are asked which stretches of EVENTS have none of a few ids; nil: all is read.
	Filters *Explainer
	Schema  *pipeline.Schema
	Shards  int

	// What the configuration says about lists, ages and channels, as for sinks.Options.
	Users         shard.Limits
	Channels      shard.ChannelLimits
	Notices, Dots []string

	Dir    string                  // where what does not fit into memory is, in files without names
	Room   func(bytes int64) error // says why Dir has no room for so many; nil: it has
	Logger *slog.Logger
	Stats  Stats

	refused atomic.Value // string: why a base could not be used, as last logged
}

// Stats are figures since the process started.
type Stats struct {
	Events     atomic.Uint64 // read from the log
	IDs        atomic.Uint64 // compared, each with all that is known of it
	Differ     atomic.Uint64 // of these, differed
	PassedOver atomic.Uint64 // stretches of the log without what is asked for
	Spills     atomic.Uint64 // times that what is derived went to scratch files for want of memory
	Passes     atomic.Uint64 // samples done by the loop
	FullAt     atomic.Int64  // wall clock, Unix ms, of when the loop had last done all samples; 0: never
	Refused    atomic.Bool   // the loop cannot derive: the log lacks its beginning, and there is no base
}

// ErrBeginning: EVENTS does not hold what ids were counted from, and there is no base.
var ErrBeginning = errors.New("check: the log does not hold its beginning")

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
