package jetlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/internal/pull"
)

const (
	// lingerStep is how often a lingering reader looks whether its run is
	// full. To wake for every message would cost more than reading it.
	lingerStep = time.Millisecond

	reopenWaitMin = 50 * time.Millisecond
	reopenWaitMax = 2 * time.Second
	// reopenTimeout bounds one attempt to make a consumer.
	reopenTimeout = 5 * time.Second
	// stuckLogEvery is how often a reader that cannot go on says so.
	stuckLogEvery = 10 * time.Second
	// gapLooks is how many consumers must lack the same messages. The server places each on
	// any of those that have a copy of the stream: of three, one after eight is likely.
	gapLooks = 8
	// runHintMin is the room of a run when the one before was short.
	runHintMin = 16
)

// RunOptions bound what Next returns at once. Zeros take the defaults.
type RunOptions struct {
	MessagesMax int           // default 8192
	BytesMax    int           // of whole messages; the message that reaches it is the run's last; default 4 MiB
	Linger      time.Duration // how long to gather after a run's first message; 0: only what is at hand
	Ahead       int           // messages asked for at a time, twice that are under way; default and most 4096
	AheadBytes  int           // of one request, and of two of the largest messages at least; default 8 MiB
	Messages    int           // asked for in all; 0: all that come
	Heartbeat   time.Duration // silence of twice this makes the consumer anew; default 2 s
	Logger      *slog.Logger  // default: none
}

func (o RunOptions) withDefaults() RunOptions {
	if o.MessagesMax <= 0 {
		o.MessagesMax = 8192
	}
	if o.BytesMax <= 0 {
		o.BytesMax = 4 << 20
	}
	if o.Heartbeat <= 0 {
		// A consumer lives on one server of a cluster, and dies with it in
		// silence: twice this is less than the default of ready.lag.
		o.Heartbeat = 2 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// reader reads one stream in order, as T's, one goroutine at a time.
//
// Every message of the stream behind `after` comes once: a break of the
// consumer sequence, a reconnect, a missed heartbeat or any status makes the
// consumer anew behind the last message taken. So does a jump of the stream
// sequence, gapLooks times: then the messages have not left the front of the
// stream, which open looks at each time, and no server's copy of it has them.
type reader[T any] struct {
	streams *Streams
	stream  string
	created time.Time // the stream
	options RunOptions
	item    func(*nats.Msg, pull.Ack) T
	status  chan nats.Status
	silence *time.Timer // the one timer: silence, linger, pauses

	after   uint64        // stream sequence of the last message taken
	stamp   int64         // its timestamp, Unix ns; 0 before the first
	whole   bool          // a message that is missing is an error, *pipeline.Hole
	gap     pipeline.Hole // that was seen last
	looks   int           // how many consumers have shown it
	behind  uint64        // the next sequence, if the stream had it when the consumer last had no more
	room    int           // for the next run
	pull    *pull.Puller
	barren  bool  // the last consumer delivered nothing
	err     error // beyond use
	pending atomic.Uint64
}

// openReader begins behind the sequence `after`, which must still join the
// stream (StreamState.Joins).
func openReader[T any](
	ctx context.Context, s *Streams, stream string, created time.Time, after uint64, o RunOptions, item func(*nats.Msg, pull.Ack) T,
) (*reader[T], error) {
	r := newReader(s, stream, created, after, o, item)
	return r.opened(r.open(ctx))
}

func newReader[T any](s *Streams, stream string, created time.Time, after uint64, o RunOptions, item func(*nats.Msg, pull.Ack) T) *reader[T] {
	return &reader[T]{
		streams: s, stream: stream, whole: stream == EventsStream, created: created, after: after, item: item, options: o.withDefaults(), room: runHintMin,
		status: s.nc.StatusChanged(nats.CONNECTED, nats.CLOSED), silence: time.NewTimer(time.Hour),
	}
}

// opened is the reader, closed where it could not be opened.
func (r *reader[T]) opened(err error) (*reader[T], error) {
	if err != nil {
		_ = r.Close()
		return nil, fmt.Errorf("jetlog: open %s: %w", r.stream, err)
	}
	return r, nil
}

// open makes a consumer behind the last message taken.
func (r *reader[T]) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reopenTimeout)
	defer cancel()
	for len(r.status) > 0 {
		<-r.status // of before this consumer
	}
	state, err := r.streams.sameState(ctx, r.stream, r.created)
	if err != nil {
		return err
	}
	if err := state.Joins(r.after); err != nil {
		return err
	}
	if err := r.sameLast(ctx); err != nil {
		return err
	}
	return r.begin(ctx)
}

