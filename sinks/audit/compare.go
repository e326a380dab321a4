package audit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
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
// compares. With more it has moved ask.IDs and ask.After on.
func (p *pass) comparePage(ctx context.Context, ask *pipeline.FactsAsk) (more bool, err error) {
	at, last, more, err := p.served(ctx, ask)
	if err != nil {
		return false, err
	}
	if err := p.to(ctx, at); err != nil {
		return false, fmt.Errorf("%w: %w", errLog, err)
	}
	if ask.Part == pipeline.PartRows {
		for i := range p.is {
			if int(p.is[i].Column) == p.graph[follower] {
				p.counted[p.is[i].ID] = true
			}
			if p.schema.Columns[p.is[i].Column].Set.Members != pipeline.NoMembers {
				p.inSets[setOf{p.is[i].Column, p.is[i].ID}] = true
			}
		}
	}
	p.should = p.facts(p.should[:0], ask, last)
	p.differ(p.settle(p.is, at), p.settle(p.should, at), at, func(d Difference) {
		if p.has(d.ID) || d.Counter == "notice" { // not left for later meanwhile
			p.note(d, ask.Shard)
		}
	})
	if more {
		ask.IDs, ask.After = ask.IDs[slices.Index(ask.IDs, last.id):], last.member
	}
	return more, nil
}

// whole is up to where members are: of the ids before this one all are, and of this one
// those up to a member.
type whole struct {
	id     uint64
	member pipeline.Member
}

// all: there is no more.
var all = whole{math.MaxUint64, pipeline.Member{A: math.MaxUint64, B: math.MaxUint64}}

// served reads what is served, into p.is, at or after where the ledger stands.
// Members are whole up to last.
func (p *pass) served(ctx context.Context, ask *pipeline.FactsAsk) (at pipeline.Position, last whole, more bool, err error) {
	for begun := time.Now(); ; {
		p.is, last = p.is[:0], all
		at, more, err = p.auditor.Served.Facts(ctx, ask, func(f pipeline.Fact) { p.is = append(p.is, f) })
		if more {
			f := &p.is[len(p.is)-1]
			last = whole{f.ID, f.Member}
		}
		if err != nil || at >= p.at {
			return at, last, more, err
		}
		if time.Since(begun) > behindWithin {
			return 0, all, false, fmt.Errorf("audit: it has stood at position %d for %v, and others at %d", at, behindWithin, p.at)
		}
		if err := p.pace.rest(ctx, behindWait); err != nil {
			return 0, all, false, err
		}
	}
}
