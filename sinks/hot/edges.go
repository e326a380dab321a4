package hot

// Edges holds facts about pairs of ids: that a follows b, or that a does not.
// A pair that is not in it is not known.
//
//	row  b │ 1 present, 0 absent       (and of a what its place does not tell)
//
// One goroutine writes, and keeps readers out by its owner's lock meanwhile.
// Get may run side by side.
type Edges struct {
	index   index
	present int
}

const (
	edgeFlag = 8 // the flag's place in a row, behind b
	edgeBits = 1
)

// NewEdges makes an empty set.
func NewEdges() *Edges { return &Edges{index: *newIndex(2, edgeBits, 0)} }

// Count is the number of pairs known to be present.
func (e *Edges) Count() int { return e.present }

// Known is the number of pairs known to be present or absent.
func (e *Edges) Known() int { return e.index.rows() }

// Bytes is all memory taken.
func (e *Edges) Bytes() int { return e.index.bytes() }

// Get is what is known of a pair, and marks it as used.
func (e *Edges) Get(a, b uint64) (present, known bool) {
	row, ok := e.index.use([2]uint64{a, b})
	return ok && row[edgeFlag]&1 == 1, ok
}

// Put makes a pair known. a is not 0.
func (e *Edges) Put(a, b uint64, present bool) {
	key := [2]uint64{a, b}
	row, ok := e.index.find(key)
	if !ok {
		row = e.index.insert(key)
	}
	e.present -= int(row[edgeFlag] & 1)
	row[edgeFlag] &^= 1
	if present {
		row[edgeFlag] |= 1
		e.present++
	}
}

// Forget makes a pair unknown.
func (e *Edges) Forget(a, b uint64) {
	key := [2]uint64{a, b}
	if row, ok := e.index.find(key); ok {
		e.present -= int(row[edgeFlag] & 1)
		e.index.remove(key)
	}
}

// Evict forgets pairs that were not used since the clock hand last passed, and
// that keep does not hold, until it has forgotten so many or the hand went
// round twice. It returns how many. Before the first call, which may be for 0
// pairs, use is not recorded.
func (e *Edges) Evict(pairs int, keep func(a, b uint64) bool) (evicted int) {
	return e.index.sweepFor(func(s *segment, at int, used bool) bool {
		if used || keep(e.index.id(s, at), s.word(at, 0)) {
			return false
		}
		e.present -= int(s.row(at)[edgeFlag] & 1)
		return true
	}, 2*e.index.slots+evictSlack, pairs)
}
