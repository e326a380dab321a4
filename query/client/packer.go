package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/tidemark-io/tidemark/pipeline"
)

// PackOptions bound a Packer. Zero fields take their defaults.
type PackOptions struct {
	// LinesMax is the most events in a message, 1,024 at the most. Default
	// 256: beyond that the gain is small.
	LinesMax int
	// BytesMax is the most bytes in a message, within the server's
	// max_payload. Default 256 KiB.
	BytesMax int
	// Delay is how long an event may wait for others. Default 5 ms; below
	// zero an event waits until its pack is full, or for Flush.
	Delay time.Duration
	// InFlightMax is the most messages without an acknowledgement; Add blocks
	// when it is reached. Default 16. With 1, order holds even when a message
	// has to be sent again.
	InFlightMax int
	// Patience is how long a message without an acknowledgement is sent again
	// before it has failed. Default 30 s. It must be below the stream's
	// window of duplicates (two minutes unless configured).
	Patience time.Duration
	// IDPrefix begins each message's Nats-Msg-Id; a number follows. Default:
	// random. Give one to make a run repeatable: the same events with the
	// same bounds and no Delay make the same packs with the same ids.
	IDPrefix string
	// OnAck hears of every stored message in the order of Add, one call at a
	// time. It must not call the Packer.
	OnAck func(Ack)
}

func (o PackOptions) withDefaults(payloadMax int) PackOptions {
	const headers = 512 // room for the message's id
	fill := func(n *int, value int) {
		if *n <= 0 {
			*n = value
		}
	}
	fill(&o.LinesMax, 256)
	fill(&o.BytesMax, 256<<10)
	fill(&o.InFlightMax, 16)
	o.LinesMax = min(o.LinesMax, pipeline.PackMax)
	o.BytesMax = min(o.BytesMax, payloadMax-headers)
	if o.Delay == 0 {
		o.Delay = 5 * time.Millisecond
	}
	if o.Patience <= 0 {
		o.Patience = patienceDefault
	}
	if o.IDPrefix == "" {
		o.IDPrefix = nuid.Next()
	}
	return o
}

// Ack is a stored message of a Packer.
type Ack struct {
	ID        string // its Nats-Msg-Id
	Lines     int
	First     Position // of its first line
	Last      Position // of its last: wait for this one
	Duplicate bool     // the log had it already
}

// PackError is a message that could not be stored, or may not have been.
type PackError struct {
	ID    string // its Nats-Msg-Id; sent again with it, it is stored once
	Body  []byte // its lines
	Lines int
	Err   error // errors.Is(err, ErrUncertain) when it may have been stored
}

func (e *PackError) Error() string {
	return fmt.Sprintf("client: a pack of %d events (%s): %v", e.Lines, e.ID, e.Err)
}

func (e *PackError) Unwrap() error { return e.Err }

// ErrClosed is returned for a Packer that was closed.
var ErrClosed = errors.New("client: the packer is closed")

// Packer publishes many events: it joins them to messages of many lines and
// keeps several of these in flight. All methods may be called concurrently;
// Close ends it.
//
// Messages go out in the order of Add. Each has a Nats-Msg-Id of its own, so one whose
// acknowledgement does not come is sent again without being stored twice; it may then
// stand after later ones (see InFlightMax). One that fails for good is reported by the
// next Add, which takes nothing until Flush has returned all errors.
type Packer struct {
	c     *Client
	o     PackOptions
	inbox string // acknowledgements come to inbox + the pack's number
	sub   *nats.Subscription

	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	places   chan struct{} // one in it for each pack in flight
	settling sync.WaitGroup

	// turn is a lock that can be given up on: its holder may fill, seal and send. It is
	// held while waiting for a place in flight, which is what makes Add wait.
	turn   chan struct{}
	lines  []byte
	count  int
	sealed uint64 // packs so far
	timer  *time.Timer
	closed bool

	mu      sync.Mutex
	flight  map[uint64]*pack
	settled uint64        // every pack up to this number has an outcome
	moved   chan struct{} // closed when settled moves
	last    Position
	failed  []error

	telling sync.Mutex // keeps OnAck in order
}

// pack is one message on its way.
type pack struct {
	number uint64
	count  int
	msg    *nats.Msg
	acks   chan *nats.Msg
	done   bool
	ack    pubAck
	err    error
}

