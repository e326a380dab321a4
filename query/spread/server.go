package spread

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/hands"
	"github.com/tidemark-io/tidemark/query/wire"
)

// ServerOptions are what a Server is made of. Node and Schema must be given.
type ServerOptions struct {
	Node       string            // its name
	Generation generation.Number // that it answers for; 0 is the first
	Schema     *pipeline.Schema
	Types      map[string][]string // see Counted
	Shards     int                 // of the whole; all nodes have the same number
	// Workers is how many goroutines answer from memory at a time; large parts
	// have half as many of their own, at least 1. Default: GOMAXPROCS.
	Workers int
	// ColdReads is how many parts read the disk at a time. Default 16, as for
	// service.Limits.ColdReads.
	ColdReads  int
	Registerer prometheus.Registerer // nil: no metrics
	Logger     *slog.Logger          // nil: slog.Default()
}

// What may be in work. More is answered Busy, and asked elsewhere.
const (
	// pendingMax is how many bytes may wait for the subscription's goroutine, a
	// message reckoned at pendingMessage more than its body. It only looks at
	// them: so much waits only when there is more than one processor can read.
	pendingMax     = 32 << 20
	pendingMessage = 128
	// workBytesMax is how many bytes of batches may be in work.
	workBytesMax = 64 << 20
	// workPartsMax is how many parts may be in work. Those that are answered
	// later have a goroutine each.
	workPartsMax = 1 << 14
	// aheadMax is how far past what this node has applied, in messages, a position
	// is waited for. A node that is behind by more lags; others may not.
	aheadMax = 1 << 16
	// waitMax is how long a part waits for a position at most, and its answer for
	// the disk. service.Limits.TimeoutMax bounds what honest askers want.
	waitMax = 30 * time.Second
)

// Server answers what other nodes ask of a Holder, until Stop.
type Server struct {
	nc      *nats.Conn
	sub     *nats.Subscription
	counted *nats.Subscription // for questions of what is counted
	holder  query.Holder
	schema  *pipeline.Schema
	print   uint64 // the schema's fingerprint
	shards  int    // of the whole
	names   names
	metrics *serverMetrics
	log     *slog.Logger

	workers, heavy, cold chan struct{} // a place for each that is at work

	hands *hands.Hands // serve batches

	bytes, parts atomic.Int64 // in work
	told         atomic.Int64 // when the log last had that something is refused, Unix ns

	ctx       context.Context // ends when nothing more is wanted
	cancel    context.CancelFunc
	waiting   context.Context // ends with Stop: positions are no longer waited for
	stopWaits context.CancelFunc
	work      sync.WaitGroup
	stop      sync.Once
	stopErr   error
}

// Serve answers for a holder on the node's subject. The connection outlives the
// Server. Other nodes may ask once Serve has returned.
func Serve(nc *nats.Conn, holder query.Holder, o ServerOptions) (*Server, error) {
	if o.Schema == nil || holder == nil || o.Node == "" {
		return nil, errors.New("spread: a server needs a node's name, a schema and a holder")
	}
	if most := nc.MaxPayload(); most < wire.MessageMin {
		return nil, fmt.Errorf("spread: the NATS server's max_payload is %d; nodes need %d at least to ask each other", most, wire.MessageMin)
	}
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.ColdReads <= 0 {
		o.ColdReads = 16
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	s := &Server{
		nc: nc, holder: holder, schema: o.Schema, print: wire.Fingerprint(o.Schema, o.Shards), shards: o.Shards, log: o.Logger,
		names:   names{schema: o.Schema, known: map[string]*resolved{}},
		workers: make(chan struct{}, o.Workers),
		heavy:   make(chan struct{}, max(1, o.Workers/2)),
		cold:    make(chan struct{}, o.ColdReads),
	}
	var err error
	if s.metrics, err = newServerMetrics(o.Registerer, s); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.hands = hands.New(s.ctx, o.Workers)
	s.waiting, s.stopWaits = context.WithCancel(s.ctx)
	if s.counted, err = serveCounted(nc, &o); err == nil {
		s.sub, err = nc.Subscribe(Subject(o.Node, o.Generation), s.handle)
	}
	if err == nil {
		err = errors.Join(s.sub.SetPendingLimits(-1, -1), nc.Flush()) // see pendingMax
	}
	if err != nil {
		s.cancel()
		if s.counted != nil {
			_ = s.counted.Unsubscribe()
		}
		return nil, fmt.Errorf("spread: serve %s: %w", Subject(o.Node, o.Generation), err)
	}
	return s, nil
}

// Stop takes the node off its subject, answers what has arrived, and returns when the
// answers are with the NATS server. Parts that wait for a position get at once that it
// was not reached: others may have it. When ctx ends first, what is left is not
// answered and ctx's error is returned.
func (s *Server) Stop(ctx context.Context) error {
	s.stop.Do(func() {
		defer s.cancel()
		s.stopWaits()
		if err := s.drain(ctx); err != nil {
			s.stopErr = fmt.Errorf("spread: stop: %w", err)
		}
	})
	return s.stopErr
}

func (s *Server) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, waitMax)
	defer cancel()
	done := s.sub.StatusChanged(nats.SubscriptionClosed)
	if err := errors.Join(s.counted.Unsubscribe(), s.sub.Drain()); err != nil {
		return err
	}
	select {
	case <-done:
	case <-ctx.Done():
		s.cancel()
		s.work.Wait()
		return ctx.Err()
	}
	stopped := make(chan struct{})
	go func() {
		s.work.Wait()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-ctx.Done():
		s.cancel()
		<-stopped
		return ctx.Err()
	}
	return s.nc.FlushWithContext(ctx)
}

