package service

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Requests wait for positions. Most wait for what they just wrote, which the
// log holds; they must find a place. A position that the log does not hold may
// be one that a client is about to write, or one that is never reached: those
// requests have places of their own, and far ahead there are none.
//
// Which of the two it is the log's end says, and the node's own figure of it is always
// a little old: what was acknowledged a moment ago is past it. So a request past the
// known end waits for a look at the log, in a place that it has for that long; one look
// serves all that wait for one. Until then nothing distinguishes an honest request from
// others, so these places are enough for all requests that arrive during a slow look.
const (
	// aheadMax is how far past its end, in messages, the log is waited for: more
	// than producers have under way at a time (nats.go alone lets 4,000 be), and
	// more than a power cut takes from the log within nats.sync_interval.
	aheadMax = 1 << 16
	// writtenPerSecond is more messages than any log takes in a second. With it
	// an old look, too, says that a message is too far ahead.
	writtenPerSecond = 1 << 20
	// lookEvery paces the looks: while few requests ask for what is not there,
	// the log's leader is asked a hundred times a second at most.
	lookEvery = 10 * time.Millisecond
	// lookSooner is how many requests wait when the next look does not.
	lookSooner = 1 << 10
	// lookAgain paces them while they fail.
	lookAgain = 250 * time.Millisecond
	// lookWithin bounds one.
	lookWithin = 2 * time.Second
	// unsureMax bounds the places in which requests wait for a look: as many as
	// one connection asks (250,000 a second) while two slow looks, of 15 ms,
	// follow each other.
	unsureMax = 1 << 13
	// unsurePlace is how many bytes of request take a place.
	unsurePlace = 4 << 10
)

// logEnd is the log's last message, as far as it is known, and a goroutine that
// looks again while a request waits to know.
type logEnd struct {
	look  func(context.Context) (sequence uint64, err error) // nil: it is not known, ever
	ctx   context.Context                                    // the service's
	spawn func(func()) bool                                  // starts a goroutine; false: the service has stopped
	crowd chan struct{}                                      // has an element once lookSooner requests wait; holds 1

	mu      sync.Mutex
	last    uint64    // as of the latest look that found it
	found   time.Time // when that look began; zero: there was none
	next    time.Time // before it nobody looks again
	failed  bool      // the latest look; next holds for a crowd too
	wanted  bool      // a look, though nobody waits
	looks   uint64    // looks begun
	looking bool      // the goroutine runs
	waiting map[*onLook]struct{}
}

func newLogEnd(ctx context.Context, look func(context.Context) (uint64, error), spawn func(func()) bool) *logEnd {
	return &logEnd{look: look, ctx: ctx, spawn: spawn, crowd: make(chan struct{}, 1), waiting: make(map[*onLook]struct{})}
}

// onLook is a request that waits to know whether the log holds a message.
type onLook struct {
	sequence uint64
	looks    uint64 // those that began before cannot tell
	found    context.CancelCauseFunc
}

// foundEnd is the cause that onLook.found gets from a look.
type foundEnd struct{ last uint64 }

func (f foundEnd) Error() string { return fmt.Sprintf("the log ends at sequence %d", f.last) }

// holding says whether the log holds a message.
type holding int

const (
	held   holding = iota // it does, or nobody can ever tell
	unsure                // it may
	tooFar                // it does not, and the message is further ahead than is waited for
)

// holds says what is known without a look. Requests that are too far ahead take
// no place, however many there are. They cause a look all the same: a log that
// was restored or recreated may begin anywhere.
func (e *logEnd) holds(sequence uint64) (last uint64, h holding) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.look == nil || sequence <= e.last {
		return e.last, held
	}
	if e.found.IsZero() {
		return 0, unsure
	}
	age := time.Since(e.found)
	if sequence <= e.last+aheadMax+writtenWithin(age) {
		return e.last, unsure
	}
	if age >= lookEvery {
		e.wanted = true
		e.startLocked()
	}
	return e.last, tooFar
}

// writtenWithin is more messages than any log takes in that time.
func writtenWithin(age time.Duration) uint64 {
	return uint64(age/time.Millisecond+1) * (writtenPerSecond/1000 + 1)
}

// first looks, so that the end is known before a request asks.
func (e *logEnd) first() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.look != nil {
		e.wanted = true
		e.startLocked()
	}
}

func (e *logEnd) startLocked() {
	if !e.looking {
		e.looking = e.spawn(e.run)
	}
}

