package sinks

import (
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// posted bounds when authors posted last, whichever node holds them: of followees who
// have posted nothing since a feed was read nobody need be asked. Windows tell it; it is
// in memory only, and knows nothing of what was posted before it began.
//
// A bound may be too late and is never too early, so it is as good after a post was
// deleted, or has become too old.
type posted struct {
	mu       sync.RWMutex
	newest   []*hot.Newest     // one; none before it begins
	from, to pipeline.Position // it knows who posted in (from, to]

	// Of who hands windows over.
	posts int // noted: as many authors at most
	most  int // cells that there may be
}

const (
	// postedShare is how much of the budget it takes, as one part in so many.
	postedShare = 64
	// postedSpare is how many places there are for a post, where there is room: who shares
	// one is asked for in vain.
	postedSpare = 8
	// postedCells is how many authors it tells apart where there is no budget.
	postedCells = 1 << 20
)

// begin has it take windows in, within its share of so many bytes of memory; 0: there
// is no bound.
func (p *posted) begin(memory int) {
	p.most = postedCells
	if memory > 0 {
		p.most = memory / postedShare / 4
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.newest = []*hot.Newest{hot.NewNewest(hot.NewestMin)}
}

// begun says whether it takes windows in.
func (p *posted) begun() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.newest != nil
}

// note takes a window in, before any shard applies it.
func (p *posted) note(w *pipeline.Window) {
	p.posts += len(w.Authors)
	newest := *p.newest[0] // readers have the other while it grows
	cells := newest.Cells()
	for p.posts > cells/postedSpare && 2*cells <= p.most {
		cells *= 2
	}
	newest.Grow(cells)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.newest[0] = &newest
	if w.From > p.to { // the first one, or some are left out
		p.from = w.From
	}
	if w.Authors == nil {
		p.from = max(p.from, w.To)
	}
	for _, author := range w.Authors {
		newest.Raise(author, uint64(w.To))
	}
	p.to = max(p.to, w.To)
}

// knows says whether it knows of all that was posted lately, up to a position.
func (p *posted) knows(at pipeline.Position) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.newest != nil && p.to >= at
}

// may appends to some the indexes of those who may have posted after the mark and after
// they were followed (each pair's B): of GroupMax followees at most, for windows wait
// meanwhile. The others have posted nothing up to the position to.
func (p *posted) may(followees []hot.Pair, mark pipeline.Position, looks *hot.Looks, some []int) (may []int, to pipeline.Position) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	first := len(some)
	some = hot.May(p.newest, followees, uint64(mark), looks, some)
	if mark >= p.from {
		return some, p.to
	}
	known := some[first:] // and who counts from before it began
	var all []int
	for i, f := range followees {
		is := len(known) > 0 && known[0] == i
		if is {
			known = known[1:]
		}
		if is || f.B < uint64(p.from) {
			all = append(all, i)
		}
	}
	return append(some[:first], all...), p.to
}

// bytes is the memory taken.
func (p *posted) bytes() (bytes int) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, n := range p.newest {
		bytes += n.Bytes()
	}
	return bytes
}
