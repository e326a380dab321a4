package letters

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

const (
	// letterTimeout ends the wait for one acknowledgement; the letter is
	// then published again, and stored once (its message id).
	letterTimeout = 5 * time.Second
	// lettersUnderWay bounds the letters published and not yet acknowledged.
	lettersUnderWay = 256

	letterWaitMin = 100 * time.Millisecond
	letterWaitMax = 5 * time.Second

	// letterLogEvery is how often the log says that letters cannot be kept.
	letterLogEvery = 10 * time.Second
)

// DeadLetters keeps dead letters in DEADLETTER. It implements
// pipeline.DeadLetters. Safe for concurrent use. What it runs in the
// background ends with the connection.
type DeadLetters struct {
	js     jetstream.JetStream // its own, for the bounds on publishing
	logger *slog.Logger
	stored stored
}

var _ pipeline.DeadLetters = (*DeadLetters)(nil)

// NewDeadLetters keeps letters on the connection of s. logger may be nil.
func NewDeadLetters(s *jetlog.Streams, logger *slog.Logger) (*DeadLetters, error) {
	js, err := jetstream.New(s.Conn(), jetstream.WithPublishAsyncTimeout(letterTimeout))
	if err != nil {
		return nil, fmt.Errorf("letters: open %s: %w", jetlog.DeadLetterStream, err)
	}
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &DeadLetters{js: js, logger: logger}, nil
}

// Keep implements pipeline.DeadLetters. An error other than ctx's means that
// no attempt can succeed: the server refuses the letter, or the connection was
// closed.
func (d *DeadLetters) Keep(ctx context.Context, letters []pipeline.DeadLetter) error {
	letters = d.unstored(ctx, letters)
	for len(letters) > 0 {
		n := min(len(letters), lettersUnderWay)
		if err := d.keep(ctx, letters[:n]); err != nil {
			return fmt.Errorf("letters: keep dead letters: %w", err)
		}
		letters = letters[n:]
	}
	return nil
}

func (d *DeadLetters) keep(ctx context.Context, letters []pipeline.DeadLetter) error {
	wait, logged := letterWaitMin, time.Now()
	for {
		rest, err := d.publish(ctx, letters)
		if len(rest) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if refused(err) {
			return fmt.Errorf("position %d: %w", rest[0].Position, err)
		}
		if time.Since(logged) >= letterLogEvery {
			logged = time.Now()
			d.logger.Warn("letters: cannot keep dead letters", "letters", len(rest), "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		letters, wait = rest, min(2*wait, letterWaitMax)
	}
}

// refused errors do not go away by trying again.
func refused(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.Code == 400 ||
		errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrBadHeaderMsg) || errors.Is(err, nats.ErrConnectionClosed)
}

// publish sends all letters and waits for their acknowledgements. It returns
// those that were not stored, or not known to be, and one reason why.
func (d *DeadLetters) publish(ctx context.Context, letters []pipeline.DeadLetter) (rest []pipeline.DeadLetter, why error) {
	bytesMax := d.js.Conn().MaxPayload()
	futures := make([]jetstream.PubAckFuture, len(letters))
	for i, l := range letters {
		futures[i], why = d.js.PublishMsgAsync(letterMessage(l, bytesMax))
		if why != nil {
			rest = append(rest, letters[i:]...)
			futures = futures[:i]
			break
		}
	}
	for i, f := range futures {
		select {
		case <-f.Ok():
		case err := <-f.Err():
			rest, why = append(rest, letters[i]), err
		case <-ctx.Done():
			return letters, ctx.Err()
		}
	}
	return rest, why
}
