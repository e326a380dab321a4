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
	// restEvery is after how many ids that are stored it is the turn of others.
	restEvery = 4096
)

// stored compares what a shard has stored of ids that the log does not name: there
// should be nothing. What is in memory alone is not looked at; it has changed since
// the last checkpoint, by an event.
func (p *pass) stored(ctx context.Context, s pipeline.Shard) error {
	found, seen := p.report.Shards[s], map[uint64]bool{}
	most := found.Differ + straysMax
	var some []uint64
	looked := 0
	for id, err := range p.auditor.Served.Stored(s) {
		if looked++; err == nil && looked%restEvery == 0 {
			err = p.pace.rest(ctx, 0)
		}
		if err != nil {
			return err
		}
		if !p.has(id) || p.named(s, id) || seen[id] {
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

// named says that the log names an id of a shard, up to where the ledger stands.
func (p *pass) named(s pipeline.Shard, id uint64) bool {
	of := p.parts[s]
	for i := range of.rows {
		if of.rows[i].row(id) != nil {
			return true
		}
	}
	return of.users[id] != nil
}
