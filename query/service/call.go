package service

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/jsonscan"
)

// call is one request in work with all the memory that it needs; it goes
// from request to request.
type call struct {
	endpoint *endpoint
	request  request
	clock    clock  // from the request's arrival on
	body     []byte // the request's; valid while the call is
	packed   bool   // the request is in binary form, and the answer will be
	offers   bool   // the reply offers the asker the binary form
	out      []byte
	scanner  jsonscan.Scanner
	wait     wait
	ids      int // asked; 0 where there are none

	wants *lane // parse's wish to be answered apart
	lane  *lane // where it is now; nil: with its subscription
	disk  bool  // the Reader may read it: the call is on a worker
	cold  int   // entries that came from it
	old   bool  // an answer that was given before reached further

	reader query.Reader // that is asked
	away   bool         // which may ask other nodes

	get    getCall
	unread unreadCall
	read   readCall
	page   pageCall
	list   membersCall
	inbox  inboxCall
	slow   slowCall
	shards shardsCall

	explain explainCall
}

// misdirects says that a request wants its answer where it must not go. Nobody
// hears of it: there is nowhere to say so.
func (s *Service) misdirects(m message) bool {
	if query.MayReply(m.Reply) {
		return false
	}
	s.backlog.take(len(m.Data))
	s.metrics.misdirected.Inc()
	if line, leftOut := s.misdirected.line(time.Now()); line {
		s.log.Warn("query: a request is dropped: its answer would go to a subject that is not for answers", "subject", m.Subject, "reply", fmt.Sprintf("%.100q", m.Reply), "left_out", leftOut)
	}
	return true
}

// handle runs in the endpoint's subscription.
func (s *Service) handle(e *endpoint, m message) {
	if !s.misdirects(m) {
		s.begin(e, m, s.backlog.take(len(m.Data)))
	}
}

// begin answers a request, or has it answered later. crowded: too much waits for the
// endpoints.
func (s *Service) begin(e *endpoint, r request, crowded bool) {
	c := s.calls.Get().(*call)
	c.clock.begin()
	c.endpoint, c.request = e, r
	c.body, c.out, c.wait, c.ids = r.body(), c.out[:0], wait{timeout: -1}, 0
	c.packed, c.offers = e.forms(r)
	c.disk, c.cold, c.old = false, 0, false
	c.reader, c.away = s.reader, false

	s.metrics.inFlight.Inc()
	f := s.prepare(c, crowded)
	c.clock.lap(stageParse)
	if f == nil && c.lane == nil {
		if f = s.guard(c, func() *failure { return e.answer(s.ctx, c) }); f != nil {
			f = s.admitFurther(c, f)
		}
	}
	if f == nil && c.lane != nil {
		if s.later(c) {
			return
		}
		f = s.halted(c)
	}
	s.finish(c, f)
}

// bodyInline is how long a request may be that the subscription's goroutine
// reads itself: as long as one of getInline ids. Reading 10,000 ids takes half
// as long as answering them; those behind it would wait. Where nothing asks for
// that much, longer ones are refused: what waits holds its whole message.
const bodyInline = getInline * 24

// long says that parse is still to come, on a worker.
func (c *call) long() bool { return len(c.body) > bodyInline }

