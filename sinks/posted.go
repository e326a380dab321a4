package sinks

import (
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// posted bounds when authors posted or deleted a post last, whichever node holds them: of
// followees who have done neither since a feed was read nobody need be asked, and of the
// others not each time. Windows tell it; it is in memory only, and knows nothing of what
// was posted before it began.
//
// A bound may be too late and is never too early.
type posted struct {
	mu       sync.RWMutex
	newest   []*hot.Newest     // one; none before it begins
	from, to pipeline.Position // it knows the authors who posted, or deleted a post, in (from, to]

	// Used only by the goroutine that hands windows over.
	posts int // noted: as many authors at most
}

const (
	// postedShare is how much of the budget it takes at most, as one part in so many. It
	// grows to twice its size, so it takes half of that at least.
	postedShare = 64
	// postedSpare is how many places there are for a post, where there is room: an author
	// that shares one is asked for in vain.
	postedSpare = 64
	// postedCells is how many authors it distinguishes where there is no budget.
	postedCells = 1 << 20
)

// begin has it take windows in.
func (p *posted) begin() {
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

// note takes a window in, before any shard applies it, and grows within its share of so
// many bytes of memory; 0: there is no bound.
func (p *posted) note(w *pipeline.Window, memory int) {
	most := postedCells
	if memory > 0 {
		most = memory / postedShare / 4
	}
	p.posts += len(w.Authors)
	newest := *p.newest[0] // readers have the other while it grows
	cells := newest.Cells()
	for p.posts > cells/postedSpare && 2*cells <= most {
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

// may appends to some the indexes of those that may have posted after the mark and
// after they were followed (each pair's B): of GroupMax followees at most, for windows
// wait during it. The others have posted nothing up to the position to. changed takes,
// of each of those, where their outbox changed last, or after that, as far as to.
func (p *posted) may(followees []hot.Pair, mark pipeline.Position, looks *hot.Looks, some []int, changed []pipeline.Position) (may []int, when []pipeline.Position, to pipeline.Position) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	first := len(some)
	some = hot.May(p.newest, followees, uint64(mark), looks, some)
	n := len(some) - first
	if mark < p.from { // and authors that count from before it began
		known := some[first:]
		for i, f := range followees {
			is := len(known) > 0 && known[0] == i
			if is {
				known = known[1:]
			}
			if is || f.B < uint64(p.from) {
				some = append(some, i) // after those that are known to, in the place of which they come
			}
		}
		some = append(some[:first], some[first+n:]...)
	}
	for _, i := range some[first:] {
		changed = append(changed, max(p.from, min(p.to, pipeline.Position(looks.Newest(i))), 1))
	}
	return some, changed, p.to
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
