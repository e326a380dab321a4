package hot

import (
	"math"
	"math/bits"

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
// cell: it stays a bound. A position that is too large makes the cell say
// "perhaps" for ever, after 2·10^11 messages.
type Newest struct{ cells []uint32 }

const (
	newestShift = 16
	// NewestMin is the smallest number of cells.
	NewestMin = 64
)

// NewNewest makes so many cells.
func NewNewest(cells int) *Newest { return &Newest{make([]uint32, max(cells, NewestMin))} }

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

// May appends to some the indexes of those ids (each pair's A) whose author may
// have a post after a mark and after the pair's B. cells are by shard; callers
// hold all their locks. room is working space.
//
// Nearly every cell is a cache miss. The first loop only loads, so that the
// misses of many ids overlap.
func May(cells []*Newest, ids []Pair, mark uint64, room []uint32, some []int) ([]uint32, []int) {
	if cap(room) < len(ids) {
		room = make([]uint32, len(ids))
	}
	room = room[:len(ids)]
	shards := uint64(len(cells))
	if shards&(shards-1) == 0 {
		for i, p := range ids {
			h := pipeline.Mix(p.A)
			n := cells[h&(shards-1)]
			room[i] = n.cells[n.place(h)]
		}
	} else {
		for i, p := range ids {
			h := pipeline.Mix(p.A)
			n := cells[h%shards] // pipeline.ShardOf
			room[i] = n.cells[n.place(h)]
		}
	}
	low := uint32(min(mark>>newestShift, math.MaxUint32-1))
	for i, cell := range room {
		// At most a cell's 64 messages too many pass.
		if cell > low && uint64(cell) > min(ids[i].B>>newestShift, math.MaxUint32-1) {
			some = append(some, i)
		}
	}
	return room, some
}
