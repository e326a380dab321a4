package audit

import (
	"context"

	"github.com/tidemark-io/tidemark/pipeline"
)

const (
	// seenMax bounds the ids that are known to have been looked at. An id comes up for
	// each of its rows and lists; beyond this it may be counted more than once.
	seenMax = 100_000
	// straysMax is after how many ids of a shard that differ no more are looked for: what
	// was counted there is of another log.
	straysMax = 10_000
)

// stored compares what a shard has stored of ids that the log does not name: there
// should be nothing. What is in memory alone is not looked at; it has changed since
// the last checkpoint, by an event.
func (p *pass) stored(ctx context.Context, s pipeline.Shard) error {
	found, seen := p.report.Shards[s], map[uint64]bool{}
	most := found.Differ + straysMax
	var some []uint64
	for id, err := range p.auditor.Served.Stored(s) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if !p.has(id) || seen[id] || p.named(id) {
			continue
		}
		if len(seen) == seenMax {
			clear(seen)
		}
		seen[id] = true
		if some = append(some, id); len(some) < chunk {
			continue
		}
		if err := p.some(ctx, s, some, true); err != nil {
			return err
		}
		if some = some[:0]; found.Differ >= most {
			return nil
		}
	}
	return p.some(ctx, s, some, true)
}

// named says that the log names an id, up to where the ledger stands.
func (p *pass) named(id uint64) bool {
	for _, rows := range p.rows {
		if rows[id] != nil {
			return true
		}
	}
	return p.users[id] != nil
}
