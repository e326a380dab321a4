package jetlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	// gapLooks is how many consumers must not give a message before it is looked for. A
	// cluster places each on any server that has a copy: that one which has the message is
	// never among 16 happens once in 65,000 times with two copies.
	gapLooks = 16
	// copyAwayAfter is when a server that has a copy of the stream is away.
	copyAwayAfter = 5 * time.Second
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
// sequence (hole).
type reader[T any] struct {
	streams *Streams
	stream  string
	created time.Time // the stream
	options RunOptions
	item    func(*nats.Msg, pull.Ack) T
	status  chan nats.Status
	silence *time.Timer // the one timer: silence, linger, pauses

	after    uint64    // stream sequence of the last message taken
	stamp    int64     // its timestamp, Unix ns; 0 before the first
	whole    bool      // a message that is missing is an error, *pipeline.Hole
	gap      uint64    // the first message that did not come
	gapSince time.Time // when it first did not
	looks    int       // how many consumers have not given it
	owed     bool      // the consumer has more messages, as it said last
	idleAt   uint64    // the message that was next when the consumer last had nothing though it owed it
	room     int       // for the next run
	pull     *pull.Puller
	stuckAt  time.Time // when it last said that it cannot go on, or began to wait
	barren   bool      // the last consumer delivered nothing
	err      error     // beyond use
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
		streams: s, stream: stream, whole: stream == EventsStream, created: created, after: after, item: item, options: o.withDefaults(), room: runHintMin, stuckAt: time.Now(),
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
	if err == nil {
		r.owed = r.pull.Waiting > 0
	}
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
	r.stuckAt = time.Now()
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
		if pull.IsHeartbeat(m) {
			r.idle()
		}
		if r.looks < gapLooks {
			continue
		}
		r.looks = 0
		hole, err := r.hole(ctx)
		switch {
		case hole != nil:
			return nil, pull.Ack{}, hole
		case hopeless(err):
			return nil, pull.Ack{}, err
		}
		r.stuck(err)
		if err := r.pause(ctx, reopenWaitMax); err != nil {
			return nil, pull.Ack{}, err
		}
	}
}

// idle takes note that a consumer has had nothing for a heartbeat though it owes messages.
// The second time in one place this is a gap: a disk has lost the last messages, or cannot
// give the next one.
func (r *reader[T]) idle() {
	if !r.whole || !r.owed || r.pull == nil {
		return
	}
	if r.idleAt != r.after+1 {
		r.idleAt = r.after + 1
		return
	}
	r.gapAt(r.after + 1)
}

// hole returns the messages that are missing from where the reader is. No consumer has shown
// the first; the leader of the stream must have none either, and each server that has a copy
// must be in contact with it, and have been since the gap was seen: else one that is away may
// have it. The error says what is not
// known, or that the messages have left the front of the stream.
func (r *reader[T]) hole(ctx context.Context) (*pipeline.Hole, error) {
	hole := pipeline.Hole{First: r.after + 1}
	_, err := GetStored(ctx, r.streams.nc, r.stream, hole.First)
	if !errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, cmp.Or(err, fmt.Errorf("message %d is stored, and no consumer delivers it", hole.First))
	}
	next, err := NextStored(ctx, r.streams.nc, r.stream, hole.First, ">")
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, err
	}
	state, err := r.streams.sameState(ctx, r.stream, r.created)
	if err == nil {
		err = state.Joins(r.after)
	}
	if err != nil {
		return nil, err
	}
	if len(state.Heard) > 0 && time.Since(r.gapSince) <= copyAwayAfter { // a server may have gone just before
		return nil, fmt.Errorf("message %d does not come", hole.First)
	}
	for _, heard := range state.Heard {
		if heard > copyAwayAfter {
			return nil, fmt.Errorf("message %d is missing in all copies of %s but one, whose server is away: start that, or remove it from the NATS cluster", hole.First, r.stream)
		}
	}
	hole.Last = state.Last
	if next != nil {
		hole.Last = next.Sequence - 1
	}
	if hole.Last < hole.First {
		return nil, fmt.Errorf("nothing comes after message %d", r.after)
	}
	r.streams.noteDamage(ctx, hole)
	return &hole, nil
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
		// A stream that may lack messages is looked at twice: the second consumer began after it
		// was certain that they had not left its front.
		if a.Stream != r.after+1 && (r.whole || r.gap != r.after+1) {
			r.gapAt(r.after + 1)
			return pull.Ack{}, false
		}
		r.owed = a.Pending > 0
		r.after, r.stamp = a.Stream, a.Nanos
	}
	if err != nil {
		r.giveUp(err.Error())
	}
	return a, stored
}

// gapAt takes note that a consumer passes over a message, or does not give it, and gives the
// consumer up: the next one may be on another server.
func (r *reader[T]) gapAt(sequence uint64) {
	if sequence != r.gap {
		r.gap, r.gapSince, r.looks = sequence, time.Now(), 0
	}
	r.looks++
	r.giveUp(fmt.Sprintf("message %d did not come", sequence))
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
				if a, ok := r.take(m); ok {
					run = append(run, r.item(m, a))
					bytes += m.Size()
				}
			default:
				break drain
			}
		}
		full := len(run) >= r.options.MessagesMax || bytes >= r.options.BytesMax
		if full || r.pull == nil || !r.linger(ctx, &end) {
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
	wait := reopenWaitMin
	for {
		err := try()
		if err == nil || hopeless(err) {
			return err
		}
		r.stuck(err)
		if err := r.pause(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, reopenWaitMax)
	}
}

// stuck says now and then that the reader cannot go on.
func (r *reader[T]) stuck(err error) {
	if time.Since(r.stuckAt) >= stuckLogEvery {
		r.stuckAt = time.Now()
		r.options.Logger.Warn("jetlog: cannot read on", "stream", r.stream, "after", r.after, "error", err)
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
		errors.Is(err, pipeline.ErrGap) || errors.Is(err, nats.ErrConnectionClosed)
}