// await has found called by the first look that begins from now on, or not after
// forget. nil: the log holds the message, or nobody can ever tell.
func (e *logEnd) await(sequence uint64, found context.CancelCauseFunc) *onLook {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.look == nil || sequence <= e.last {
		return nil
	}
	w := &onLook{sequence, e.looks, found}
	e.waiting[w] = struct{}{}
	if len(e.waiting) >= lookSooner {
		select {
		case e.crowd <- struct{}{}:
		default:
		}
	}
	e.startLocked()
	return w
}

func (e *logEnd) forget(w *onLook) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.waiting, w)
}

// run looks until nobody waits.
func (e *logEnd) run() {
	for e.begin() {
		ctx, cancel := context.WithTimeout(e.ctx, lookWithin)
		began := time.Now()
		last, err := e.look(ctx)
		cancel()
		e.tell(last, err, began)
	}
}

// begin waits for the time of the next look; false: there is none.
func (e *logEnd) begin() bool {
	e.mu.Lock()
	pause, crowd := time.Until(e.next), e.crowd
	if e.failed {
		crowd = nil
	}
	e.mu.Unlock()
	select {
	case <-time.After(pause):
	case <-crowd:
	case <-e.ctx.Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.looking = (e.wanted || len(e.waiting) > 0) && e.ctx.Err() == nil
	e.wanted = false
	e.looks++
	return e.looking
}

// tell ends a look. After one that failed all requests go on waiting: they may
// be right.
func (e *logEnd) tell(last uint64, err error, began time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failed = err != nil; e.failed {
		e.next = time.Now().Add(lookAgain)
		return
	}
	e.last, e.found, e.next = last, began, began.Add(lookEvery)
	for w := range e.waiting {
		if w.looks == e.looks { // it came while we looked
			continue
		}
		delete(e.waiting, w)
		w.found(foundEnd{last})
	}
}

// admitWait takes a call into the lane where it waits for its position: known if
// the log is known to hold it.
func (s *Service) admitWait(c *call, known *lane) *failure {
	switch last, h := s.end.holds(c.wait.position.Sequence()); h {
	case tooFar:
		return c.tooFar(last)
	case unsure:
		return s.unsure.admit(c)
	}
	return known.admit(c)
}

// waitApplied waits for the call's position until ctx ends. Once a look has
// said whether the log holds it, the call moves to the lane of its like; or, where
// other nodes are further than this one and can answer it, goes to them (onNodes).
func (s *Service) waitApplied(ctx context.Context, c *call) (*failure, error) {
	looked, found := context.WithCancelCause(ctx)
	defer found(nil)
	w := s.end.await(c.wait.position.Sequence(), found)
	if w != nil {
		err := s.reader.WaitApplied(looked, c.wait.position)
		s.end.forget(w)
		end, isFound := context.Cause(looked).(foundEnd)
		if err == nil || !isFound || ctx.Err() != nil {
			return nil, err
		}
		if c.wait.position.Sequence() > end.last {
			if f := s.ahead(c, end.last); f != nil {
				return f, nil
			}
			return nil, s.waitFuture(ctx, c.wait.position)
		}
	}
	if c.endpoint.spreads && s.spread != nil && s.spread.Lags() {
		return onNodes, nil
	}
	if f := s.behind(c); f != nil {
		return f, nil
	}
	return nil, s.reader.WaitApplied(ctx, c.wait.position)
}

// behind takes a call for what the log holds into the lane of its like, unless it is
// there or need not wait.
func (s *Service) behind(c *call) *failure {
	if c.lane != s.unsure || c.wait.position <= s.reader.Applied() {
		return nil
	}
	c.leave()
	if c.long() {
		return s.longWaits.admit(c)
	}
	return s.waits.admit(c)
}

// errLeaving: the service stops, and nobody knows when the position would come.
var errLeaving = errors.New("query: the service stops")

// waitFuture waits for a position that the log does not hold, for as long as
// the service does not stop.
func (s *Service) waitFuture(ctx context.Context, p pipeline.Position) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.serving, cancel)()
	err := s.reader.WaitApplied(waiting, p)
	if err != nil && s.serving.Err() != nil {
		return errLeaving
	}
	return err
}

// ahead takes a call for what the log does not hold into the lane of its like.
func (s *Service) ahead(c *call, last uint64) *failure {
	if c.wait.position.Sequence() > last+aheadMax {
		return c.tooFar(last)
	}
	c.leave()
	if c.long() {
		return s.longFutures.admit(c)
	}
	return s.futures.admit(c)
}

func (c *call) tooFar(last uint64) *failure {
	return fail(codeBadRequest, "%s is past the log's end by more than could be under way: the last message known is %d (position %s), and at most %d more are waited for%s",
		&c.wait, last, pipeline.EndOf(last), aheadMax, c.endpoint.early)
}
