package importer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

const eventsStream = jetlog.EventsStream

const (
	// What may be on its way. Beyond this a server gets no faster.
	sentPacksMax = 64
	sentBytesMax = 8 << 20

	// headerBytesMax is room for a pack's headers in a message.
	headerBytesMax = 1 << 10
	// ackTimeout: a server that takes longer to store a pack is asked what
	// it has.
	ackTimeout  = 10 * time.Second
	dialTimeout = 5 * time.Second
	// endTimeout bounds the wait for what is on its way when ctx has ended.
	endTimeout = 5 * time.Second
	// lookEvery is how often progress is shown and the record thought of.
	lookEvery = 200 * time.Millisecond
)

// JetStream's codes for a stream or a server that is full.
const (
	codeNoRoom      jetstream.ErrorCode = 10023
	codeNoStorage   jetstream.ErrorCode = 10047
	codeStoreFailed jetstream.ErrorCode = 10077
)

// errRefused: an operator has set all nodes to refuse events.
var errRefused = errors.New("events are refused for all nodes, by hand: 'tidemark degrade writes=on' ends it; then run it again to go on")

type future = jetstream.PubAckFuture

// session is one connection, which is never mended, and what is open on it.
type session struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
	bucket jetstream.KeyValue

	created      time.Time  // EVENTS
	idPrefix     string     // of Nats-Msg-Id
	last         uint64     // its last sequence at the start
	denied       chan error // one: the first thing that the server does not let us do
	lineBytesMax int        // of one line, and so of a pack
}

// dial connects as like is connected. The session answers at address for as
// long as it lives.
func dial(ctx context.Context, like *nats.Conn, address string) (s *session, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	denied := make(chan error, 1)
	o := like.Opts
	o.AllowReconnect, o.RetryOnFailedConnect, o.ReconnectBufSize = false, false, -1
	o.ConnectedCB, o.ClosedCB, o.DisconnectedCB, o.DisconnectedErrCB, o.ReconnectedCB = nil, nil, nil, nil, nil
	o.AsyncErrorCB = func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if jetlog.Denial(err) == "" {
			return
		}
		select {
		case denied <- err:
			cancel()
		default:
		}
	}
	o.Name += " import"
	s = &session{denied: denied}
	if s.nc, err = o.Connect(); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if err := s.open(ctx, address); err != nil {
		s.close()
		return nil, s.orDenied(err)
	}
	return s, nil
}

// orDenied is err, or, where the server has denied something, that.
func (s *session) orDenied(err error) error {
	if err == nil || isFatal(err) {
		return err
	}
	select {
	case denied := <-s.denied:
		return fatal{denied}
	default:
		return err
	}
}

func (s *session) open(ctx context.Context, address string) (err error) {
	if s.js, err = jetstream.New(s.nc, jetstream.WithPublishAsyncMaxPending(sentPacksMax+1), jetstream.WithPublishAsyncTimeout(ackTimeout)); err != nil {
		return err
	}
	if s.stream, err = s.js.Stream(ctx, eventsStream); err != nil {
		return s.missing("stream "+eventsStream, err, jetstream.ErrStreamNotFound)
	}
	if s.bucket, err = s.js.KeyValue(ctx, jetlog.Bucket); err != nil {
		return s.missing("bucket "+jetlog.Bucket, err, jetstream.ErrBucketNotFound)
	}
	i := s.stream.CachedInfo()
	s.created, s.last, s.idPrefix = i.Created, i.State.LastSeq, jetlog.IDPrefix(i.Config)
	bytesMax := s.nc.MaxPayload()
	if i.Config.MaxMsgSize > 0 {
		bytesMax = min(bytesMax, int64(i.Config.MaxMsgSize))
	}
	s.lineBytesMax = int(bytesMax) - headerBytesMax
	if s.lineBytesMax <= 0 {
		return fmt.Errorf("stream %s takes messages of %d bytes only", eventsStream, bytesMax)
	}
	if _, err := s.nc.Subscribe(address, func(m *nats.Msg) { _ = m.Respond(nil) }); err != nil {
		return err
	}
	return s.nc.FlushWithContext(ctx)
}

func (s *session) missing(what string, err, notFound error) error {
	if errors.Is(err, notFound) {
		return fmt.Errorf("no %s at %s: is 'tidemark run' running?", what, jetlog.Address(s.nc))
	}
	return fmt.Errorf("open %s: %w", what, err)
}

func (s *session) close() { s.nc.Close() }

// send publishes the queue and all that is still to be read, until everything
// is settled, and then, or when it cannot, brings the record up to date.
func (r *run) send(ctx context.Context, s *session) error {
	r.sent, r.bytes = 0, 0
	for _, p := range r.queue {
		p.sequence, p.future = 0, nil
	}
	err := r.sendAll(ctx, s)
	if err == nil && len(r.stored) > 0 && r.in.err == nil {
		err = fatal{fmt.Errorf("%w: it has %d lines, and %d have been imported; to import it by itself, give it a name of its own (--name)",
			ErrDiffers, r.record.Lines, r.island)}
	}
	switch {
	case isFatal(err):
		if !errors.Is(err, ErrRunning) {
			r.signLast(ctx, s)
		}
		return err
	case ctx.Err() != nil:
		r.signLast(ctx, s)
		return ctx.Err()
	case err != nil:
		return err
	}
	if err := r.sign(ctx, s); err != nil {
		return err
	}
	r.result.Already = r.done && r.result.Packs == 0 && r.in.err == nil
	r.result.Grown = r.result.Grown && !r.result.Already
	return r.in.err // what came before it is published
}

