package audit

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Rounds is the audit that never ends: one sample after the other, each a pass
// over the log at a low rate, until all are done, and again.
type Rounds struct {
	Auditor *Auditor
	Bits    int // a sample is one in 2^Bits of all ids
	Rate    int // events a second
	Memory  int // bytes
	// Found is told what was found wrong by each sample. It is not called for
	// nothing.
	Found func(*Report)
}

// pauses of the loop: between two samples, of a short log, and after an error,
// which the next look may find mended.
const (
	samplePause = 10 * time.Second
	errorPause  = time.Minute
)

// Run goes on until ctx ends.
func (o *Rounds) Run(ctx context.Context) {
	a := o.Auditor
	samples := uint64(1) << o.Bits
	// A process that is restarted often must not look at the same ones always.
	next, round := rand.Uint64N(samples), round{samples: samples}
	failing := false
	for {
		pause := samplePause
		report, err := a.Run(ctx, Task{Sample: Sample{o.Bits, next}, Memory: o.Memory, Rate: o.Rate})
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			pause = errorPause
			a.Stats.Refused.Store(errors.Is(err, ErrBeginning))
			if !failing {
				a.Logger.Warn("audit: counts cannot be compared with the log; tried again each minute", "error", err)
			}
			failing = true
		default:
			failing = false
			a.Stats.Refused.Store(false)
			if len(report.Skipped) == 0 {
				a.Stats.Passes.Add(1)
			}
			full := round.end(next, len(report.Skipped) == 0)
			if next = (next + 1) % samples; full {
				a.Stats.FullAt.Store(time.Now().UnixMilli())
			}
		}
		if report != nil && (report.Differ > 0 || report.Channels > 0) {
			o.Found(report)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// round is which samples were compared, all shards of them. One of which a shard
// was skipped has to come again before the round ends.
type round struct {
	samples uint64
	whole   map[uint64]bool // samples at most
}

// end notes how a sample ended, and says whether all have been compared with it.
func (r *round) end(sample uint64, whole bool) (full bool) {
	if r.whole == nil {
		r.whole = make(map[uint64]bool)
	}
	if whole {
		r.whole[sample] = true
	}
	if full = uint64(len(r.whole)) == r.samples; full {
		clear(r.whole)
	}
	return full
}

// Drifted are the shards in which ids differ, with those ids.
func (r *Report) Drifted() map[pipeline.Shard][]uint64 {
	out := map[pipeline.Shard][]uint64{}
	for s, found := range r.Shards {
		if found.Differ > 0 {
			out[s] = found.Differing
		}
	}
	return out
}
