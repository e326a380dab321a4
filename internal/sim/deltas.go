package sim

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// Deltas is DELTAS. It implements pipeline.Log.
type Deltas struct{ c *Client }

var _ pipeline.Log = Deltas{}

// Deltas is the delta log as this client uses it.
func (c *Client) Deltas() Deltas { return Deltas{c} }

// Tail implements pipeline.Log, with the errors of jetlog.DeltaLog.
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
	of, err := d.c.sameLocked(jetlog.DeltasStream)
	if err != nil || of.last == 0 {
		return pipeline.Header{}, 0, err
	}
	m := of.held[of.last]
	if m == nil {
		return pipeline.Header{}, 0, fmt.Errorf("%w: the last window, sequence %d, was deleted", pipeline.ErrGap, of.last)
	}
	w, err := pipeline.DecodeWindow(m.Data)
	if err != nil {
		return pipeline.Header{}, 0, err
	}
	return w.Header, of.last, nil
}

// Append implements pipeline.Log.
func (d Deltas) Append(ctx context.Context, last uint64, window []byte) (uint64, error) {
	window = bytes.Clone(window) // "window is not kept"
	fate, err := d.c.pass(ctx, Call{Kind: Append, Land: func() { _, _ = d.append(last, window) }})
	if err != nil {
		return 0, err
	}
	if fate.Err == nil || fate.Done {
		sequence, err := d.append(last, window)
		if fate.Err == nil {
			return sequence, err
		}
	}
	return 0, fate.Err
}

// append is what the stream's leader does with a request.
func (d Deltas) append(last uint64, window []byte) (uint64, error) {
	d.c.s.mu.Lock()
	defer d.c.s.mu.Unlock()
	of := d.c.s.deltas
	if of.last != last {
		return 0, fmt.Errorf("%w: the last sequence is %d, not %d", pipeline.ErrFenced, of.last, last)
	}
	sequence := of.store(Stored{Subject: jetlog.DeltasSubject, Data: window}, time.Now())
	d.c.s.changedLocked()
	return sequence, nil
}

// First implements pipeline.Log.
func (d Deltas) First(ctx context.Context) (h pipeline.Header, first uint64, err error) {
	err = d.c.look(ctx, jetlog.DeltasStream, func(of *stream) error {
		if m := of.held[of.first]; m != nil {
			first = of.first
			h, err = pipeline.DecodeHeader(m.Data)
		}
		return err
	})
	return h, first, err
}

// At implements pipeline.Log.
func (d Deltas) At(ctx context.Context, sequence uint64) (h pipeline.Header, err error) {
	err = d.c.look(ctx, jetlog.DeltasStream, func(of *stream) error {
		m := of.held[sequence]
		if m == nil {
			return fmt.Errorf("sim: window %d is not there", sequence)
		}
		h, err = pipeline.DecodeHeader(m.Data)
		return err
	})
	return h, err
}