// signLast ends the run for good, ctx or not: it waits a moment for what is on its way,
// and leaves a record that says as much as possible. What it cannot say the next run
// reads back.
func (r *run) signLast(ctx context.Context, s *session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	err := r.settleSent(ctx)
	if err = errors.Join(err, r.sign(ctx, s)); err != nil {
		r.log.Debug("import: ended in disorder", "import", r.id, "error", err)
	}
}

func isFatal(err error) bool {
	_, ok := errors.AsType[fatal](err)
	return ok
}

// sign writes the record of an end; a closed one when nothing is left open, so
// that nobody has to read back or to ask for us.
func (r *run) sign(ctx context.Context, s *session) error {
	r.record.Done = r.done && r.moved == 0 || r.ended && r.in.err == nil && len(r.queue) == 0
	r.record.Open = r.sent > 0 || len(r.stored) > 0
	return r.save(ctx, s)
}

// sendAll is nil when all is settled.
func (r *run) sendAll(ctx context.Context, s *session) error {
	look := time.NewTicker(min(lookEvery, r.o.saveEvery))
	defer look.Stop()
	for {
		if err := r.sendQueue(ctx, s); err != nil {
			return err
		}
		packs := r.packs
		switch {
		case r.ended && len(r.queue) == 0:
			return nil
		case r.ended || r.sent < len(r.queue) || r.full():
			packs = nil
		}
		ok, failed := r.front()
		select {
		case p, more := <-packs:
			if !more {
				r.ended = true
				continue
			}
			r.queue = append(r.queue, p)
		case ack := <-ok:
			r.acknowledged(ack)
		case err := <-s.denied:
			return fatal{err}
		case err := <-failed:
			r.queue[0].future = nil
			return refused(err)
		case <-look.C:
			r.progress.show(r.result.Lines)
			if time.Since(r.saved) >= r.o.saveEvery {
				if err := r.save(ctx, s); err != nil {
					return err
				}
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *run) full() bool { return r.sent >= sentPacksMax || r.bytes >= sentBytesMax }

// front is what the oldest pack on its way will say.
func (r *run) front() (<-chan *jetstream.PubAck, <-chan error) {
	if r.sent == 0 || r.queue[0].future == nil {
		return nil, nil
	}
	f := r.queue[0].future
	return f.Ok(), f.Err()
}

// sendQueue sends what is in the queue, as far as it may.
func (r *run) sendQueue(ctx context.Context, s *session) error {
	for r.sent < len(r.queue) && !r.full() {
		p := r.queue[r.sent]
		if err := r.recall(p); err != nil {
			return err
		}
		if p.sequence != 0 {
			if r.sent > 0 {
				return nil // settled in order
			}
			r.settle(p)
			continue
		}
		early := p.early && r.record.Cut != p.last
		if early && r.sent > 0 {
			return nil // the record has room for one such end: the last one must be behind us
		}
		if early || time.Since(r.saved) >= staleAfter {
			if early {
				r.record.Cut = p.last
			}
			if err := r.save(ctx, s); err != nil {
				return err
			}
		}
		// No retries: they would come behind later packs.
		f, err := s.js.PublishMsgAsync(p.message(s.idPrefix, r.id), jetstream.WithRetryAttempts(0))
		if err != nil {
			return fmt.Errorf("publish lines %s: %w", p.lines(), err)
		}
		p.future = f
		p.tries++
		r.sent++
		r.bytes += len(p.body)
	}
	return nil
}

// acknowledged settles the oldest pack on its way.
func (r *run) acknowledged(ack *jetstream.PubAck) {
	p := r.queue[0]
	p.sequence = ack.Sequence
	r.sent--
	r.bytes -= len(p.body)
	if ack.Duplicate && p.tries == 1 {
		p.tries = 0 // an interrupted run's, which arrived after all
	}
	r.settle(p)
}

// settle counts the first of the queue into the record.
func (r *run) settle(p *pack) {
	r.queue[0] = nil
	r.queue = r.queue[1:]
	r.moved++
	lines := p.last - p.first + 1
	r.record.Lines, r.record.Hash = p.last, p.hash
	// A pack that came late, into a hole, stands after later lines.
	r.record.Last = max(r.record.Last, pipeline.At(p.sequence, int(lines-1)))
	delete(r.stored, p.first)
	if len(r.stored) == 0 { // else one of those may stand further back
		r.record.After = max(r.record.After, p.sequence)
	}
	r.result.Last = r.record.Last
	if p.tries == 0 {
		r.result.Skipped += lines
		return
	}
	r.result.Lines += lines
	r.result.Packs++
	r.result.Bytes += uint64(len(p.body) + len(newline))
}

// settleSent waits for what is on its way.
func (r *run) settleSent(ctx context.Context) error {
	for r.sent > 0 {
		ok, failed := r.front()
		if ok == nil {
			return errors.New("a pack was refused")
		}
		select {
		case ack := <-ok:
			r.acknowledged(ack)
		case err := <-failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// refused distinguishes what the server will not take from what it did not answer.
func refused(err error) error {
	refusal, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return fmt.Errorf("publish: %w", err)
	}
	if jetlog.RefusedByHand(err) {
		return fatal{errRefused}
	}
	switch refusal.ErrorCode {
	case codeNoRoom, codeNoStorage, codeStoreFailed:
		return fatal{fmt.Errorf("stream %s takes no more (%s): make room, or raise its limit; then run it again to go on", eventsStream, refusal.Description)}
	}
	if refusal.Code >= 500 { // it may pass
		return fmt.Errorf("publish: %w", err)
	}
	return fatal{fmt.Errorf("stream %s refuses a pack: %w", eventsStream, err)}
}
