package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/hands"
)

// Limits bound what requests may ask. Zero fields take their defaults.
type Limits struct {
	// IDs is the most ids (or users) in one request. Default 10,000: about
	// 200 kB of request, well within NATS's usual 1 MB.
	IDs int
	// Requests is the most requests that wait at once for a min_position that the log is
	// known to hold; one more is answered 503. All others that cannot be answered at once
	// have lanes of their own, in proportion: waiting ones cannot shut them out. Default
	// 1,024: each holds a request, the large ones a reply too.
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
	// of their own: what is in memory is answered until then. At most Requests/4
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
	// Ready says why the counters cannot be asked yet, nil when they can.
	// Every request asks it: it must be cheap. Default: always ready.
	Ready func() error
	// Refuses says why a request is refused although it could be answered: people
	// have said so for all nodes. It is asked with writes for tidemark.read, without
	// for everything that is answered from counters, for every request: it must be
	// cheap. Its words go to the client. Default: nothing is refused.
	Refuses func(writes bool) error
	// Fresh says how old an answer can be. nil: no answer is ever too old.
	Fresh query.Freshness
	// tidemark.schema shows Shards and Version. A Version that is not
	// a semantic one shows as 0.0.0 in `nats micro info`.
	Shards     int
	Version    string
	Registerer prometheus.Registerer // nil: no metrics
	Logger     *slog.Logger          // nil: slog.Default()
	Metadata   map[string]string     // for `nats micro info`; tidemark.slowlog shows "node" too
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
	nc            *nats.Conn
	subscriptions []*nats.Subscription
	endpoints     []*endpoint

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

	mu       sync.Mutex
	stopping bool // no request of Ask may join waiting
	closed   bool // no request may
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
	tells  bool // nor this one, which says what there is; it is never refused
	lists  bool // requests may be longer than bodyInline
	// spreads: answer asks call.reader and nothing else, so that other nodes,
	// asked through it, wait for the position themselves.
	spreads bool
	parse   func(*call) *failure
	answer  func(context.Context, *call) *failure
	spell   func(body []byte, most int) []byte // a request in binary form as JSON, for people; nil: there is no such form
	series  series
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
		s.followingEndpoint(), s.followersEndpoint(), s.membersEndpoint(), s.inboxEndpoint(), s.viewEndpoint(), s.statsEndpoint(), s.slowlogEndpoint(), s.schemaEndpoint(),
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
	for _, e := range s.endpoints {
		if err := s.subscribe(e.subject(), micro.DefaultQueueGroup, -1, -1, func(m message) { s.handle(e, m) }); err != nil { // see backlog
			return errors.Join(fmt.Errorf("query: serve %s: %w", e.subject(), err), s.unsubscribe())
		}
	}
	if err := s.discover(o); err != nil {
		return errors.Join(err, s.unsubscribe())
	}
	if err := s.nc.Flush(); err != nil { // the server knows of the subscriptions
		return errors.Join(fmt.Errorf("query: start the micro service: %w", err), s.unsubscribe())
	}
	return nil
}

// subject is what the endpoint is asked on.
func (e *endpoint) subject() string { return query.Name + "." + e.name }

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
		s.mu.Lock()
		s.stopping = true
		s.mu.Unlock()
		s.stopServing()
		defer time.AfterFunc(readsOn, s.stopReading).Stop()
		if err := s.unsubscribe(); err != nil {
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

// abandon cancels waiting requests; each gets 503.
func (s *Service) abandon() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.waiting.Wait()
	if err := s.nc.FlushTimeout(time.Second); err != nil {
		s.log.Warn("query: the last answers may be lost", "error", err)
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
