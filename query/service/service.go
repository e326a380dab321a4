package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/hands"
	"github.com/tidemark-io/tidemark/query/internal/jsonscan"
)

// Limits bound what requests may ask. Zero fields take their defaults.
type Limits struct {
	// IDs is the most ids (or users) in one request. Default 10,000: about
	// 200 kB of request, well within NATS's usual 1 MB.
	IDs int
	// Requests is the most requests that wait at once for a min_position that
	// the log is known to hold; one more is answered 503. All others that cannot be
	// answered at once have lanes of their own, in proportion: those who wait
	// cannot shut them out.
	// Default 1,024: each holds a request, the large ones a reply too.
	Requests int
	// Timeout is how long a request waits for its min_position when it does
	// not say. Default 2 s, the contract's.
	Timeout time.Duration
	// TimeoutMax is the longest that a request may wait; more is cut to it.
	// Default 30 s: a client that is gone is forgotten by then.
	TimeoutMax time.Duration
	// Processors is how many there are to compute on. Default: GOMAXPROCS, which
	// may be more.
	Processors int
	// Workers is how many large requests (gets of more than 1,000 ids, unread
	// of more than 16 users) are answered at a time, how many pages (feeds, lists
	// of users) and how many explanations. So many of all these compute at once,
	// beside the small requests, in turns. Default: half the
	// processors, at least 1. More would take them from the small requests:
	// with unread of 10,000 users going on and on, two cores answer one user in
	// 0.05 ms at the median with one worker, in 20 ms with four, in 470 ms when
	// all stand in one queue.
	Workers int
	// ColdReads is how many requests read the disk at a time, on workers
	// of their own: what is in memory is answered meanwhile. At most Requests/4
	// stand in line for them or are worked on; one more is answered 503.
	// Default 16: an SSD has its best throughput from about there on, and a
	// slow disk is not buried.
	ColdReads int
	// Publish is how long tidemark.read waits for the log's acknowledgement.
	// Default 5 s, JetStream's own.
	Publish time.Duration
}

func (l Limits) withDefaults() Limits {
	if l.IDs <= 0 {
		l.IDs = 10_000
	}
	if l.Requests <= 0 {
		l.Requests = 1024
	}
	if l.Timeout <= 0 {
		l.Timeout = 2 * time.Second
	}
	if l.TimeoutMax <= 0 {
		l.TimeoutMax = 30 * time.Second
	}
	if l.Processors <= 0 {
		l.Processors = runtime.GOMAXPROCS(0)
	}
	if l.Workers <= 0 {
		l.Workers = max(1, l.Processors/2)
	}
	if l.ColdReads <= 0 {
		l.ColdReads = 16
	}
	if l.Publish <= 0 {
		l.Publish = 5 * time.Second
	}
	return l
}

// Options are what a Service is made of. Schema and Reader must be given.
type Options struct {
	Schema *pipeline.Schema
	// Types are the event types that count, each with the fields that are read of it.
	Types  map[string][]string
	Reader query.Reader
	// Publisher takes the events of tidemark.read. nil: reads are answered 503.
	Publisher query.Publisher
	// LogEnd asks the log for the sequence of its last message, 0 when it has
	// none. It is called by one goroutine at a time: when the service starts, and
	// while requests ask for more than it said the last time, then a hundred
	// times a second, or sooner when a thousand of them wait.
	// nil: every position is waited for as if the log held it.
	LogEnd func(context.Context) (sequence uint64, err error)
	Limits Limits
	// Slow says which requests tidemark.slowlog remembers.
	Slow Slow
	// Stats gives tidemark.stats its figures; they must go into JSON.
	Stats func() map[string]any
	// Cluster gives tidemark.nodes and tidemark.shards what they answer. nil: both
	// are answered 503.
	Cluster query.Cluster
	// Explainer reads the log for tidemark.explain. nil: the endpoint is not
	// offered, and another process answers.
	Explainer query.Explainer
	// ExplainAlone leaves every other endpoint to other processes.
	ExplainAlone bool
	// Ready tells why the counters cannot be asked yet, nil when they can.
	// Every request asks it: it must be cheap. Default: always ready.
	Ready func() error
	// Refuses tells why a request is refused although it could be answered: people
	// have said so for all nodes. It is asked with writes for tidemark.read, without
	// for everything that is answered from counters, for every request: it must be
	// cheap. Its words go to the client. Default: nothing is refused.
	Refuses func(writes bool) error
	// Fresh says how old an answer can be. nil: no answer is ever too old.
	Fresh query.Freshness
	// Shards and Version are told by tidemark.schema. A Version that is not
	// a semantic one shows as 0.0.0 in `nats micro info`.
	Shards     int
	Version    string
	Registerer prometheus.Registerer // nil: no metrics
	Logger     *slog.Logger          // nil: slog.Default()
	Metadata   map[string]string     // for `nats micro info`; "node" is told by tidemark.slowlog too
}

