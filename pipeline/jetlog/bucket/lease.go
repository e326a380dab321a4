package bucket

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// The places of leases in the bucket.
const (
	leaseKey  = "router"
	BackupKey = "backup" // of who makes a backup
)

// ErrLeaseLost is the cause of a held context that ended because the lease is
// another's, or could not be renewed.
var ErrLeaseLost = errors.New("bucket: the router's lease is lost")

// LeaseOptions configure a Lease. Zeros take the defaults.
type LeaseOptions struct {
	Key    string        // default: the router's
	Owner  string        // a name no other process has, the same after a restart
	Renew  time.Duration // default 300 ms
	Expiry time.Duration // default 1.2 s; the same in all processes
	Logger *slog.Logger  // default: none
}

// Lease is the router's lease, a key in the bucket. It implements
// pipeline.Lease.
//
// No two clocks are compared. The holder writes the key every Renew and gives up when
// no write of the last Expiry is known to have arrived. A process that stands by takes
// over when it has itself seen the key unchanged for Expiry, which begins after the
// holder's last write did: so the holder gives up first. Every write is a
// compare-and-set, so of two that take over one succeeds. Where clocks run at different
// speeds two may hold it for a moment, and the delta log distinguishes them
// (pipeline.Lease).
type Lease struct {
	bucket  jetstream.KeyValue
	options LeaseOptions
	key     string // in the bucket
	session string // of this process, not of an earlier one of the same name

	mu     sync.Mutex
	holder leaseValue
}

var _ pipeline.Lease = (*Lease)(nil)

// leaseValue is what the key holds. An empty owner: nobody.
type leaseValue struct {
	Owner   string `json:"owner"`
	Session string `json:"session,omitempty"`
}

// keyOf is where a lease's key is: each slot has a router, and all together the
// rest.
func keyOf(slot jetlog.Slot, key string) string {
	if key == leaseKey {
		return slotKey(slot, key)
	}
	return key
}

// NewLease makes a lease that nobody has asked for yet.
func NewLease(s *jetlog.Streams, o LeaseOptions) (*Lease, error) {
	if o.Owner == "" {
		return nil, errors.New("bucket: lease: no owner is named")
	}
	o.Key = cmp.Or(o.Key, leaseKey)
	o.Renew = cmp.Or(o.Renew, 300*time.Millisecond)
	o.Expiry = cmp.Or(o.Expiry, 1200*time.Millisecond)
	if o.Expiry < 2*o.Renew {
		return nil, fmt.Errorf("bucket: lease: expiry %v must be at least twice the renewal %v", o.Expiry, o.Renew)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Lease{bucket: s.KeyValue(), options: o, key: keyOf(s.Slot(), o.Key), session: nuid.Next()}, nil
}

// Holder is the process that held the lease when this one last looked, which it does
// while it holds or waits; "" for none, or not known.
func (l *Lease) Holder() (name string, mine bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder.Owner, l.holder == l.mine()
}

func (l *Lease) mine() leaseValue { return leaseValue{l.options.Owner, l.session} }

func (l *Lease) setHolder(v leaseValue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holder = v
}

// Acquire implements pipeline.Lease. It looks four times every Renew, so a released
// lease, or one that an earlier process of the same owner left, is taken at once. held
// ends with ctx too. release informs the others and waits for that, for a moment at
// most; call it in any case.
func (l *Lease) Acquire(ctx context.Context) (held context.Context, release func(), err error) {
	look := time.NewTicker(max(l.options.Renew/4, time.Millisecond))
	defer look.Stop()
	var seen sighting
	for {
		sent := time.Now()
		revision, err := l.try(ctx, &seen)
		if revision != 0 {
			held, release := l.hold(ctx, revision, sent)
			return held, release, nil
		}
		if err != nil && ctx.Err() == nil {
			l.options.Logger.Debug("bucket: lease not looked at", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-look.C:
		}
	}
}

// sighting is a revision and when it was first seen.
type sighting struct {
	revision uint64
	since    time.Time
}

// try takes the lease if it is free; revision 0 says that it is not.
func (l *Lease) try(ctx context.Context, seen *sighting) (revision uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.options.Renew)
	defer cancel()
	value, revision, err := l.read(ctx)
	if err != nil {
		// Not to hear the server is not to hear that the holder is silent.
		*seen = sighting{}
		return 0, err
	}
	l.setHolder(value)
	now := time.Now()
	if seen.revision != revision {
		*seen = sighting{revision, now}
	}
	silent := now.Sub(seen.since) >= l.options.Expiry
	if value.Owner != "" && value.Owner != l.options.Owner && !silent {
		return 0, nil
	}
	taken, err := l.write(ctx, l.mine(), revision)
	if err == nil && silent && value.Owner != "" {
		// Not before: a cluster without a leader can be read and not written, and
		// this comes again and again.
		l.options.Logger.Warn("bucket: the holder of the lease is silent, taking over", "holder", value.Owner)
	}
	return taken, err
}

// hold keeps the lease until it is released, lost or ctx ends.
func (l *Lease) hold(ctx context.Context, revision uint64, sent time.Time) (context.Context, func()) {
	l.setHolder(l.mine())
	held, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		revision = l.renew(held, revision, sent)
		if revision == 0 {
			cancel(ErrLeaseLost)
		}
	}()
	var once sync.Once
	release := func() {
		once.Do(func() {
			cancel(context.Canceled)
			<-done
			l.giveBack(revision)
		})
	}
	return held, release
}

