package hot

import "encoding/binary"

// Blobs holds for each id a few words and a string of bytes: whom a user
// follows, what an author has published. Without pointers, like Table.
//
//	row   id │ word 0 … word fixed-1 │ blob: ref 40 bits, length 24 bits      (in an index)
//	slab  … │ string │ string │ free │ string │ …
//
// The words stand beside the id, so that "has this author anything newer than
// the mark" takes one look at one row.
//
// One goroutine writes, and keeps readers out by its owner's lock meanwhile.
// Has, Word, Get and Gather may run side by side.
type Blobs struct {
	index index
	fixed int
	slab  slab
}

// NewBlobs makes an empty table of so many words an id.
func NewBlobs(fixed int) *Blobs {
	return &Blobs{index: *newIndex(1, 8*(1+fixed+1)), fixed: fixed}
}

// Count is the number of ids.
func (b *Blobs) Count() int { return b.index.rows() }

// Bytes is all memory taken.
func (b *Blobs) Bytes() int { return b.index.bytes() + b.slab.size() }

// Free is the part of Bytes that strings to come take before more is asked of
// the system. It does not count the places free in the index.
func (b *Blobs) Free() int { return b.slab.total - b.slab.live }

// Has says whether an id is there. It does not mark it as used.
func (b *Blobs) Has(id uint64) bool {
	_, ok := b.index.find1(id)
	return ok
}

// Word is one of an id's words, and marks it as used.
func (b *Blobs) Word(id uint64, i int) (word uint64, ok bool) {
	row, ok := b.index.use([2]uint64{id})
	if !ok {
		return 0, false
	}
	return rowWord(row, 1+i), true
}

// Get is a view of an id's string, valid until the next write, and marks the
// id as used.
func (b *Blobs) Get(id uint64) (payload []byte, ok bool) {
	row, ok := b.index.use([2]uint64{id})
	if !ok {
		return nil, false
	}
	return b.slab.get(b.blob(row)), true
}

// SetWord changes one of an id's words. The id must be there.
func (b *Blobs) SetWord(id uint64, i int, word uint64) {
	row, _ := b.index.find1(id)
	setRowWord(row, 1+i, word)
}

// Put makes an id, its words 0, or replaces its string. payload may be a view
// of that string.
func (b *Blobs) Put(id uint64, payload []byte) {
	row, ok := b.index.find1(id)
	if !ok {
		row = b.index.insert([2]uint64{id})
	}
	b.setBlob(row, b.slab.put(b.blob(row), payload))
	b.tidy()
}

// Drop takes an id out, if it is there.
func (b *Blobs) Drop(id uint64) {
	b.drop(id)
	b.tidy()
}

func (b *Blobs) drop(id uint64) {
	if row, ok := b.index.find1(id); ok {
		b.slab.drop(b.blob(row))
		b.index.remove([2]uint64{id})
	}
}

// evictSteps is how far the clock hand goes between two looks at what it has
// freed: it takes marks away also where nothing is evicted any more.
const evictSteps = 64

// Evict takes ids out that were not used since the clock hand last passed, and
// that keep does not hold, until rows and blocks of so many bytes are free or
// the hand went round twice. It returns the number of ids taken out. Before the
// first call, which may be for 0 bytes, use is not recorded.
//
// What is free serves the next ids; Bytes falls once it is a quarter or so.
func (b *Blobs) Evict(bytes int, keep func(id uint64) bool) (evicted int) {
	visit := func(row []byte, used bool) bool {
		if used || bytes <= 0 || keep(rowWord(row, 0)) {
			return false
		}
		bytes -= b.index.stride + b.slab.bytes(b.blob(row))
		b.slab.drop(b.blob(row))
		return true
	}
	steps := 2*b.index.slots + evictSlack
	for evicted = b.index.sweep(visit, 0); steps > 0 && bytes > 0; steps -= evictSteps {
		evicted += b.index.sweep(visit, evictSteps)
	}
	b.tidy()
	return evicted
}

// Each visits all ids, in any order. Nothing may be written meanwhile.
func (b *Blobs) Each(visit func(id uint64)) {
	b.index.each(func(row []byte) { visit(rowWord(row, 0)) })
}

// DropBelow takes all ids out whose word is at most limit, and returns their
// number.
func (b *Blobs) DropBelow(word int, limit uint64) (dropped int) {
	var ids []uint64
	b.index.each(func(row []byte) {
		if rowWord(row, 1+word) <= limit {
			ids = append(ids, rowWord(row, 0))
		}
	})
	for _, id := range ids {
		b.drop(id)
	}
	b.tidy()
	return len(ids)
}

// tidy gives memory back when too much of the slab is free. It looks at every
// row and moves an eighth of the strings, but only after as much was freed as
// pays for it.
func (b *Blobs) tidy() {
	if !b.slab.due() {
		return
	}
	for b.slab.wasteful() && b.slab.condemn() {
		b.vacate()
	}
}

// vacate moves what lives in condemned chunks, and razes them.
func (b *Blobs) vacate() {
	b.index.each(func(row []byte) {
		if at := b.blob(row); b.slab.condemned(at.ref()) {
			b.setBlob(row, b.slab.move(at))
		}
	})
	b.slab.raze()
}

func (b *Blobs) blob(row []byte) blob           { return blob(rowWord(row, 1+b.fixed)) }
func (b *Blobs) setBlob(row []byte, place blob) { setRowWord(row, 1+b.fixed, uint64(place)) }

func rowWord(row []byte, i int) uint64          { return binary.LittleEndian.Uint64(row[8*i:]) }
func setRowWord(row []byte, i int, word uint64) { binary.LittleEndian.PutUint64(row[8*i:], word) }