// prepare does all that comes before waiting, and takes the call into the lane
// that it is answered in, if any.
func (s *Service) prepare(c *call, crowded bool) *failure {
	if crowded {
		return fail(codeNotReady, "busy: more than %d MiB of requests wait for this node%s; ask again later", waitingMax>>20, c.endpoint.early)
	}
	if c.endpoint.gated {
		if err := s.ready(); err != nil {
			return fail(codeNotReady, "not ready: %v%s", err, c.endpoint.early)
		}
		if err := s.refuses(c.endpoint.writes); err != nil && !c.endpoint.tells {
			return fail(codeNotReady, "%v%s", err, c.endpoint.early)
		}
	}
	switch {
	case c.long() && !c.endpoint.lists:
		return fail(codeTooMuch, "the request has %d bytes; %s.%s takes %d%s", len(c.body), query.Name, c.endpoint.name, bodyInline, c.endpoint.early)
	case c.long():
		return s.heavy.admit(c)
	}
	if f := s.guard(c, func() *failure { return c.endpoint.parse(c) }); f != nil {
		return f
	}
	switch {
	case c.wait.position > s.reader.Applied():
		return s.admitWait(c, s.waits)
	case c.wants != nil:
		return c.wants.admit(c)
	case c.ids >= spareIDs:
		s.spare.enter(c) // all are busy: with its subscription, then
	}
	return nil
}

// later has the call answered in a goroutine of its own, unless the service
// is past waiting.
func (s *Service) later(c *call) bool {
	return s.spawn(func() { s.finish(c, s.guard(c, func() *failure { return s.answerLater(c) })) })
}

// idleHands is how many goroutines are kept for requests that are answered later.
const idleHands = 64

// spawn has a goroutine do what Stop waits for; false: it waits for no more.
func (s *Service) spawn(work func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.waiting.Add(1)
	s.hands.Do(func() {
		defer s.waiting.Done()
		work()
	})
	return true
}

// halted is the answer of a service that stops for a call that answer was not called for.
func (s *Service) halted(c *call) *failure {
	if c.wait.position > s.reader.Applied() {
		return fail(codeNotReady, "stopping: %s was not reached, applied is %s%s", &c.wait, s.reader.Applied(), c.endpoint.early)
	}
	return fail(codeNotReady, "stopping%s", c.endpoint.early)
}

// timeout is how long a call may wait, from its arrival on.
func (s *Service) timeout(c *call) time.Duration {
	if c.wait.timeout < 0 {
		return min(s.limits.Timeout, s.limits.TimeoutMax)
	}
	return min(c.wait.timeout, s.limits.TimeoutMax)
}

// answerLater answers a call that has a place in a lane.
func (s *Service) answerLater(c *call) *failure {
	c.clock.lap(stageTurn)
	switch {
	case c.lane == s.waits || c.lane == s.unsure:
		return s.answerWaited(c)
	case c.lane == s.heavy && c.long():
		return s.answerLong(c)
	case c.lane == s.far:
		return s.fromNodes(c)
	}
	return s.answerInLane(c)
}

// answerWaited waits for the call's position. Only then the call asks for a
// place where others want to be worked on.
func (s *Service) answerWaited(c *call) *failure {
	if f := s.untilApplied(c); f != nil {
		return s.further(c, f)
	}
	c.leave()
	if f := c.wants.admit(c); f != nil {
		return f
	}
	return s.answerInLane(c)
}

// answerInLane answers on a worker where the call's lane has them.
func (s *Service) answerInLane(c *call) *failure {
	if c.lane != nil && c.lane.workers != nil {
		return s.onWorker(c, c.lane)
	}
	return s.further(c, c.endpoint.answer(s.ctx, c))
}

// answerLong reads a long request on a worker of the heavy lane, and answers
// it there unless it has to wait.
func (s *Service) answerLong(c *call) *failure {
	if f := s.untilTurn(c, s.heavy, max(s.limits.TimeoutMax, s.limits.Timeout)); f != nil { // its own is not read yet
		return f
	}
	waits := false
	f := func() *failure {
		defer func() { <-s.heavy.workers }()
		defer s.inTurn(c)()
		f := c.endpoint.parse(c)
		if c.clock.lap(stageParse); f == nil && c.clock.total > s.patience(c) {
			return s.heavy.tooLate()
		}
		if waits = f == nil && c.wait.position > s.reader.Applied(); f != nil || waits {
			return f
		}
		return c.endpoint.answer(s.ctx, c)
	}()
	if waits {
		c.leave()
		if f := s.admitWait(c, s.longWaits); f != nil {
			return f
		}
		return s.answerWaited(c)
	}
	return s.further(c, f)
}