// Service answers requests until Stop.
//
// Each endpoint's subscription has one goroutine, and what can be answered at
// once is answered there: a read takes microseconds. What waits for it is
// bounded: see backlog. There the Reader may not touch the disk. A request that
// has to wait for its min_position, that is large, or that turns out to be cold
// goes on in a lane, in a goroutine of its own, so it holds up nobody; their
// number is bounded. So does one that needs other nodes (see Spread).
type Service struct {
	nc        *nats.Conn
	micro     micro.Service
	endpoints []*endpoint

	catalog   *catalog
	schema    []byte // the reply of tidemark.schema
	reader    query.Reader
	spread    query.Spread // the reader, if it asks other nodes; else nil
	publisher query.Publisher
	stats     func() map[string]any
	ready     func() error
	refuses   func(writes bool) error
	fresh     query.Freshness // nil: answers are never too old
	limits    Limits
	metrics   *metrics
	slow      *slowLog
	backlog   *backlog
	end       *logEnd
	node      string // in the reply of tidemark.slowlog
	log       *slog.Logger

	unanswered, refusedReads, lostReads, misdirected linePace

	lanes
	turns turns        // in which the long requests of all lanes compute
	hands *hands.Hands // answer what is in them
	calls sync.Pool

	ctx         context.Context // ends when waiting is no longer wanted
	cancel      context.CancelFunc
	serving     context.Context // ends with Stop: waiting for the future is no longer wanted
	stopServing context.CancelFunc
	reading     context.Context // ends a little after Stop: reading the disk is no longer wanted
	stopReading context.CancelFunc
	waiting     sync.WaitGroup // goroutines of requests that wait
	stop        sync.Once
	stopErr     error

	mu     sync.Mutex
	closed bool // nobody may join waiting any more
}

// endpoint is one subject. parse reads the request into the call, answer
// appends the reply to call.out; in between the service waits.
type endpoint struct {
	name, description string
	request, reply    string // shapes, for `nats micro info`
	advice            string // what to do when the reply is too large
	early             string // for an error before answer was called: what that means

	gated  bool // answered 503 while the node is not ready, or refuses
	writes bool // it does not answer from counters, but puts events into the log
	tells  bool // nor this one, which tells what there is; it is never refused
	lists  bool // requests may be longer than bodyInline
	// spreads: answer asks call.reader and nothing else, so that other nodes,
	// asked through it, wait for the position themselves.
	spreads bool
	parse   func(*call) *failure
	answer  func(context.Context, *call) *failure
	spell   func(body []byte, most int) []byte // a request in binary form as JSON, for people; nil: there is no such form
	series  series
}

// call is one request in work with all the memory that it needs; it goes
// from request to request.
type call struct {
	endpoint *endpoint
	request  micro.Request
	clock    clock  // from the request's arrival on
	body     []byte // the request's; valid while the call is
	packed   bool   // the request is in binary form, and the answer will be
	offers   bool   // whoever asked is told that there is a binary form
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
	slow   slowCall
	shards shardsCall

	explain explainCall
}