// handle runs in the subscription's goroutine: it looks at a batch and leaves it
// to others.
func (s *Server) handle(m *nats.Msg) {
	if m.Reply == "" || !query.MayReply(m.Reply) {
		s.metrics.batch(batchMisdirected)
		s.tell("its answer would go to a subject that is not for answers", "reply", fmt.Sprintf("%.100q", m.Reply))
		return
	}
	if messages, bytes, err := s.sub.Pending(); err == nil && bytes+messages*pendingMessage > pendingMax {
		s.refuse(m, batchBusy, wire.Busy, "too much waits for this node")
		return
	}
	b, asks, err := wire.DecodeBatch(m.Data, nil)
	switch {
	case errors.Is(err, wire.ErrVersion):
		s.refuse(m, batchRefused, wire.Refused, err.Error())
	case err != nil:
		s.refuse(m, batchDamaged, wire.Garbled, err.Error())
	case b.Schema != s.print:
		s.refuse(m, batchRefused, wire.Refused, fmt.Sprintf("another schema or number of shards: its fingerprint is %016x there and %016x here", b.Schema, s.print))
	case !s.admit(len(m.Data), len(asks)):
		s.refuse(m, batchBusy, wire.Busy, "too much is in work on this node")
	default:
		s.metrics.batch(batchTaken)
		work := &batch{server: s, reply: m.Reply, version: b.Version, asks: asks, bytes: len(m.Data)}
		work.left.Store(int64(len(asks)))
		s.work.Add(1)
		s.hands.Do(work.serve)
	}
}

// admit takes a batch in if there is room.
func (s *Server) admit(bytes, parts int) bool {
	inBytes, inParts := s.bytes.Add(int64(bytes)), s.parts.Add(int64(parts))
	if inBytes <= workBytesMax && inParts <= workPartsMax {
		return true
	}
	s.bytes.Add(-int64(bytes))
	s.parts.Add(-int64(parts))
	return false
}

// refuse answers all of a batch.
func (s *Server) refuse(m *nats.Msg, result batchResult, status wire.Status, words string) {
	s.metrics.batch(result)
	if result != batchBusy {
		s.tell(words)
	}
	reply := wire.AppendReply(wire.BeginReplies(nil, wire.Oldest), &wire.Reply{Status: status, Last: true, Applied: s.holder.Applied(), Body: []byte(clip(words))})
	wire.SetTaken(reply)
	s.publish(m.Reply, reply)
}

func (s *Server) publish(subject string, message []byte) {
	if err := s.nc.Publish(subject, wire.End(message)); err != nil {
		s.log.Debug("spread: an answer could not be sent", "error", err)
	}
}

// tellEvery paces what the log has of batches that are refused.
const tellEvery = 10 * time.Second

func (s *Server) tell(why string, args ...any) {
	now, last := time.Now().UnixNano(), s.told.Load()
	if now-last < int64(tellEvery) || !s.told.CompareAndSwap(last, now) {
		return
	}
	s.log.Warn("spread: what another node asks is refused", append([]any{"why", why}, args...)...)
}

// clip keeps words short.
func clip(words string) string { return words[:min(len(words), 512)] }
