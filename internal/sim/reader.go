package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// reader reads one stream in order, with the contract of jetlog's: what the
// wire doubles, delays, drops or resets does not show, so the faults here are
// those that do. Runs are as short as the gate says. What was taken off the
// wire before a power cut is still returned after it, whether the stream has
// kept it or not. Then the reader must join on again: the stream must not have
// lost, or used a second time, the sequence of the last message taken (I10).
type reader[T any] struct {
	c       *Client
	stream  string
	created time.Time // the stream
	options jetlog.RunOptions
	item    func(*Stored) T

	after uint64    // sequence of the last message returned
	stamp time.Time // its timestamp; zero when not known
	ahead []*Stored // taken off the wire, behind after
	life  int       // the server's, when the reader last joined
	err   error     // beyond use
}

func openReader[T any](ctx context.Context, c *Client, stream string, after uint64, o jetlog.RunOptions, item func(*Stored) T) (*reader[T], error) {
	r := &reader[T]{c: c, stream: stream, options: o, item: item, after: after}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if r.created = c.created; stream != jetlog.EventsStream {
		r.created = c.s.stream(stream).created
	}
	if err := r.joinLocked(); err != nil {
		return nil, fmt.Errorf("sim: open %s: %w", stream, err)
	}
	return r, nil
}

// joinLocked goes on behind the last message taken, if that is still there.
func (r *reader[T]) joinLocked() error {
	of := r.c.s.stream(r.stream)
	if err := of.same(r.created); err != nil {
		return err
	}
	if err := of.state().Joins(r.after); err != nil {
		return err
	}
	if m := of.held[r.after]; m != nil {
		if !r.stamp.IsZero() && !m.Time.Equal(r.stamp) {
			return fmt.Errorf("%w: sequence %d of %s was stored at another time than the one read", jetlog.ErrTail, r.after, r.stream)
		}
		r.stamp = m.Time
	}
	r.life = r.c.s.life
	return nil
}

// ready says whether Next has something to return.
func (r *reader[T]) ready() bool {
	r.c.s.mu.Lock()
	defer r.c.s.mu.Unlock()
	return r.err != nil || len(r.ahead) > 0 || r.life != r.c.s.life || len(r.c.s.stream(r.stream).after(r.after, 1)) > 0
}

// Next implements pipeline.Source and pipeline.Tailer.
func (r *reader[T]) Next(ctx context.Context) ([]T, error) {
	for {
		if r.err != nil {
			return nil, r.err
		}
		fate, err := r.c.pass(ctx, Call{Kind: Next, Key: uint64(len(r.stream)), Ready: r.ready})
		if err != nil {
			return nil, err // nothing is lost by it
		}
		if err := fate.Err; err != nil {
			return nil, r.fail(err)
		}
		run, err := r.take(fate.Size)
		if err != nil {
			return nil, r.fail(err)
		}
		if len(run) > 0 {
			return run, nil
		}
	}
}

func (r *reader[T]) fail(err error) error {
	r.err = fmt.Errorf("sim: read %s after sequence %d: %w", r.stream, r.after, err)
	return r.err
}

// take is the run at hand, or nothing.
func (r *reader[T]) take(size int) ([]T, error) {
	r.c.s.mu.Lock()
	defer r.c.s.mu.Unlock()
	if r.life == r.c.s.life {
		if err := r.fetchLocked(); err != nil && len(r.ahead) == 0 {
			return nil, err
		}
	} else if len(r.ahead) == 0 {
		if err := r.joinLocked(); err != nil {
			return nil, err
		}
		if err := r.fetchLocked(); err != nil {
			return nil, err
		}
	}
	n, bytes := 0, 0
	whole := r.stream == jetlog.EventsStream
	for n < len(r.ahead) && (!whole || r.ahead[n].Sequence == r.after+uint64(n)+1) && (size <= 0 || n < size) &&
		(r.options.MessagesMax <= 0 || n < r.options.MessagesMax) && (r.options.BytesMax <= 0 || bytes < r.options.BytesMax) {
		bytes += len(r.ahead[n].Subject) + len(r.ahead[n].Data)
		n++
	}
	if n == 0 && len(r.ahead) > 0 {
		return nil, &pipeline.Hole{First: r.after + 1, Last: r.ahead[0].Sequence - 1}
	}
	var run []T
	for _, m := range r.ahead[:n] {
		run = append(run, r.item(m))
		r.after, r.stamp = m.Sequence, m.Time
	}
	r.ahead = r.ahead[n:]
	return run, nil
}