// renew writes the key every Renew until ctx ends, and returns the revision
// it holds, 0 when the lease is lost.
func (l *Lease) renew(ctx context.Context, revision uint64, alive time.Time) uint64 {
	next := time.NewTimer(l.options.Renew)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return revision
		case <-next.C:
		}
		sent := time.Now()
		// No attempt outlasts the lease: min(next renewal, expiry).
		attempt, cancel := context.WithTimeout(ctx, min(l.options.Renew, time.Until(alive.Add(l.options.Expiry))))
		written, err := l.rewrite(attempt, l.mine(), revision)
		cancel()
		switch {
		case err == nil:
			revision, alive = written, sent
		case ctx.Err() != nil:
			return revision
		case errors.Is(err, ErrLeaseLost):
			l.options.Logger.Warn("bucket: the lease is another's now")
			return 0
		default:
			l.options.Logger.Warn("bucket: lease not renewed", "error", err)
		}
		left := l.options.Expiry - time.Since(alive)
		if left <= 0 {
			l.options.Logger.Warn("bucket: lease given up, it could not be renewed", "for", l.options.Expiry)
			l.setHolder(leaseValue{})
			return 0
		}
		next.Reset(min(l.options.Renew, left))
	}
}

// rewrite replaces our value once. A write whose acknowledgement was lost still
// counts: the key then holds our session under a newer revision.
func (l *Lease) rewrite(ctx context.Context, v leaseValue, revision uint64) (uint64, error) {
	written, err := l.write(ctx, v, revision)
	if !jetlog.WrongSequence(err) {
		return written, err
	}
	value, revision, err := l.read(ctx)
	if err != nil {
		return 0, err
	}
	if value != l.mine() && revision != 0 { // 0: the bucket was recreated, and nobody has it
		l.setHolder(value)
		return 0, ErrLeaseLost
	}
	return l.write(ctx, v, revision)
}

func (l *Lease) giveBack(revision uint64) {
	if revision == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.options.Renew)
	defer cancel()
	_, err := l.rewrite(ctx, leaseValue{}, revision)
	switch {
	case errors.Is(err, ErrLeaseLost):
		return // rewrite has noted whose it is
	case err != nil:
		l.options.Logger.Info("bucket: lease not given back, it expires", "error", err)
	}
	l.setHolder(leaseValue{})
}

// read is the key's value and revision; the zero value and revision 0 when it
// was never written.
func (l *Lease) read(ctx context.Context) (leaseValue, uint64, error) {
	e, err := l.bucket.Get(ctx, l.key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return leaseValue{}, 0, nil
	}
	if err != nil {
		return leaseValue{}, 0, fmt.Errorf("bucket: read lease: %w", err)
	}
	var v leaseValue
	if err := json.Unmarshal(e.Value(), &v); err != nil {
		v.Owner = "unknown" // not ours to judge: it expires like any other
	}
	return v, e.Revision(), nil
}

// write replaces revision; 0 creates the key.
func (l *Lease) write(ctx context.Context, v leaseValue, revision uint64) (uint64, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return 0, err
	}
	if revision == 0 {
		return l.bucket.Create(ctx, l.key, b)
	}
	return l.bucket.Update(ctx, l.key, b, revision)
}