// spareIDs is from how many ids on a request that is not large is handed to
// another goroutine when a processor may be free: what that costs is little
// beside the work. A subscription's own goroutine is only one.
const spareIDs = 100

// onDisk is the answer of an endpoint whose Reader returned ErrCold. It goes
// to nobody: the call is answered again on a worker of the cold lane.
var onDisk = &failure{code: codeInternal, message: "the answer is on disk, and nobody went there"}

// admitCold takes a call into the cold lane.
func (s *Service) admitCold(c *call) *failure {
	f := s.cold.admit(c)
	if f != nil {
		s.metrics.coldRefused.Inc()
		return f
	}
	s.metrics.cold.Inc()
	return nil
}

// onWorker answers once it is the call's turn. Only workers of the cold lane
// read the disk: large requests that need it do not hold up those that do not.
func (s *Service) onWorker(c *call, l *lane) *failure {
	if f := s.untilTurn(c, l, s.patience(c)); f != nil {
		return f
	}
	c.disk = l == s.cold
	f := func() *failure {
		defer func() { <-l.workers }()
		ctx := s.ctx
		if c.disk { // a worker of the cold lane is not kept for longer than anybody waits
			reading, cancel := context.WithTimeout(s.reading, s.coldFor())
			defer cancel()
			ctx = reading
		}
		if l.inTurns {
			defer s.inTurn(c)()
		}
		return c.endpoint.answer(ctx, c)
	}()
	return s.further(c, f)
}

// coldFor is how long a request may read the disk, from its turn on.
func (s *Service) coldFor() time.Duration { return max(s.limits.TimeoutMax, s.limits.Timeout) }

// fromDisk answers a call that turned out to be cold; it leaves its lane for
// the cold one.
func (s *Service) fromDisk(c *call) *failure {
	c.leave()
	if f := s.admitCold(c); f != nil {
		return f
	}
	return s.onWorker(c, s.cold)
}

func (s *Service) untilApplied(c *call) *failure {
	defer c.clock.lap(stagePosition)
	timeout := s.timeout(c)
	ctx, cancel := context.WithDeadline(s.reading, c.clock.start.Add(timeout))
	defer cancel()
	f, err := s.waitApplied(ctx, c)
	switch {
	case err == nil:
		return f
	case s.reading.Err() != nil || errors.Is(err, errLeaving):
		return s.halted(c)
	case ctx.Err() != nil:
		return fail(codeTooLate, "%s was not reached within %d ms, applied is %s%s", &c.wait, timeout.Milliseconds(), s.reader.Applied(), c.endpoint.early)
	}
	return fail(codeNotReady, "not ready: %s cannot be reached: %v%s", &c.wait, err, c.endpoint.early)
}

// patience is how long the asker waits for its turn, from the call's arrival on.
func (s *Service) patience(c *call) time.Duration { return max(s.timeout(c), s.limits.Timeout) }

// untilTurn waits for a worker; the call gives it back. The asker has given up after a
// while, and is not worked for.
func (s *Service) untilTurn(c *call, l *lane, patience time.Duration) *failure {
	defer c.clock.lap(stageTurn)
	select {
	case l.workers <- struct{}{}:
		return nil
	default:
	}
	gone := time.NewTimer(time.Until(c.clock.start.Add(patience)))
	defer gone.Stop()
	select {
	case l.workers <- struct{}{}:
		return nil
	case <-s.reading.Done():
		return s.halted(c)
	case <-gone.C:
		return l.tooLate()
	}
}

// guard turns a panic into an answer: one bad request takes nobody along.
func (s *Service) guard(c *call, work func() *failure) (f *failure) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("query: a request made the service panic", "endpoint", c.endpoint.name,
				"panic", p, "request", clip(c.text(clipMax)), "stack", string(debug.Stack()))
			f = fail(codeInternal, "internal error; the node's log has it")
		}
	}()
	return work()
}

