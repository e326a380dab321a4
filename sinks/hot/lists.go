package hot

import "github.com/tidemark-io/tidemark/pipeline"

// Lists holds one list of pairs for each id: whom a user follows, what an
// author has published. Flat and without pointers, like Table.
//
//	entries  id │ last pair's A │ block │ length │ class      (open addressing)
//	slab     … │ A B │ A B │ A B │ free │ …
//
// The last pair's A stands in the entry, so that "has this author anything
// newer than the mark" needs no second look.
type Lists struct {
	entries []listEntry
	used    int
	pairs   int
	slab    slab
}

type listEntry struct {
	id     uint64 // 0: free
	last   uint64 // A of the last pair; 0 for an empty list
	ref    uint32
	length uint32
	class  uint8 // of the block; an empty list that never had one has length 0 and noBlock
}

const noBlock = 0xff

// NewLists makes an empty set of lists.
func NewLists() *Lists { return &Lists{entries: make([]listEntry, tableMin)} }

// Count is the number of ids, Pairs of all their pairs.
func (l *Lists) Count() int { return l.used }

// Pairs is the number of pairs in all lists.
func (l *Lists) Pairs() int { return l.pairs }

// Bytes is the memory taken.
func (l *Lists) Bytes() int { return len(l.entries)*32 + l.slab.bytes }

// Last is A of the last pair of a list, 0 when there is none.
func (l *Lists) Last(id uint64) uint64 {
	e, _ := l.find(id)
	return e.last
}

// Get is a list, nil when there is none. It is valid until the next change.
func (l *Lists) Get(id uint64) []Pair {
	e, _ := l.find(id)
	if e.length == 0 {
		return nil
	}
	return l.slab.block(e.ref, int(e.class))[:e.length]
}

// Insert puts a pair into a list, before place `at`. id is not 0.
func (l *Lists) Insert(id uint64, at int, p Pair) {
	e := l.place(id)
	l.room(e)
	list := l.slab.block(e.ref, int(e.class))[:e.length+1]
	copy(list[at+1:], list[at:])
	list[at] = p
	e.length++
	e.last = list[e.length-1].A
	l.pairs++
}

// Remove takes n pairs out of a list, from place `at` on.
func (l *Lists) Remove(id uint64, at, n int) {
	e, _ := l.find(id)
	list := l.slab.block(e.ref, int(e.class))[:e.length]
	copy(list[at:], list[at+n:])
	e.length -= uint32(n)
	l.pairs -= n
	if e.length == 0 {
		l.slab.release(e.ref, int(e.class))
		e.class, e.last = noBlock, 0
		return
	}
	e.last = list[e.length-1].A
	if c := class(int(e.length)); c+1 < int(e.class) { // two sizes too large
		l.move(e, c)
	}
}

// room makes sure that one more pair fits.
func (l *Lists) room(e *listEntry) {
	switch {
	case e.class == noBlock:
		e.class = 0
		e.ref = l.slab.alloc(0)
	case int(e.length) == 1<<e.class:
		l.move(e, int(e.class)+1)
	}
}

// move takes a list to a block of another size.
func (l *Lists) move(e *listEntry, class int) {
	ref := l.slab.alloc(class)
	copy(l.slab.block(ref, class), l.slab.block(e.ref, int(e.class))[:e.length])
	l.slab.release(e.ref, int(e.class))
	e.ref, e.class = ref, uint8(class)
}

// find is an id's entry, or the free one it would take.
func (l *Lists) find(id uint64) (e *listEntry, ok bool) {
	mask := uint64(len(l.entries) - 1)
	for at := pipeline.Mix(id) >> 20 & mask; ; at = (at + 1) & mask {
		e = &l.entries[at]
		if e.id == id {
			return e, true
		}
		if e.id == 0 {
			return e, false
		}
	}
}

func (l *Lists) place(id uint64) *listEntry {
	e, ok := l.find(id)
	if ok {
		return e
	}
	if 4*(l.used+1) > 3*len(l.entries) {
		l.grow()
		e, _ = l.find(id)
	}
	l.used++
	*e = listEntry{id: id, class: noBlock}
	return e
}

func (l *Lists) grow() {
	old := l.entries
	l.entries = make([]listEntry, 2*len(old))
	for i := range old {
		if old[i].id != 0 {
			e, _ := l.find(old[i].id)
			*e = old[i]
		}
	}
}
