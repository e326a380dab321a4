package hot

import "github.com/tidemark-io/tidemark/pipeline"

// Lists holds one list of pairs for each id: whom a user follows, what an
// author has published. Flat and without pointers, like Table.
//
//	heads   id │ last pair's A                    (open addressing)
//	bodies  block │ length │ class                (at the same places)
//	slab    … │ A B │ A B │ A B │ free │ …
//
// The last pair's A stands beside the id, so that "has this author anything
// newer than the mark" takes one look at 16 bytes.
type Lists struct {
	heads  []head
	bodies []body
	used   int
	pairs  int
	slab   slab
}

type head struct {
	id   uint64 // 0: free
	last uint64 // A of the last pair; 0 for an empty list
}

type body struct {
	ref    uint32
	length uint32
	class  uint8 // of the block; noBlock for an empty list
}

const noBlock = 0xff

// NewLists makes an empty set of lists.
func NewLists() *Lists {
	return &Lists{heads: make([]head, tableMin), bodies: make([]body, tableMin)}
}

// Count is the number of ids, Pairs of all their pairs.
func (l *Lists) Count() int { return l.used }

// Pairs is the number of pairs in all lists.
func (l *Lists) Pairs() int { return l.pairs }

// Bytes is the memory taken.
func (l *Lists) Bytes() int { return len(l.heads)*(16+12) + l.slab.bytes }

// Last is A of the last pair of a list, 0 when there is none.
func (l *Lists) Last(id uint64) uint64 {
	at, _ := l.find(id)
	return l.heads[at].last
}

// Get is a list, nil when there is none. It is valid until the next change.
func (l *Lists) Get(id uint64) []Pair {
	at, _ := l.find(id)
	b := &l.bodies[at]
	if b.length == 0 {
		return nil
	}
	return l.slab.block(b.ref, int(b.class))[:b.length]
}

// Insert puts a pair into a list, before place `at`. id is not 0.
func (l *Lists) Insert(id uint64, at int, p Pair) {
	slot := l.place(id)
	b := &l.bodies[slot]
	l.room(b)
	list := l.slab.block(b.ref, int(b.class))[:b.length+1]
	copy(list[at+1:], list[at:])
	list[at] = p
	b.length++
	l.heads[slot].last = list[b.length-1].A
	l.pairs++
}

// Remove takes n pairs out of a list, from place `at` on.
func (l *Lists) Remove(id uint64, at, n int) {
	slot, _ := l.find(id)
	b := &l.bodies[slot]
	list := l.slab.block(b.ref, int(b.class))[:b.length]
	copy(list[at:], list[at+n:])
	b.length -= uint32(n)
	l.pairs -= n
	if b.length == 0 {
		l.slab.release(b.ref, int(b.class))
		b.class, l.heads[slot].last = noBlock, 0
		return
	}
	l.heads[slot].last = list[b.length-1].A
	if c := class(int(b.length)); c+1 < int(b.class) { // two sizes too large
		l.move(b, c)
	}
}

// room makes sure that one more pair fits.
func (l *Lists) room(b *body) {
	switch {
	case b.class == noBlock:
		b.class = 0
		b.ref = l.slab.alloc(0)
	case int(b.length) == 1<<b.class:
		l.move(b, int(b.class)+1)
	}
}

// move takes a list to a block of another size.
func (l *Lists) move(b *body, class int) {
	ref := l.slab.alloc(class)
	copy(l.slab.block(ref, class), l.slab.block(b.ref, int(b.class))[:b.length])
	l.slab.release(b.ref, int(b.class))
	b.ref, b.class = ref, uint8(class)
}

// find is an id's slot, or the free one it would take.
func (l *Lists) find(id uint64) (slot uint64, ok bool) {
	mask := uint64(len(l.heads) - 1)
	slot = pipeline.Mix(id) >> 20 & mask
	for l.heads[slot].id != id {
		if l.heads[slot].id == 0 {
			return slot, false
		}
		slot = (slot + 1) & mask
	}
	return slot, true
}

func (l *Lists) place(id uint64) uint64 {
	slot, ok := l.find(id)
	if ok {
		return slot
	}
	if 4*(l.used+1) > 3*len(l.heads) {
		l.grow()
		slot, _ = l.find(id)
	}
	l.used++
	l.heads[slot].id = id
	l.bodies[slot] = body{class: noBlock}
	return slot
}

func (l *Lists) grow() {
	heads, bodies := l.heads, l.bodies
	l.heads, l.bodies = make([]head, 2*len(heads)), make([]body, 2*len(heads))
	for i, h := range heads {
		if h.id != 0 {
			slot, _ := l.find(h.id)
			l.heads[slot], l.bodies[slot] = h, bodies[i]
		}
	}
}