// took books what a Reader's answer cost. An error leaves the cost standing,
// so the caller clears it before: an answer's memory was another call's.
func (c *call) took(cost query.Cost) {
	stage := stageMemory
	if c.away {
		stage = stageNodes
	}
	c.clock.read(stage, cost.Disk)
	c.cold += cost.Cold
	c.old = c.old || cost.Old
}

// unreadable is the answer for a Reader's error.
func (s *Service) unreadable(c *call, err error) *failure {
	switch {
	case !c.disk && errors.Is(err, query.ErrCold):
		return onDisk
	case !c.away && errors.Is(err, query.ErrFar):
		return onNodes
	case s.reading.Err() != nil:
		return fail(codeNotReady, "stopping")
	case errors.Is(err, query.ErrBehind):
		return fail(codeTooLate, "%s was not reached within %d ms by the nodes that hold what was asked", &c.wait, s.timeout(c).Milliseconds())
	case errors.Is(err, query.ErrNobody):
		return fail(codeNotReady, "not ready: no node that holds counters is known; ask again later")
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fail(codeNotReady, "busy: to read what was asked from disk takes longer than %s (limits.timeout_max)", s.coldFor())
	}
	if line, leftOut := s.unanswered.line(time.Now()); line {
		s.log.Error("query: a request could not be answered", "endpoint", c.endpoint.name, "left_out", leftOut, "error", err)
	}
	return fail(codeInternal, "the counters cannot be read: %v", err)
}

// replyMax is the longest reply that the NATS server takes.
func (s *Service) replyMax() int { return int(s.nc.MaxPayload()) }

// finish sends the answer and gives the call back.
func (s *Service) finish(c *call, f *failure) {
	if most := s.replyMax(); f == nil && len(c.out) > most {
		f = fail(codeTooMuch, "the reply has %d bytes or more, the NATS server's max_payload is %d; %s", len(c.out), most, c.endpoint.advice)
	}
	offers := c.offers && (f != nil || !c.packed) // an answer in binary form says enough
	if err := c.request.answer(c.out, f, offers); err != nil {
		s.log.Debug("query: an answer could not be sent", "endpoint", c.endpoint.name, "error", err)
	}
	result := codeOK
	if f != nil {
		result = f.code
	}
	c.clock.lap(stageWrite)
	c.endpoint.series.answered(result, c.clock.total)
	if c.ids > 0 {
		s.metrics.ids.Observe(float64(c.ids))
	}
	if c.cold > 0 {
		s.metrics.diskEntries.Add(float64(c.cold))
		s.metrics.diskSeconds.Add(c.clock.spent[stageDisk].Seconds())
	}
	if s.slow.wants(&c.clock) {
		s.remember(c, result)
	}
	c.leave()
	s.metrics.inFlight.Dec()
	c.release()
	s.calls.Put(c)
}

// line is the message as a header can carry it.
func (f *failure) line() string {
	const most = 4096
	line := strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, f.message)
	return line[:min(len(line), most)]
}

// release lets go of the request, and of memory that only a giant needed.
func (c *call) release() {
	const most = 1 << 20
	c.request, c.body, c.endpoint, c.wants, c.reader = nil, nil, nil, nil, nil
	c.scanner.Reset(nil)
	c.get.counter, c.get.counts = nil, nil
	c.list.membersRequest = membersRequest{}
	clear(c.get.columns[:cap(c.get.columns)])
	if cap(c.out) > most || cap(c.get.columns) > 1024 || cap(c.get.rows.Values) > most/8 || cap(c.get.rows.Has) > most {
		c.out, c.get = nil, getCall{}
	}
	if c.unread.unreads.Bytes() > most {
		c.unread = unreadCall{}
	}
}
