package hot

import (
	"math"
	"math/bits"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Newest bounds, for each author, the position of the newest post from above,
// in four bytes and one cache line:
//
//	cells  … │ 32 bits │ …      by the author's hash; the highest of all whose hash it is
//	cell   position >> 16, rounded up: 64 messages of the log are one
//
// A cell at or below a mark says that none of its authors has anything newer;
// one above it says that one of them may have, and their outboxes must be
// looked at. With at least a cell an author, and one author in fifty with
// something new, that is one look in fifty in vain. Deleting posts lowers no
// cell, and neither does evicting an outbox: it stays a bound. A position that is too large makes the cell say
// "perhaps" for ever, after 2·10^11 messages.
type Newest struct{ cells []uint32 }

const (
	newestShift = 16
	// NewestMin is the smallest number of cells.
	NewestMin = 64
)

// NewNewest makes so many cells.
func NewNewest(cells int) *Newest { return &Newest{make([]uint32, max(cells, NewestMin))} }

// Grow makes so many cells at least. What a cell said those in its place say, so
// that what was noted before stays noted.
func (n *Newest) Grow(cells int) {
	times := (cells + len(n.cells) - 1) / len(n.cells)
	if times < 2 {
		return
	}
	grown := make([]uint32, times*len(n.cells))
	for i := range grown {
		grown[i] = n.cells[i/times]
	}
	n.cells = grown
}

// May says whether an author may have a post after a position.
func (n *Newest) May(id, position uint64) bool {
	return n.cells[n.place(pipeline.Mix(id))] > min(coarse(position)-1, math.MaxUint32-1)
}

// Cells is their number.
func (n *Newest) Cells() int { return len(n.cells) }

// Bytes is the memory taken.
func (n *Newest) Bytes() int { return 4 * len(n.cells) }

// Raise notes a post of an author at a position.
func (n *Newest) Raise(id, position uint64) {
	cell := &n.cells[n.place(pipeline.Mix(id))]
	*cell = max(*cell, coarse(position))
}

// place is a hash's cell. A shard's ids agree in Mix modulo the number of
// shards, in its low bits: the high ones say where.
func (n *Newest) place(hash uint64) uint64 {
	at, _ := bits.Mul64(hash, uint64(len(n.cells)))
	return at
}

// coarse is a position as cells have it: never too low.
func coarse(position uint64) uint32 {
	return uint32(min(position>>newestShift+1, math.MaxUint32))
}

// Looks is working space of May.
type Looks struct {
	tables [][]uint32 // by shard
	at     []uint64   // shard << 32 │ place; then what the cell there holds
}

// Newest bounds the posts of the i-th author that [May] looked at last, from above.
func (l *Looks) Newest(i int) uint64 {
	if cell := l.at[i]; cell < math.MaxUint32 {
		return cell<<newestShift - min(cell, 1)
	}
	return math.MaxUint64
}

// May appends to some the indexes of those ids (each pair's A) whose author may
// have a post after a mark and after the pair's B. cells are by shard; callers
// hold all their locks.
//
// Nearly every cell is a cache miss, and as many misses overlap as the
// processor finds within some hundred instructions. So places are worked out
// first; the loop that looks does nothing else.
func May(cells []*Newest, ids []Pair, mark uint64, l *Looks, some []int) []int {
	l.tables = l.tables[:0]
	for _, n := range cells {
		l.tables = append(l.tables, n.cells)
	}
	l.at = slices.Grow(l.at[:0], len(ids))[:len(ids)]
	shards := uint64(len(cells))
	for i, p := range ids {
		h := pipeline.Mix(p.A)
		shard := h & (shards - 1)
		if shards&(shards-1) != 0 {
			shard = h % shards // pipeline.ShardOf
		}
		place, _ := bits.Mul64(h, uint64(len(l.tables[shard])))
		l.at[i] = shard<<32 | place
	}
	for i, at := range l.at {
		l.at[i] = uint64(l.tables[at>>32][uint32(at)])
	}
	low := min(mark>>newestShift, math.MaxUint32-1)
	for i, cell := range l.at {
		// At most a cell's 64 messages too many pass.
		if cell > low && cell > min(ids[i].B>>newestShift, math.MaxUint32-1) {
			some = append(some, i)
		}
	}
	clear(l.tables) // a table that has grown since is to be collected
	return some
}