// begin makes the consumer, behind a message that is known to be there.
func (r *reader[T]) begin(ctx context.Context) (err error) {
	first := jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.after + 1}
	r.pull, err = pull.Open(ctx, r.streams.js, r.stream, first, pull.Options{
		Ahead: r.options.Ahead, AheadBytes: r.options.AheadBytes, Messages: r.options.Messages, Heartbeat: r.options.Heartbeat,
	})
	return err
}

// sameLast makes sure that the last message taken is still the one at its
// sequence: a stream that lost its tail may have been filled again (I10). The
// first time it notes what is there.
func (r *reader[T]) sameLast(ctx context.Context) error {
	if r.after == 0 {
		return nil
	}
	m, err := GetStored(ctx, r.streams.nc, r.stream, r.after)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil // purged since, or deleted
	}
	if err != nil {
		return err
	}
	stamp := m.Time.UnixNano()
	if r.stamp == 0 {
		r.stamp = stamp
	}
	if stamp != r.stamp {
		return fmt.Errorf("%w: sequence %d of %s was stored at another time than the one read", ErrTail, r.after, r.stream)
	}
	return nil
}

// Next implements pipeline.Source and pipeline.Tailer.
func (r *reader[T]) Next(ctx context.Context) ([]T, error) {
	if r.err != nil {
		return nil, r.err
	}
	m, a, err := r.first(ctx)
	if err != nil {
		return nil, r.fail(ctx, err)
	}
	run := r.fill(ctx, m, a)
	r.room = max(runHintMin, min(2*len(run), r.options.MessagesMax))
	return run, nil
}

// fail keeps every error but the end of the caller's patience.
func (r *reader[T]) fail(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.err = fmt.Errorf("jetlog: read %s after sequence %d: %w", r.stream, r.after, err)
	return r.err
}

// Pending is how many messages the stream held behind the last one returned.
// Safe for concurrent use.
func (r *reader[T]) Pending() uint64 { return r.pending.Load() }

// Close ends reading. Not to be called while Next runs: end its ctx first.
// Closing twice is fine.
func (r *reader[T]) Close() error {
	if r.pull != nil {
		r.pull.Close()
		r.pull = nil
	}
	r.silence.Stop()
	r.streams.nc.RemoveStatusListener(r.status)
	if r.err == nil {
		r.err = fmt.Errorf("jetlog: read %s: closed", r.stream)
	}
	return nil
}

// first blocks until there is a message, mending the consumer as needed.
func (r *reader[T]) first(ctx context.Context) (*nats.Msg, pull.Ack, error) {
	for {
		if r.pull == nil {
			if err := r.reopen(ctx); err != nil {
				return nil, pull.Ack{}, err
			}
		}
		m, err := r.wait(ctx)
		if err != nil {
			return nil, pull.Ack{}, err
		}
		if m == nil {
			continue
		}
		if a, ok := r.take(m); ok {
			return m, a, nil
		}
		if m.Reply == "" {
			r.idle(ctx)
		}
		if damage := r.damage(ctx); damage != nil {
			return nil, pull.Ack{}, damage
		}
	}
}

// idle looks, where a consumer says that it has no more, whether the stream has. If it still
// has at the next such moment, this is a gap: a disk has lost the last messages.
func (r *reader[T]) idle(ctx context.Context) {
	if !r.whole || r.pull == nil {
		return
	}
	state, err := r.streams.sameState(ctx, r.stream, r.created)
	switch {
	case err != nil || state.Last <= r.after:
		r.behind = 0
	case r.behind != r.after+1:
		r.behind = r.after + 1
	default:
		r.passes(pipeline.Hole{First: r.after + 1, Last: state.Last})
	}
}

// damage returns the gap that the reader is at, once no consumer has shown its messages and
// the leader of the stream says that it has none of them.
func (r *reader[T]) damage(ctx context.Context) error {
	if !r.whole || r.looks < gapLooks {
		return nil
	}
	r.looks = 0
	gap := r.gap
	for _, sequence := range []uint64{gap.First, gap.Last} {
		if _, err := GetStored(ctx, r.streams.nc, r.stream, sequence); !errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil // it is there, or not known: the next consumers are asked
		}
	}
	r.streams.noteDamage(ctx, gap)
	return &gap
}

