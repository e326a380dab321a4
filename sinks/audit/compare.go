package audit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// errLog wraps what is wrong with the log, not with one shard.
var errLog = errors.New("audit: the log")

// A shard may stand a little behind the one compared before it.
const (
	behindWait   = 5 * time.Millisecond
	behindWithin = 10 * time.Second
)

func (p *pass) compare(ctx context.Context, ask *pipeline.FactsAsk) error {
	_, err := p.comparePage(ctx, ask)
	return err
}

// comparePage reads what is served, brings the ledger to where that stands, and
// compares. With more it has moved ask.After on.
func (p *pass) comparePage(ctx context.Context, ask *pipeline.FactsAsk) (more bool, err error) {
	is, at, last, more, err := p.served(ctx, ask)
	if err != nil {
		return false, err
	}
	if err := p.to(ctx, at); err != nil {
		return false, fmt.Errorf("%w: %w", errLog, err)
	}
	if ask.Part == pipeline.PartRows {
		for k := range is {
			if int(k.column) == p.graph[follower] {
				p.counted[k.id] = true
			}
		}
	}
	should := p.facts(ask, last)
	p.settle(is, at)
	p.settle(should, at)
	p.differ(is, should, at, func(d Difference) {
		if p.has(d.ID) || d.Counter == "notice" { // not left for later meanwhile
			p.note(d, ask.Shard)
		}
	})
	ask.After = last
	return more, nil
}

// served reads what is served at or after where the ledger stands. Followers are
// whole up to last.
func (p *pass) served(ctx context.Context, ask *pipeline.FactsAsk) (is entries, at pipeline.Position, last uint64, more bool, err error) {
	for begun := time.Now(); ; {
		is, last = entries{}, math.MaxUint64
		var highest uint64
		at, more, err = p.auditor.Served.Facts(ctx, ask, func(f pipeline.Fact) {
			is.add(f)
			highest = max(highest, f.Other)
		})
		if more {
			last = highest
		}
		if err != nil || at >= p.at {
			return is, at, last, more, err
		}
		if time.Since(begun) > behindWithin {
			return nil, 0, 0, false, fmt.Errorf("audit: it has stood at position %d for %v, and others at %d", at, behindWithin, p.at)
		}
		select {
		case <-time.After(behindWait):
		case <-ctx.Done():
			return nil, 0, 0, false, ctx.Err()
		}
	}
}
