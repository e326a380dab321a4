package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// Router reads EVENTS from where DELTAS ends, derives windows in parallel
// lanes and appends them in order.
//
//	Source ─► run ─► lane ─┐
//	          run ─► lane ─┼─► in order: dead letters kept, windows appended
//	          run ─► lane ─┘
//
// A run of messages, cut by the source (count, bytes, linger), goes to one
// lane whole: lanes work on different runs, so nothing is merged twice.
// Each append names the sequence it must follow; that compare-and-set makes a
// window atomic, informs a router that lost its lease, and makes a restart
// trivial: the last window says where to go on.
type Router struct {
	Open    func(ctx context.Context, from Position) (Source, error)
	Log     Log
	Letters DeadLetters
	Lane    func() Deriver
	Lanes   int
	Logger  *slog.Logger

	// Cuts gives positions, ascending, at which a window must end, as of the
	// start of a Run: shards stand there that may be ahead of a log which lost
	// its tail (I10). A log that never had a window begins at the last one.
	// nil: none.
	Cuts func() []Position

	Stats RouterStats

	refusals refusalLog
}

// RouterStats are a router's figures since the process started.
type RouterStats struct {
	Messages atomic.Uint64 // read from EVENTS
	Events   atomic.Uint64 // understood and counted
	Windows  atomic.Uint64
	Bytes    atomic.Uint64 // of windows
	Changes  atomic.Uint64 // before merging
	Merged   atomic.Uint64 // after
	Letters  [len(reasons)]atomic.Uint64
	Position atomic.Uint64 // the last window's To
	Time     atomic.Int64  // the last window's Time
	Active   atomic.Bool   // Position is this run's then
}

// Count is the number of dead letters of one reason.
func (s *RouterStats) Count(reason Reason) *atomic.Uint64 {
	for i, r := range Reasons {
		if r == reason {
			return &s.Letters[i]
		}
	}
	panic("pipeline: unlisted dead letter reason " + string(reason))
}

