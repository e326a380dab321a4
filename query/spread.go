package query

import (
	"context"
	"errors"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

var (
	// ErrFar: a part of the answer is on another node, and the asker did not allow to ask
	// it. [Spread.Far] has the answer.
	ErrFar = errors.New("query: a part of the answer is on another node")
	// ErrBehind: the nodes that hold what was asked did not reach the position in
	// the time that was given.
	ErrBehind = errors.New("query: the position was not reached in time by the nodes that hold what was asked")
	// ErrNobody: no node is known that holds anything.
	ErrNobody = errors.New("query: no node that holds counters is known")
)

// Spread is a Reader of several nodes. Its own methods answer from what this
// process holds, in no more time than a Reader takes, and return an error that
// wraps [ErrFar] as soon as they see that a part is elsewhere.
//
// Applied is a position that every later answer of those methods reflects, or, in a
// process that holds nothing, one that some node has reached; WaitApplied waits
// for the same. Neither says anything of what other nodes answer: for that the
// position goes to Far.
type Spread interface {
	Reader

	// Far is the same state, with other nodes asked for what is not here. Its
	// methods block for as long as that takes, until ctx's deadline at most: what
	// nobody has answered by then is missing. disk must be true. Every part of an
	// answer reflects p; where the nodes that hold a part do not reach it until
	// `until`, the error wraps [ErrBehind]. Where no node holds anything it wraps
	// [ErrNobody].
	Far(p pipeline.Position, until time.Time) Reader

	// Lags says that this process is behind the log with some of what it holds while
	// other nodes are not: a position that it has not reached is better asked of Far
	// at once. It must cost no more than a few loads.
	Lags() bool

	// WaitVisible blocks until every later answer about user reflects p: until
	// all nodes that may be asked about that user have applied it. It returns
	// ctx's error when ctx ends first; any other means that it is not known.
	WaitVisible(ctx context.Context, user uint64, p pipeline.Position) error
}
