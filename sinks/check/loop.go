package check

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/pipeline"
)

// Rounds is the audit that never ends: one sample after the other, each a pass
// over the log at a low rate, until all are done, and again.
//
// A sample is of some shards, of all their ids if that is few enough: so a round reads
// a base once, and not once for each sample. Of the channels is the first sample's.
type Rounds struct {
	Auditor *Auditor
	Bits    int // a sample is one in 2^Bits of all ids, about; not more
	Rate    int // events a second
	Memory  int // bytes
	// Found is called with what each sample found wrong. It is not called for
	// nothing.
	Found func(*Report)
}

// pauses of the loop: between two samples, of a short log, and after an error,
// which the next look may find mended.
const (
	samplePause = 10 * time.Second
	errorPause  = time.Minute
	// againPause is after which time what differed is looked at again.
	againPause = 10 * time.Second
)

// Twice is Run, once more where something differs: nothing is reported that a later
// look does not find. When EVENTS has just lost its tail, what this audit has read may be
// gone.
func (a *Auditor) Twice(ctx context.Context, t Task) (*Report, error) {
	r, err := a.run(ctx, t)
	if r == nil || r.Differ+len(r.Notices) == 0 {
		return r, err
	}
	if err := kit.Sleep(ctx, againPause); err != nil {
		return nil, err
	}
	return a.Run(ctx, t)
}

// Run goes on until ctx ends.
func (o *Rounds) Run(ctx context.Context) {
	a := o.Auditor
	samples := o.samples()
	// A process that is restarted often must not look at the same ones always.
	next, round := rand.Uint64N(samples), round{samples: samples}
	failing, base := false, ""
	for {
		pause := samplePause
		report, err := a.Twice(ctx, o.task(next))
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
			if len(report.Shards) > 0 && report.Base != base {
				if base = report.Base; base != "" {
					a.Logger.Info("audit: EVENTS lacks its beginning, counts are compared with a base and the log behind it: what was wrong in the base is not found", "base", base)
				}
			}
			if len(report.Skipped) == 0 && len(report.Shards) > 0 {
				a.Stats.Passes.Add(1)
			}
			full := round.end(next, len(report.Skipped) == 0)
			if next = (next + 1) % samples; full {
				a.Stats.FullAt.Store(time.Now().UnixMilli())
			}
		}
		if report != nil && (report.Differ > 0 || len(report.Notices) > 0) {
			o.Found(report)
		}
		if kit.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// samples are how many a round has: parts of the shards, or several of each part.
func (o *Rounds) samples() uint64 {
	groups, bits := o.groups()
	return groups << bits
}

func (o *Rounds) groups() (groups uint64, bits int) {
	groups = min(uint64(o.Auditor.Shards), 1<<o.Bits)
	for groups<<bits < 1<<o.Bits {
		bits++
	}
	return groups, bits
}

// task is a sample of a round.
func (o *Rounds) task(sample uint64) Task {
	groups, bits := o.groups()
	t := Task{Sample: pipeline.Sample{Bits: bits, Residue: sample / groups}, Apart: sample != 0, Memory: o.Memory, Rate: o.Rate}
	for s := sample % groups; s < uint64(o.Auditor.Shards); s += groups {
		t.Shards = append(t.Shards, pipeline.Shard(s))
	}
	return t
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
