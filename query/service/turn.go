package service

import (
	"context"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// turnPatience is how long a request waits for its turn at most: then it computes
// beside the one that has it. As a rule a maximal request takes a tenth of that.
const turnPatience = 100 * time.Millisecond

type turns struct {
	pipeline.Turns
	patience time.Duration
}

// inTurn waits for the call's turn, which done ends. Each lane has workers of its
// own, so that requests of one kind do not wait for all those of another; without
// turns, the workers of all lanes would keep more goroutines computing than there
// are processors, and a small request would wait for one of them at each step of
// its way.
func (s *Service) inTurn(c *call) (done func()) {
	taken := s.turns.TakeWithin(s.turns.patience)
	c.clock.lap(stageTurn)
	if !taken {
		return func() {}
	}
	return s.turns.Give
}

// turn does some milliseconds of work of an explanation in a turn.
func (s *Service) turn(work func()) {
	if s.turns.TakeWithin(s.turns.patience) {
		defer s.turns.Give()
	}
	work()
}

// views answers in a turn, in the subscription's goroutine: figures and lists that
// take milliseconds.
func (s *Service) views(answer func(context.Context, *call) *failure) func(context.Context, *call) *failure {
	return func(ctx context.Context, c *call) *failure {
		defer s.inTurn(c)()
		return answer(ctx, c)
	}
}
