package hot

import (
	"slices"
	"sync/atomic"
)

// marks is one bit a slot: the row was used since the clock hand passed.
// Readers set them side by side, all else is the writer's.
type marks []uint32

// newMarks has the capacity the allocator really gives.
func newMarks(slots int) marks {
	n := (slots + 31) / 32
	return slices.Grow(marks(nil), n)[:n]
}

// use sets a mark. Most are set already, and a load keeps the cache line
// shared among readers where a write would not.
func (m marks) use(at int) {
	w, bit := &m[at/32], uint32(1)<<(at%32)
	if atomic.LoadUint32(w)&bit == 0 {
		atomic.OrUint32(w, bit)
	}
}

func (m marks) load(at int) { _ = atomic.LoadUint32(&m[at/32]) }

func (m marks) has(at int) bool { return m[at/32]>>(at%32)&1 == 1 }

// take clears a mark and says whether it was set.
func (m marks) take(at int) bool {
	had := m.has(at)
	m[at/32] &^= 1 << (at % 32)
	return had
}

func (m marks) put(at int, used bool) {
	m.take(at)
	if used {
		m[at/32] |= 1 << (at % 32)
	}
}

// shiftRight moves the marks of slots [from, to) to (from, to].
func (m marks) shiftRight(from, to int) {
	for w := to / 32; w >= from/32; w-- {
		moved := m[w] << 1
		if w > from/32 {
			moved |= m[w-1] >> 31
		}
		m.blend(w, from, to, moved)
	}
}

// shiftLeft moves the marks of slots (from, to] to [from, to).
func (m marks) shiftLeft(from, to int) {
	for w := from / 32; w <= to/32; w++ {
		moved := m[w] >> 1
		if w < to/32 {
			moved |= m[w+1] << 31
		}
		m.blend(w, from, to, moved)
	}
}

// blend replaces those marks of a word whose slots are in [from, to].
func (m marks) blend(w, from, to int, moved uint32) {
	mask := ^uint32(0)
	if w == from/32 {
		mask <<= from % 32
	}
	if w == to/32 {
		mask &= ^uint32(0) >> (31 - to%32)
	}
	m[w] = m[w]&^mask | moved&mask
}