// Run routes until ctx ends (its error), another router takes over
// (ErrFenced), or something is wrong with a stream. It appends nothing after
// it returns.
func (r *Router) Run(ctx context.Context) error {
	header, last, err := r.Log.Tail(ctx)
	if err != nil {
		return fmt.Errorf("pipeline: read the end of the delta log: %w", err)
	}
	var cuts []Position
	if r.Cuts != nil {
		cuts = r.Cuts()
	}
	if last == 0 && len(cuts) > 0 {
		header.To = cuts[len(cuts)-1]
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	source, err := r.Open(ctx, header.To)
	if err != nil {
		return fmt.Errorf("pipeline: open EVENTS after position %d: %w", header.To, err)
	}
	// What disks have lost does not count: to wait for it would be to count nothing any more.
	source = PassHoles(source, r.Open, func(h Hole) {
		r.Logger.Error("router: events that EVENTS has lost are not counted", "first", h.First, "last", h.Last)
	})
	defer source.Close()

	r.Stats.Position.Store(uint64(header.To))
	r.Stats.Time.Store(header.Time)
	r.Stats.Active.Store(true)
	defer r.Stats.Active.Store(false)
	r.Logger.Info("router: routing", "after", header.To, "window", last)

	// Runs wait here for the appender, in order, each with its lane at work.
	// The bound is the number of lanes: no more runs are under way.
	runs := make(chan *run, r.Lanes)
	readErr := make(chan error, 1)
	go func() {
		defer close(runs)
		readErr <- r.read(ctx, source, header.To, cuts, runs)
	}()
	err = r.append(ctx, runs, header, last)
	cancel()
	for range runs { // let the reader go
	}
	return errors.Join(err, omitCanceled(<-readErr, err))
}

// omitCanceled drops the reader's cancellation where the appender's error caused it.
func omitCanceled(read, appended error) error {
	if appended != nil && errors.Is(read, context.Canceled) {
		return nil
	}
	return read
}

// run is one run of messages on its way through a lane.
type run struct {
	derived []Derived
	err     error
	count   int
	done    chan struct{}
}

// read hands runs to lanes.
func (r *Router) read(ctx context.Context, source Source, from Position, cuts []Position, runs chan<- *run) error {
	lanes := make(chan Deriver, r.Lanes)
	for range r.Lanes {
		lanes <- r.Lane()
	}
	for {
		messages, err := source.Next(ctx)
		if err != nil {
			return err
		}
		r.Stats.Messages.Add(uint64(len(messages)))
		lane := <-lanes
		if ctx.Err() != nil { // while all lanes were at work
			return ctx.Err()
		}
		work := &run{count: len(messages), done: make(chan struct{})}
		go func(from Position) {
			defer close(work.done)
			work.derived, work.err = DeriveRun(lane, from, messages, cuts)
			lanes <- lane
		}(from)
		from = EndOf(messages[len(messages)-1].Sequence)
		select {
		case runs <- work:
		case <-ctx.Done():
			<-work.done
			return ctx.Err()
		}
	}
}

// append stores what the lanes made, in order.
func (r *Router) append(ctx context.Context, runs <-chan *run, tail Header, last uint64) error {
	for {
		work, err := r.next(ctx, runs, tail, last)
		if work == nil {
			return err
		}
		<-work.done
		if work.err != nil {
			return work.err
		}
		for i := range work.derived {
			d := &work.derived[i]
			if d.From != tail.To {
				return fmt.Errorf("%w: window (%d, %d] does not follow one that ends at %d (I2)", ErrGap, d.From, d.To, tail.To)
			}
			if len(d.Letters) > 0 {
				if err := r.Letters.Keep(ctx, d.Letters); err != nil {
					return fmt.Errorf("pipeline: keep dead letters: %w", err)
				}
			}
			sequence, err := r.store(ctx, tail, last, d)
			if err != nil {
				return err
			}
			last, tail = sequence, d.Header
			r.count(d)
			r.refusals.report(r.Logger, time.Now(), d.Letters)
		}
	}
}

// idleLook is how often a router that has nothing to append looks whether the log still
// ends with its last window. Otherwise followers of a log that has lost its tail, or
// was recreated, would wait for the next event.
const idleLook = time.Second

// next is the next run, nil at the end.
func (r *Router) next(ctx context.Context, runs <-chan *run, tail Header, last uint64) (*run, error) {
	look := time.NewTimer(idleLook)
	defer look.Stop()
	for ; ; look.Reset(idleLook) {
		select {
		case work := <-runs:
			return work, nil
		case <-look.C:
			r.refusals.report(r.Logger, time.Now(), nil)
		}
		header, at, err := r.Log.Tail(ctx)
		if err == nil && (at != last || last != 0 && header != tail) {
			return nil, fmt.Errorf("%w: its last window is %d, up to position %d, where %d was expected", ErrFenced, at, header.To, last)
		}
	}
}

const (
	// retryAfter paces appends that fail.
	retryAfter = 100 * time.Millisecond
	// appendPatience is how long one window is tried before the router gives up, so that
	// its caller reports it and tries again.
	appendPatience = 15 * time.Second
)

// store appends one window. When the answer is an error it looks at the log
// before it does anything else: the window is there (the answer was lost), or
// the log is as before (try again), or somebody else wrote (ErrFenced).
func (r *Router) store(ctx context.Context, tail Header, last uint64, d *Derived) (uint64, error) {
	begun := time.Now()
	for attempt := 0; ; attempt++ {
		sequence, err := r.Log.Append(ctx, last, d.Window)
		if err == nil {
			return sequence, nil
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		r.Logger.Warn("router: append failed; reading the end of the delta log",
			"window", d.To, "attempt", attempt, "error", err)
		for {
			header, at, tailErr := r.Log.Tail(ctx)
			switch {
			case time.Since(begun) > appendPatience || errors.Is(tailErr, ErrGap):
				return 0, fmt.Errorf("pipeline: append window (%d, %d]: %w", d.From, d.To, errors.Join(err, tailErr))
			case tailErr != nil: // no leader at the moment
			case at == last && (last == 0 || header == tail): // not one recreated that has come as far
				err = nil
			case at == last+1 && header == d.Header:
				return at, nil
			default:
				return 0, fmt.Errorf("%w: its last window is %d, up to position %d, where %d was expected", ErrFenced, at, header.To, last)
			}
			if err := sleep(ctx, retryAfter); err != nil {
				return 0, err
			}
			if tailErr == nil {
				break
			}
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *Router) count(d *Derived) {
	s := &r.Stats
	s.Windows.Add(1)
	s.Events.Add(d.Events)
	s.Bytes.Add(uint64(len(d.Window)))
	s.Changes.Add(uint64(d.Changes))
	s.Merged.Add(uint64(d.Merged))
	for i := range d.Letters {
		s.Count(d.Letters[i].Reason).Add(1)
	}
	s.Position.Store(uint64(d.To))
	if d.Time > 0 {
		s.Time.Store(d.Time)
	}
}