// NewPacker starts a Packer.
func (c *Client) NewPacker(o PackOptions) (*Packer, error) {
	p := &Packer{
		c:      c,
		o:      o.withDefaults(int(c.nc.MaxPayload())),
		inbox:  c.nc.NewInbox() + ".",
		turn:   make(chan struct{}, 1),
		flight: map[uint64]*pack{},
		moved:  make(chan struct{}),
	}
	p.places = make(chan struct{}, p.o.InFlightMax)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.timer = time.AfterFunc(time.Hour, p.due)
	p.timer.Stop()
	var err error
	if p.sub, err = c.nc.Subscribe(p.inbox+"*", p.acknowledged); err != nil {
		p.cancel()
		return nil, fmt.Errorf("client: start a packer: %w", err)
	}
	return p, nil
}

// Add takes an event. It blocks while InFlightMax messages are without an
// acknowledgement. An error is the event's own, or an earlier pack's (see
// Flush); the event was not taken then.
func (p *Packer) Add(e Event) error {
	if err := p.take(context.Background()); err != nil {
		return err
	}
	defer p.release()
	start := len(p.lines)
	lines, err := e.AppendJSON(p.lines)
	if err != nil {
		return err
	}
	line := lines[start:]
	if start+len(line)+1 > p.o.BytesMax {
		return p.addLine(bytes.Clone(line))
	}
	return p.added(lines)
}

// AddLine takes an event as JSON on one line, its type included. The line is
// not kept and not looked into.
func (p *Packer) AddLine(line []byte) error {
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return errors.New("client: an event of no bytes")
	}
	if bytes.IndexByte(line, '\n') >= 0 {
		return errors.New("client: an event must be on one line")
	}
	if err := p.take(context.Background()); err != nil {
		return err
	}
	defer p.release()
	return p.addLine(line)
}

func (p *Packer) addLine(line []byte) error {
	if len(line)+1 > p.o.BytesMax {
		return fmt.Errorf("client: an event of %d bytes does not fit into a message of %d", len(line), p.o.BytesMax)
	}
	if len(p.lines)+len(line)+1 > p.o.BytesMax {
		if err := p.seal(context.Background()); err != nil {
			return err
		}
	}
	return p.added(append(p.lines, line...))
}

func (p *Packer) added(lines []byte) error {
	p.lines = append(lines, '\n')
	p.count++
	if p.count == p.o.LinesMax {
		return p.seal(context.Background())
	}
	if p.count == 1 && p.o.Delay > 0 {
		p.timer.Reset(p.o.Delay)
	}
	return nil
}

// take gets the turn to fill. It fails when an earlier pack did.
func (p *Packer) take(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if p.closed {
		p.release()
		return ErrClosed
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.failed) > 0 {
		p.release()
		return p.failed[0]
	}
	return nil
}

func (p *Packer) release() { <-p.turn }

// due sends what has waited for others long enough.
func (p *Packer) due() {
	select {
	case p.turn <- struct{}{}:
	case <-p.ctx.Done():
		return
	}
	defer p.release()
	if !p.closed {
		_ = p.seal(p.ctx) // fails only when Close is under way, which reports the rest
	}
}

// seal sends what is at hand, when there is a place in flight. Only with the
// turn.
func (p *Packer) seal(ctx context.Context) error {
	if p.count == 0 {
		return nil
	}
	select {
	case p.places <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-p.ctx.Done():
		return ErrClosed
	}
	p.timer.Stop()
	p.sealed++
	k := &pack{
		number: p.sealed,
		count:  p.count,
		acks:   make(chan *nats.Msg, 4),
		msg: &nats.Msg{
			Subject: "events.pack",
			Reply:   p.inbox + strconv.FormatUint(p.sealed, 10),
			Header:  nats.Header{nats.MsgIdHdr: {p.o.IDPrefix + "-" + strconv.FormatUint(p.sealed, 10)}},
			Data:    p.lines[:len(p.lines)-1], // the last line needs no end
		},
	}
	p.lines, p.count = make([]byte, 0, cap(p.lines)), 0
	p.mu.Lock()
	p.flight[k.number] = k
	p.mu.Unlock()
	err := p.c.nc.PublishMsg(k.msg)
	p.settling.Go(func() { p.settle(k, err) })
	return nil
}

// acknowledged runs in the inbox's subscription.
func (p *Packer) acknowledged(m *nats.Msg) {
	number, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, p.inbox), 10, 64)
	if err != nil {
		return
	}
	p.mu.Lock()
	k := p.flight[number]
	p.mu.Unlock()
	if k == nil { // it has its outcome
		return
	}
	select {
	case k.acks <- m:
	default: // it has more than it needs
	}
}