// wait is the next arrival, or nil after the consumer was given up.
func (r *reader[T]) wait(ctx context.Context) (*nats.Msg, error) {
	select {
	case m := <-r.pull.Arrived:
		return m, nil
	default:
	}
	silence := 2 * r.options.Heartbeat
	r.silence.Reset(silence)
	select {
	case m := <-r.pull.Arrived:
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case status := <-r.status:
		if status == nats.CLOSED {
			return nil, nats.ErrConnectionClosed
		}
		r.giveUp("connected again") // what was asked for is forgotten
	case <-r.silence.C:
		r.giveUp(fmt.Sprintf("nothing heard for %v", silence))
	}
	return nil, nil
}

// take accepts an arrival, or gives the consumer up.
func (r *reader[T]) take(m *nats.Msg) (pull.Ack, bool) {
	a, stored, err := r.pull.Take(m)
	if stored {
		if a.Stream <= r.after {
			r.giveUp(fmt.Sprintf("sequence %d came after %d", a.Stream, r.after))
			return pull.Ack{}, false
		}
		if a.Stream != r.after+1 && !r.passes(pipeline.Hole{First: r.after + 1, Last: a.Stream - 1}) {
			return pull.Ack{}, false
		}
		r.after, r.stamp = a.Stream, a.Nanos
	}
	if err != nil {
		r.giveUp(err.Error())
	}
	return a, stored
}

// passes says whether the reader goes on behind a gap. If it does not, it gives the
// consumer up: the next one begins before the gap, maybe on another server.
func (r *reader[T]) passes(gap pipeline.Hole) bool {
	if gap != r.gap {
		r.gap, r.looks = gap, 0
	}
	if r.looks++; r.looks >= gapLooks && !r.whole {
		return true
	}
	r.giveUp(fmt.Sprintf("%v did not come", gap))
	return false
}

// fill gathers the run that begins with m until it is full or the linger is
// over. Interrupted, it returns what it has.
func (r *reader[T]) fill(ctx context.Context, m *nats.Msg, a pull.Ack) []T {
	run := append(make([]T, 0, r.room), r.item(m, a))
	bytes := m.Size() // headers too
	var end time.Time
	for {
	drain:
		for len(run) < r.options.MessagesMax && bytes < r.options.BytesMax && r.pull != nil {
			select {
			case m := <-r.pull.Arrived:
				if got, ok := r.take(m); ok {
					a = got
					run = append(run, r.item(m, a))
					bytes += m.Size()
				}
			default:
				break drain
			}
		}
		full := len(run) >= r.options.MessagesMax || bytes >= r.options.BytesMax
		if full || r.pull == nil || !r.linger(ctx, &end) {
			r.pending.Store(a.Pending)
			return run
		}
	}
}

// linger waits a step, and says whether the run may go on after it.
func (r *reader[T]) linger(ctx context.Context, end *time.Time) bool {
	if r.options.Linger <= 0 {
		return false
	}
	now := time.Now()
	if end.IsZero() {
		*end = now.Add(r.options.Linger)
	}
	left := end.Sub(now)
	if left <= 0 {
		return false
	}
	r.silence.Reset(min(left, lingerStep))
	select {
	case <-ctx.Done():
		return false
	case <-r.silence.C:
		return true
	}
}

func (r *reader[T]) giveUp(why string) {
	if r.pull == nil {
		return
	}
	r.options.Logger.Info("jetlog: consumer recreated", "stream", r.stream, "after", r.after, "why", why)
	r.barren = r.pull.Delivered == 0
	r.pull.Close()
	r.pull = nil
}

// reopen makes the next consumer, after a pause when the last one was of no
// use at all.
func (r *reader[T]) reopen(ctx context.Context) error {
	if r.barren {
		if err := r.pause(ctx, reopenWaitMin); err != nil {
			return err
		}
	}
	return r.retry(ctx, func() error { return r.open(ctx) })
}

// retry tries for as long as there is hope, and says so now and then.
func (r *reader[T]) retry(ctx context.Context, try func() error) error {
	wait, logged := reopenWaitMin, time.Now()
	for {
		err := try()
		if err == nil || hopeless(err) {
			return err
		}
		if time.Since(logged) >= stuckLogEvery {
			logged = time.Now()
			r.options.Logger.Warn("jetlog: cannot read on", "stream", r.stream, "after", r.after, "error", err)
		}
		if err := r.pause(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, reopenWaitMax)
	}
}

func (r *reader[T]) pause(ctx context.Context, d time.Duration) error {
	r.silence.Reset(d)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.silence.C:
		return nil
	}
}

// hopeless errors do not go away by trying again.
func hopeless(err error) bool {
	return errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, ErrTail) ||
		errors.Is(err, pipeline.ErrGap) || errors.Is(err, ErrMoves) || errors.Is(err, nats.ErrConnectionClosed)
}
