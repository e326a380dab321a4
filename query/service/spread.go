package service

import (
	"context"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

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

// notWhole refuses an answer that is not whole where the request wants none: of
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