// settle stays with a pack until it has an outcome.
func (p *Packer) settle(k *pack, err error) {
	var ack pubAck
	maybe := false // one attempt may have been stored
	deadline := time.Now().Add(p.o.Patience)
	for pause := pauseFirst; ; pause = min(2*pause, pauseMax) {
		if err == nil {
			ack, err = p.await(k, min(p.c.ackTimeout, p.o.Patience))
		}
		maybe = maybe || errors.Is(err, ErrUncertain)
		if err == nil || !passing(err) || time.Now().After(deadline) || !sleep(p.ctx, pause) {
			break
		}
		err = p.c.nc.PublishMsg(k.msg)
	}
	if err != nil && maybe && !errors.Is(err, ErrUncertain) {
		err = fmt.Errorf("%w; then: %w", ErrUncertain, err)
	}
	p.settledWith(k, ack, err)
}

func (p *Packer) await(k *pack, timeout time.Duration) (pubAck, error) {
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case m := <-k.acks:
		if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
			return pubAck{}, unstored(k.msg.Subject)
		}
		return readAck(m.Data)
	case <-t.C:
		return pubAck{}, ErrUncertain
	case <-p.ctx.Done():
		return pubAck{}, fmt.Errorf("%w: the packer was closed", ErrUncertain)
	}
}

// settledWith notes an outcome and reports all that are due, in order.
func (p *Packer) settledWith(k *pack, ack pubAck, err error) {
	p.telling.Lock()
	defer p.telling.Unlock()
	p.mu.Lock()
	k.done, k.ack, k.err = true, ack, err
	settled := p.settled
	var due []*pack
	for {
		next, ok := p.flight[settled+1]
		if !ok || !next.done {
			break
		}
		settled++
		delete(p.flight, settled)
		due = append(due, next)
		if next.err != nil {
			p.failed = append(p.failed, &PackError{next.id(), next.msg.Data, next.count, next.err})
		} else {
			p.last = max(p.last, pipeline.At(next.ack.Sequence, next.count-1))
		}
	}
	p.mu.Unlock()
	<-p.places
	for _, k := range due {
		if k.err == nil && p.o.OnAck != nil {
			p.o.OnAck(Ack{k.id(), k.count, pipeline.At(k.ack.Sequence, 0), pipeline.At(k.ack.Sequence, k.count-1), k.ack.Duplicate})
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settled = settled // behind OnAck: Flush returns when it has heard all
	close(p.moved)
	p.moved = make(chan struct{})
}

func (k *pack) id() string { return k.msg.Header.Get(nats.MsgIdHdr) }

// Flush sends what is at hand and waits until everything added before has an
// outcome. It returns ctx's error, or all packs that failed since the last
// Flush, as *PackError joined by errors.Join; the Packer goes on then.
func (p *Packer) Flush(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if p.closed {
		p.release()
		return ErrClosed
	}
	err := p.seal(ctx)
	last := p.sealed
	p.release()
	if err != nil {
		return err
	}
	return p.outcome(ctx, last)
}

func (p *Packer) outcome(ctx context.Context, last uint64) error {
	for {
		p.mu.Lock()
		settled, moved := p.settled, p.moved
		if settled >= last {
			err := errors.Join(p.failed...)
			p.failed = nil
			p.mu.Unlock()
			return err
		}
		p.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Position is the last stored event's position; an answer that waits for it
// counts everything up to there. 0: nothing is stored yet.
func (p *Packer) Position() Position {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// Close flushes and ends the Packer. When ctx ends first, packs without an
// acknowledgement are reported as uncertain.
func (p *Packer) Close(ctx context.Context) error {
	err := p.Flush(ctx)
	if errors.Is(err, ErrClosed) {
		return err
	}
	p.cancel() // the holder of the turn gives it up
	p.turn <- struct{}{}
	again := p.closed
	p.closed = true
	rest := p.count
	p.release()
	if again {
		return ErrClosed
	}
	p.timer.Stop()
	p.settling.Wait()
	if rest > 0 {
		err = errors.Join(err, fmt.Errorf("client: %d events were never sent", rest))
	}
	p.mu.Lock()
	err = errors.Join(append([]error{err}, p.failed...)...)
	p.failed = nil
	p.mu.Unlock()
	if e := p.sub.Unsubscribe(); e != nil && !errors.Is(e, nats.ErrConnectionClosed) {
		err = errors.Join(err, fmt.Errorf("client: close a packer: %w", e))
	}
	return err
}
