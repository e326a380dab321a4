package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// Deltas is DELTAS. It implements pipeline.Log.
type Deltas struct {
	c    *Client
	seen *time.Time // when the log that Append appends to was made; the server's lock guards it
}

var _ pipeline.Log = Deltas{}

// Deltas is the delta log as this client uses it.
func (c *Client) Deltas() Deltas { return Deltas{c, new(time.Time)} }

// router is the Tag of what a router has appended. A message without it is damaged.
type router struct{}

// foreign is an error if m is no window.
func foreign(m *Stored) error {
	if _, is := m.Tag.(router); is {
		return nil
	}
	return fmt.Errorf("%w: sequence %d", jetlog.ErrNoWindow, m.Sequence)
}

// Tail implements pipeline.Log, as jetlog.DeltaLog does.
func (d Deltas) Tail(ctx context.Context) (pipeline.Header, uint64, error) {
	fate, err := d.c.pass(ctx, Call{Kind: Tail})
	if err == nil {
		err = fate.Err
	}
	if err != nil {
		return pipeline.Header{}, 0, err
	}
	d.c.s.mu.Lock()
	defer d.c.s.mu.Unlock()
	of := d.c.s.deltas
	if m := of.held[of.last]; of.last > 0 && (m == nil || foreign(m) != nil) {
		of = d.c.s.recreateLocked(jetlog.DeltasStream)
	}
	*d.seen = of.created
	if of.last == 0 {
		return pipeline.Header{}, 0, nil
	}
	w, err := pipeline.DecodeWindow(of.held[of.last].Data)
	if err != nil {
		return pipeline.Header{}, 0, err
	}
	return w.Header, of.last, nil
}

// Append implements pipeline.Log.
func (d Deltas) Append(ctx context.Context, last uint64, window []byte) (uint64, error) {
	window = bytes.Clone(window) // "window is not kept"
	to := d.appendsTo()
	fate, err := d.c.pass(ctx, Call{Kind: Append, Land: func() { _, _ = d.append(to, last, window) }})
	if err != nil {
		return 0, err
	}
	if fate.Err == nil || fate.Done {
		sequence, err := d.append(to, last, window)
		if fate.Err == nil {
			return sequence, err
		}
	}
	return 0, fate.Err
}

// appendsTo is the log that Tail has seen, or, before the first Tail, the one
// there is.
func (d Deltas) appendsTo() time.Time {
	d.c.s.mu.Lock()
	defer d.c.s.mu.Unlock()
	if d.seen.IsZero() {
		*d.seen = d.c.s.deltas.created
	}
	return *d.seen
}

// append is what the stream's leader does with a request.
func (d Deltas) append(to time.Time, last uint64, window []byte) (uint64, error) {
	d.c.s.mu.Lock()
	defer d.c.s.mu.Unlock()
	of := d.c.s.deltas
	if !of.created.Equal(to) {
		return 0, errors.New("sim: no stream takes this subject any more")
	}
	if of.last != last {
		return 0, fmt.Errorf("%w: the last sequence is %d, not %d", pipeline.ErrFenced, of.last, last)
	}
	sequence := of.store(Stored{Subject: jetlog.DeltasSubject, Data: window, Tag: router{}}, time.Now())
	d.c.s.changedLocked()
	return sequence, nil
}

// First implements pipeline.Log.
func (d Deltas) First(ctx context.Context) (h pipeline.Header, first uint64, err error) {
	var created time.Time
	err = d.c.look(ctx, jetlog.DeltasStream, func(of *stream) error {
		created = of.created
		if m := of.held[of.first]; m != nil {
			first = of.first
			h, err = header(m)
		}
		return err
	})
	if errors.Is(err, jetlog.ErrNoWindow) {
		d.c.s.renew(created)
	}
	return h, first, err
}

// At implements pipeline.Log.
func (d Deltas) At(ctx context.Context, sequence uint64) (h pipeline.Header, err error) {
	err = d.c.look(ctx, jetlog.DeltasStream, func(of *stream) error {
		m := of.held[sequence]
		if m == nil {
			return fmt.Errorf("sim: window %d is not there", sequence)
		}
		h, err = header(m)
		return err
	})
	return h, err
}

func header(m *Stored) (pipeline.Header, error) {
	if err := foreign(m); err != nil {
		return pipeline.Header{}, err
	}
	return pipeline.DecodeHeader(m.Data)
}