// New starts the service on a connection that outlives it, and that nobody else
// should use: what arrives for others counts as waiting, too. It is there for
// clients once New has returned.
func New(nc *nats.Conn, o Options) (*Service, error) {
	if o.Schema == nil || o.Reader == nil {
		return nil, errors.New("query: a service needs a schema and a reader")
	}
	schema, err := encodeSchema(&o)
	if err != nil {
		return nil, err
	}
	s := &Service{
		nc:        nc,
		catalog:   newCatalog(o.Schema),
		schema:    schema,
		reader:    o.Reader,
		publisher: o.Publisher,
		stats:     o.Stats,
		ready:     o.Ready,
		refuses:   o.Refuses,
		fresh:     o.Fresh,
		limits:    o.Limits.withDefaults(),
		slow:      newSlowLog(o.Slow),
		backlog:   newBacklog(nc),
		node:      o.Metadata["node"],
		log:       o.Logger,
	}
	s.spread, _ = o.Reader.(query.Spread)
	s.lanes = newLanes(s.limits)
	s.turns = turns{pipeline.NewTurns(s.limits.Workers), turnPatience}
	if s.ready == nil {
		s.ready = func() error { return nil }
	}
	if s.refuses == nil {
		s.refuses = func(bool) error { return nil }
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.calls.New = func() any { return new(call) }
	s.endpoints = []*endpoint{
		s.getEndpoint(), s.unreadEndpoint(), s.readEndpoint(), s.feedEndpoint(),
		s.followingEndpoint(), s.followersEndpoint(), s.statsEndpoint(), s.slowlogEndpoint(), s.schemaEndpoint(),
		s.nodesEndpoint(o.Cluster), s.shardsEndpoint(o.Cluster),
	}
	if o.ExplainAlone {
		s.endpoints = nil
	}
	if o.Explainer != nil {
		s.endpoints = append(s.endpoints, s.explainEndpoint(o.Explainer))
	}
	if s.metrics, err = newMetrics(o.Registerer, s.endpoints, s.lanes); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.hands = hands.New(s.ctx, idleHands)
	s.serving, s.stopServing = context.WithCancel(s.ctx)
	s.reading, s.stopReading = context.WithCancel(s.ctx)
	s.end = newLogEnd(s.ctx, o.LogEnd, s.spawn)
	if err := s.serve(o); err != nil {
		s.cancel()
		return nil, err
	}
	s.end.first()
	return s, nil
}

func (s *Service) serve(o Options) error {
	service, err := micro.AddService(s.nc, micro.Config{
		Name:        query.Name,
		Version:     semantic(o.Version),
		Description: "counters and unread numbers; ask tidemark.schema what there is",
		Metadata:    maps.Clone(o.Metadata),
		StatsHandler: func(e *micro.Endpoint) any {
			return map[string]any{"answers": s.answersOf(e.Name)}
		},
		ErrorHandler: func(_ micro.Service, e *micro.NATSError) {
			s.log.Warn("query: NATS reports an error", "subject", e.Subject, "err", e.Description)
		},
	})
	if err != nil {
		return fmt.Errorf("query: start the micro service: %w", err)
	}
	s.micro = service
	group := service.AddGroup(query.Name)
	for _, e := range s.endpoints {
		err := group.AddEndpoint(e.name, micro.HandlerFunc(func(r micro.Request) { s.handle(e, r) }),
			micro.WithEndpointPendingLimits(-1, -1), // see backlog
			micro.WithEndpointMetadata(map[string]string{
				"description": e.description,
				"request":     e.request,
				"reply":       e.reply,
			}))
		if err != nil {
			return errors.Join(fmt.Errorf("query: serve %s.%s: %w", query.Name, e.name, err), service.Stop())
		}
	}
	if err := s.nc.Flush(); err != nil { // the server knows of the subscriptions
		return errors.Join(fmt.Errorf("query: start the micro service: %w", err), service.Stop())
	}
	return nil
}

func (s *Service) answersOf(name string) map[string]uint64 {
	for _, e := range s.endpoints {
		if e.name == name {
			return e.series.byCode()
		}
	}
	return nil
}

// semantic is the version as the micro protocol insists on it.
func semantic(version string) string {
	version = strings.TrimPrefix(version, "v")
	if versionPattern.MatchString(version) {
		return version
	}
	return "0.0.0"
}

// versionPattern is semver's form, a little narrower than the micro package's.
var versionPattern = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[a-zA-Z][0-9a-zA-Z-]*(\.[a-zA-Z][0-9a-zA-Z-]*|\.(0|[1-9]\d*))*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`)

// Stop takes the service off NATS, answers everything that has arrived, and
// returns when the last answer is with the server. Requests that wait for what
// the log does not hold are answered 503: nobody knows for how long; so are,
// after readsOn, those that still wait or read the disk. When ctx ends first, the
// requests that still wait are answered 503 and ctx's error is returned.
// The connection stays open. Another Stop waits for the first and returns
// the same.
func (s *Service) Stop(ctx context.Context) error {
	s.stop.Do(func() {
		defer s.cancel()
		s.stopServing()
		defer time.AfterFunc(readsOn, s.stopReading).Stop()
		if err := s.micro.Stop(); err != nil {
			s.stopErr = fmt.Errorf("query: stop: %w", err)
			return
		}
		if err := s.drain(ctx); err != nil {
			s.abandon()
			s.stopErr = fmt.Errorf("query: stop: %w", err)
		}
	})
	return s.stopErr
}

// readsOn is how long a request that reads the disk, or waits for a position or
// its turn, may go on when the service stops: what is asked of a million entries
// takes longer than anybody waits for a stop, and a node that cannot go on
// applying reaches no position.
const readsOn = 2 * time.Second

// abandon sends everyone home who still waits.
func (s *Service) abandon() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.waiting.Wait()
	if err := s.nc.FlushTimeout(time.Second); err != nil {
		s.log.Warn("query: the last answers may be lost", "err", err)
	}
}

// drain waits for what is in the subscriptions' queues, then for the
// requests that wait, then for the server to have their answers.
func (s *Service) drain(ctx context.Context) error {
	// FlushWithContext wants a deadline; nobody waits longer than this.
	ctx, cancel := context.WithTimeout(ctx, s.limits.TimeoutMax+5*time.Second)
	defer cancel()
	// After a round trip, everything that the server had sent is queued; a
	// barrier runs behind all that is queued.
	if err := s.nc.FlushWithContext(ctx); err != nil {
		return err
	}
	passed := make(chan struct{})
	if err := s.nc.Barrier(func() { close(passed) }); err != nil {
		return err
	}
	if err := until(ctx, passed); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		s.waiting.Wait()
		close(done)
	}()
	if err := until(ctx, done); err != nil {
		return err
	}
	return s.nc.FlushWithContext(ctx)
}

func until(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// misdirects says that a request wants its answer where it must not go. Nobody
// hears of it: there is nowhere to say so.
func (s *Service) misdirects(r micro.Request) bool {
	reply := r.Reply()
	if query.MayReply(reply) {
		return false
	}
	s.backlog.take(len(r.Data()))
	s.metrics.misdirected.Inc()
	if line, leftOut := s.misdirected.line(time.Now()); line {
		s.log.Warn("query: a request is dropped: its answer would go to a subject that is not for answers", "subject", r.Subject(), "reply", fmt.Sprintf("%.100q", reply), "left_out", leftOut)
	}
	return true
}

// handle runs in the endpoint's subscription.
func (s *Service) handle(e *endpoint, r micro.Request) {
	if s.misdirects(r) {
		return
	}
	c := s.calls.Get().(*call)
	c.clock.begin()
	c.endpoint, c.request = e, r
	c.body, c.out, c.wait, c.ids = r.Data(), c.out[:0], wait{timeout: -1}, 0
	c.packed, c.offers = e.forms(r)
	c.disk, c.cold, c.old = false, 0, false
	c.reader, c.away = s.reader, false

	s.metrics.inFlight.Inc()
	f := s.prepare(c)
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
		f = s.stopping(c)
	}
	s.finish(c, f, false)
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
func (s *Service) prepare(c *call) *failure {
	if s.backlog.take(len(c.body)) {
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
	return s.spawn(func() { s.finish(c, s.guard(c, func() *failure { return s.answerLater(c) }), true) })
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

// stopping is the answer for a call that answer was not called for.
func (s *Service) stopping(c *call) *failure {
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
		return s.stopping(c)
	case ctx.Err() != nil:
		return fail(codeTooLate, "%s was not reached within %d ms, applied is %s%s", &c.wait, timeout.Milliseconds(), s.reader.Applied(), c.endpoint.early)
	}
	return fail(codeNotReady, "not ready: %s cannot be reached: %v%s", &c.wait, err, c.endpoint.early)
}

// patience is how long whoever asked waits for their turn, from the call's
// arrival on.
func (s *Service) patience(c *call) time.Duration { return max(s.timeout(c), s.limits.Timeout) }

// untilTurn waits for a worker; the call gives it back. Whoever asked has
// given up after a while, and is not worked for.
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
		return s.stopping(c)
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
		s.log.Error("query: a request could not be answered", "endpoint", c.endpoint.name, "left_out", leftOut, "err", err)
	}
	return fail(codeInternal, "the counters cannot be read: %v", err)
}

// replyMax is the longest reply that the NATS server takes.
func (s *Service) replyMax() int { return int(s.nc.MaxPayload()) }

// finish sends the answer and gives the call back. late: not in the
// subscription's goroutine.
func (s *Service) finish(c *call, f *failure, late bool) {
	if most := s.replyMax(); f == nil && len(c.out) > most {
		f = fail(codeTooMuch, "the reply has %d bytes or more, the NATS server's max_payload is %d; %s", len(c.out), most, c.endpoint.advice)
	}
	if err := s.respond(c, f, late); err != nil {
		s.log.Debug("query: an answer could not be sent", "endpoint", c.endpoint.name, "err", err)
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

// respond must not touch a late request's micro.Request beyond its subject:
// the micro package reads the outcome as soon as its handler has returned.
func (s *Service) respond(c *call, f *failure, late bool) error {
	offers := c.offers && (f != nil || !c.packed) // an answer in binary form says enough
	if late {
		return s.respondLate(c, f, offers)
	}
	var more []micro.RespondOpt
	if offers {
		more = []micro.RespondOpt{offer}
	}
	if f != nil {
		return c.request.Error(strconv.Itoa(int(f.code)), f.line(), f.body, more...)
	}
	return c.request.Respond(c.out, more...)
}

func (s *Service) respondLate(c *call, f *failure, offers bool) error {
	if f == nil && !offers {
		return s.nc.Publish(c.request.Reply(), c.out)
	}
	reply := nats.NewMsg(c.request.Reply())
	reply.Data = c.out
	if f != nil {
		reply.Header.Set(micro.ErrorHeader, f.line())
		reply.Header.Set(micro.ErrorCodeHeader, strconv.Itoa(int(f.code)))
		reply.Data = f.body
	}
	if offers {
		offer(reply)
	}
	return s.nc.PublishMsg(reply)
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
	clear(c.get.columns[:cap(c.get.columns)])
	if cap(c.out) > most || cap(c.get.columns) > 1024 || cap(c.get.rows.Values) > most/8 {
		c.out, c.get = nil, getCall{}
	}
	if c.unread.unreads.Bytes() > most {
		c.unread = unreadCall{}
	}
}