// aheadMax bounds what is taken off the wire and not returned yet.
const aheadMax = 64

// taken is the last message that was taken off the wire.
func (r *reader[T]) taken() uint64 {
	if n := len(r.ahead); n > 0 {
		return r.ahead[n-1].Sequence
	}
	return r.after
}

// fetchLocked takes what the stream has off the wire.
func (r *reader[T]) fetchLocked() error {
	of := r.c.s.stream(r.stream)
	if err := of.same(r.created); err != nil {
		return err
	}
	at := r.taken()
	if err := of.state().Joins(at); err != nil {
		return err
	}
	r.ahead = append(r.ahead, of.after(at, aheadMax-len(r.ahead))...)
	return nil
}

// Close ends reading. Closing twice is fine.
func (r *reader[T]) Close() error {
	if r.err == nil {
		r.err = errors.New("sim: the reader is closed")
	}
	return nil
}

// Source reads EVENTS. It implements pipeline.Source.
type Source struct{ *reader[pipeline.Message] }

var _ pipeline.Source = (*Source)(nil)

// Source reads on after a position, with the errors of jetlog.OpenSource.
func (c *Client) Source(ctx context.Context, from pipeline.Position, o jetlog.RunOptions) (*Source, error) {
	fate, err := c.pass(ctx, Call{Kind: Open, Key: 0})
	if err == nil {
		err = fate.Err
	}
	if err != nil {
		return nil, err
	}
	if state := c.s.State(jetlog.EventsStream); from.Sequence() > state.Last {
		return nil, fmt.Errorf("sim: open %s: %w", state.Name, state.Joins(from.Sequence()))
	}
	r, err := openReader(ctx, c, jetlog.EventsStream, from.Next()-1, o, (*Stored).message)
	if err != nil {
		return nil, err
	}
	return &Source{r}, nil
}

// message is m for a receiver that owns it: it may write over it.
func (m *Stored) message() pipeline.Message {
	return pipeline.Message{
		Sequence: m.Sequence, Time: m.Time.UnixMilli(), Subject: m.Subject,
		Header: maps.Clone(m.Header), Data: bytes.Clone(m.Data),
	}
}

// Tailer follows DELTAS. It implements pipeline.Tailer.
type Tailer struct{ *reader[*Stored] }

var _ pipeline.Tailer = (*Tailer)(nil)

// Tailer reads the windows behind a sequence.
func (c *Client) Tailer(ctx context.Context, after uint64, o jetlog.RunOptions) (*Tailer, error) {
	fate, err := c.pass(ctx, Call{Kind: Open, Key: 1})
	if err == nil {
		err = fate.Err
	}
	if err != nil {
		return nil, err
	}
	r, err := openReader(ctx, c, jetlog.DeltasStream, after, o, func(m *Stored) *Stored { return m })
	if err != nil {
		return nil, err
	}
	return &Tailer{r}, nil
}

// Next implements pipeline.Tailer.
func (t *Tailer) Next(ctx context.Context) (entries []pipeline.Entry, err error) {
	run, err := t.reader.Next(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range run {
		if t.err = foreign(m); t.err != nil {
			t.c.s.renew(t.created)
			break
		}
		entries = append(entries, pipeline.Entry{Sequence: m.Sequence, Time: m.Time.UnixMilli(), Window: bytes.Clone(m.Data)})
	}
	if len(entries) == 0 {
		return nil, t.err
	}
	return entries, nil
}
