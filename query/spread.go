package query

import (
	"context"
	"errors"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

var (
	// ErrFar: a part of the answer is on another node, and whoever asked did not
	// allow to ask it. [Spread.Far] has the answer.
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
	// ctx's error when ctx ends first; any other means that it cannot be told.
	WaitVisible(ctx context.Context, user uint64, p pipeline.Position) error
}

// onNodes is the answer of an endpoint whose Reader returned ErrFar. It goes to
// nobody: the call is answered again, by asking the nodes.
var onNodes = &failure{code: codeInternal, message: "a part of the answer is on another node, and nobody asked it"}

// admitFar takes a call into the lane of those that wait for other nodes.
func (s *Service) admitFar(c *call) *failure {
	f := s.far.admit(c)
	if f != nil {
		s.metrics.farRefused.Inc()
		return f
	}
	s.metrics.far.Inc()
	return nil
}

// admitFurther takes a call whose answer is not in memory here into the lane
// where it is answered.
func (s *Service) admitFurther(c *call, f *failure) *failure {
	switch f {
	case onDisk:
		return s.admitCold(c)
	case onNodes:
		return s.admitFar(c)
	}
	return f
}

// further answers a call whose answer turned out not to be in memory here.
func (s *Service) further(c *call, f *failure) *failure {
	switch f {
	case onDisk:
		return s.fromDisk(c)
	case onNodes:
		c.leave()
		if f := s.admitFar(c); f != nil {
			return f
		}
		return s.fromNodes(c)
	}
	return f
}

// fromNodes answers a call that has a place in the far lane.
func (s *Service) fromNodes(c *call) *failure {
	until := c.clock.start.Add(s.timeout(c)) // for the position
	gone := time.Now().Add(s.patience(c))
	if c.wait.position > 0 {
		gone = later(until, c.clock.start.Add(s.limits.Timeout))
	}
	ctx, cancel := context.WithDeadline(s.reading, gone)
	defer cancel()
	c.reader, c.away, c.disk = s.spread.Far(c.wait.position, until), true, true
	return c.endpoint.answer(ctx, c)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// visible waits until every later query sees a user's read.
func (s *Service) visible(ctx context.Context, user uint64, p pipeline.Position) error {
	if s.spread != nil {
		return s.spread.WaitVisible(ctx, user, p)
	}
	return s.reader.WaitApplied(ctx, p)
}

// notWhole refuses an answer that is not whole to who does not want one: of
// `of` ids, missing cannot be read; one of them is id.
func (c *call) notWhole(missing, of int, id uint64) *failure {
	if !c.wait.whole || missing == 0 {
		return nil
	}
	if of == 1 {
		return fail(codeNotReady, "not whole, and partial is false: %d, or a part of it, cannot be read now", id)
	}
	return fail(codeNotReady, "not whole, and partial is false: %d of %d cannot be read now, among them %d", missing, of, id)
}
