package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

const (
	// deniedGrace is how long a command goes on after the server has denied it something:
	// what was allowed may still be answered.
	deniedGrace = 500 * time.Millisecond
	// lookWithin bounds the search for the reason why nobody answers.
	lookWithin = time.Second
)

// reach is what a connection lets a command do. The server says what it denies apart from
// any request, so the request itself only waits.
type reach struct {
	nc     *nats.Conn
	first  atomic.Pointer[error] // the first denial
	denies chan struct{}         // closed with it
}

func newReach(nc *nats.Conn) *reach {
	r := &reach{nc: nc, denies: make(chan struct{})}
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if jetlog.Denial(err) != "" && r.first.CompareAndSwap(nil, &err) {
			close(r.denies)
		}
	})
	return r
}

// denial is the first thing that the server has denied; nil: nothing.
func (r *reach) denial() error {
	if r == nil || r.first.Load() == nil {
		return nil
	}
	return *r.first.Load()
}

// untilDenied is ctx, which ends soon after the server has denied something.
func (r *reach) untilDenied(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-r.denies:
			time.AfterFunc(deniedGrace, cancel)
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// noJetStream is true when the server says that it has no JetStream for this account.
func (r *reach) noJetStream() bool {
	if r == nil {
		return false
	}
	js, err := jetstream.New(r.nc)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookWithin)
	defer cancel()
	_, err = js.AccountInfo(ctx)
	return errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
}

// unanswered is true of an error that says that no answer came.
func unanswered(err error) bool {
	e, asked := errors.AsType[*job.Error](err)
	return asked && e.Code == job.CodeGone ||
		errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, jetlog.ErrNoBucket) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
