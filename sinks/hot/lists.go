package hot

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Lists holds for each id a few words and a few lists of pairs that ascend:
// a user's followees, an author's posts. Without pointers, like
// Table.
//
//	row    word 0 … │ place of list 0 … │ id, hashed      (in an index)
//	slab   … │ block │ block │ free │ spine │ block │ …
//
// The words stand beside the id, so that "has this author anything newer than
// the mark" takes one look at one row.
//
// A list of up to blockMax bytes is one block, a string in the slab. A longer
// one is blocks of that size, found by a spine. So a change costs the search
// and writing one block anew, whatever the list holds already; only where a
// block is split the spine is written as well, twenty bytes for each hundred
// pairs.
//
// One goroutine writes, and keeps readers out by its owner's lock.
// What only reads may run side by side.
type Lists struct {
	index index
	words int
	kinds []Kind
	slab  slab

	// Working space of the writer.
	coded, bones []byte
	halves       []Pair
}

// NewLists makes an empty table of so many words an id, and of a list of each
// kind.
func NewLists(words int, kinds ...Kind) *Lists {
	return &Lists{index: *newIndex(1, 64*(words+len(kinds)), 8*(words+len(kinds)+1)), words: words, kinds: kinds}
}

// Count is the number of ids.
func (l *Lists) Count() int { return l.index.rows() }

// Bytes is all memory taken.
func (l *Lists) Bytes() int { return l.index.bytes() + l.slab.size() }

// Free is the part of Bytes that blocks to come take before more is asked of
// the system. It does not count the places free in the index.
func (l *Lists) Free() int { return l.slab.total - l.slab.live }

// Touch is index.touch of an id's row.
func (l *Lists) Touch(id uint64) uint64 { return l.index.touch(pipeline.Mix(id)) }

// Has says whether an id is there. It does not mark it as used.
func (l *Lists) Has(id uint64) bool {
	_, ok := l.index.find1(id)
	return ok
}

// Make makes an id, its words 0 and its lists empty, unless it is there.
func (l *Lists) Make(id uint64) {
	if !l.Has(id) {
		l.index.insert(keyWords{id})
	}
}

// Word is one of an id's words, and marks the id as used.
func (l *Lists) Word(id uint64, i int) (word uint64, ok bool) {
	row, ok := l.index.use(keyWords{id})
	if !ok {
		return 0, false
	}
	return rowWord(row, i), true
}

// SetWord changes one of an id's words. The id must be there.
func (l *Lists) SetWord(id uint64, i int, word uint64) {
	row, _ := l.index.find1(id)
	setRowWord(row, i, word)
}

// list is where a list of an id is, and marks the id as used.
func (l *Lists) list(id uint64, list int) (root place, kind Kind) {
	row, ok := l.index.use(keyWords{id})
	if !ok {
		return 0, l.kinds[list]
	}
	return place(rowWord(row, l.words+list)), l.kinds[list]
}

// Len is the number of pairs in a list, 0 of an id that is not there.
func (l *Lists) Len(id uint64, list int) int {
	root, _ := l.list(id, list)
	if root.isSpine() {
		return l.spine(root).pairs()
	}
	return count(l.slab.get(root.blob()))
}

// Find is the B of the pair with an A, 0 when there is none.
func (l *Lists) Find(id uint64, list int, a uint64) (b uint64, ok bool) {
	root, kind := l.list(id, list)
	return l.find(root, kind, a)
}

func (l *Lists) find(root place, kind Kind, a uint64) (b uint64, ok bool) {
	if root.isSpine() {
		s := l.spine(root)
		root = place(s.block(s.find(a)))
	}
	_, _, p, ok := kind.find(l.slab.get(root.blob()), a)
	if !ok {
		return 0, false
	}
	return p.B, true
}

// FindB is the A of the pair with a B, in a ByBoth list, 0 when there is none.
func (l *Lists) FindB(id uint64, list int, b uint64) (a uint64, ok bool) {
	root, kind := l.list(id, list)
	if root.isSpine() {
		return l.find(l.spine(root).reverse(), ByA, b)
	}
	block, p, n := l.slab.get(root.blob()), Pair{}, 0
	for at := 0; ; at += n {
		if p, n = kind.next(block[at:], p); n == 0 || p.B == b {
			return p.A, n > 0
		}
	}
}

// First is the first pair of a list.
func (l *Lists) First(id uint64, list int) (p Pair, ok bool) {
	root, kind := l.list(id, list)
	if root.isSpine() {
		root = place(l.spine(root).block(0))
	}
	p, n := kind.next(l.slab.get(root.blob()), Pair{})
	return p, n > 0
}

// Pairs appends all pairs of a list, ascending.
func (l *Lists) Pairs(id uint64, list int, dst []Pair) []Pair {
	root, kind := l.list(id, list)
	if !root.isSpine() {
		b := l.slab.get(root.blob())
		return kind.pairs(slices.Grow(dst, len(b)/4), b)
	}
	s := l.spine(root)
	dst = slices.Grow(dst, s.pairs())
	for i := range s.blocks() {
		dst = kind.pairs(dst, l.slab.get(s.block(i)))
	}
	return dst
}

// Ascend visits the pairs whose A is above a key, ascending, until visit says
// no.
func (l *Lists) Ascend(id uint64, list int, above uint64, visit func(Pair) (more bool)) {
	root, kind := l.list(id, list)
	if !root.isSpine() {
		kind.ascend(l.slab.get(root.blob()), above, visit)
		return
	}
	s := l.spine(root)
	for i := s.find(above); i < s.blocks() && kind.ascend(l.slab.get(s.block(i)), above, visit); i++ {
	}
}

func (k Kind) ascend(b []byte, above uint64, visit func(Pair) bool) (more bool) {
	p, n := Pair{}, 0
	for at := 0; ; at += n {
		if p, n = k.next(b[at:], p); n == 0 {
			return true
		}
		if p.A > above && !visit(p) {
			return false
		}
	}
}

// Descend visits the pairs whose A is below a key, descending, until visit
// says no. buffer is working space.
func (l *Lists) Descend(id uint64, list int, below uint64, buffer *[]Pair, visit func(Pair) (more bool)) {
	root, kind := l.list(id, list)
	if !root.isSpine() {
		kind.descend(l.slab.get(root.blob()), below, buffer, visit)
		return
	}
	s := l.spine(root)
	for i := s.find(below); i >= 0 && kind.descend(l.slab.get(s.block(i)), below, buffer, visit); i-- {
	}
}

func (k Kind) descend(b []byte, below uint64, buffer *[]Pair, visit func(Pair) bool) (more bool) {
	*buffer = k.pairs((*buffer)[:0], b)
	for _, p := range slices.Backward(*buffer) {
		if p.A < below && !visit(p) {
			return false
		}
	}
	return true
}

// CountAbove is how many pairs have an A above a key, but no more than most.
func (l *Lists) CountAbove(id uint64, list int, above uint64, most int) (n int) {
	root, kind := l.list(id, list)
	if !root.isSpine() {
		return min(kind.countAbove(l.slab.get(root.blob()), above), most)
	}
	s := l.spine(root)
	at := s.find(above)
	if n = kind.countAbove(l.slab.get(s.block(at)), above); at < s.blocks()/2 && most >= s.pairs() {
		n += s.pairs() // less what lies before, which is nearer
		for i := range at + 1 {
			n -= s.count(i)
		}
		return n
	}
	for i := s.blocks() - 1; i > at && n < most; i-- {
		n += s.count(i)
	}
	return min(n, most)
}

func (k Kind) countAbove(b []byte, above uint64) int {
	at, _, _, ok := k.find(b, above)
	n := count(b[at:])
	if ok {
		n--
	}
	return n
}

// Set puts a pair into a list, in place of the one with its A if there is one.
// The id must be there. Of a ByBoth list neither A nor B may be in it.
func (l *Lists) Set(id uint64, list int, p Pair) {
	l.change(id, list, func(root place, kind Kind) place { return l.set(root, kind, p) })
}

// Delete takes the pair with an A out of a list, and says whether it was there.
func (l *Lists) Delete(id uint64, list int, a uint64) (ok bool) {
	l.change(id, list, func(root place, kind Kind) place {
		root, ok = l.delete(root, kind, a)
		return root
	})
	return ok
}

// Fill replaces a list by one of pairs that ascend. The id must be there.
func (l *Lists) Fill(id uint64, list int, pairs []Pair) {
	l.change(id, list, func(root place, kind Kind) place {
		l.drop(root)
		return l.fill(kind, pairs)
	})
}

func (l *Lists) change(id uint64, list int, change func(place, Kind) place) {
	row, ok := l.index.find1(id)
	if !ok {
		return
	}
	at := l.words + list
	setRowWord(row, at, uint64(change(place(rowWord(row, at)), l.kinds[list])))
	l.tidy()
}

func (l *Lists) set(root place, kind Kind, p Pair) place {
	if !root.isSpine() {
		b := l.slab.get(root.blob())
		at, before, _, ok := kind.find(b, p.A)
		if l.coded = kind.splice(l.coded[:0], b, at, before, ok, true, p); len(l.coded) <= blockMax {
			return place(l.slab.put(root.blob(), l.coded))
		}
		root = l.grow(root, kind)
	}
	s := l.spine(root)
	if kind == ByBoth {
		reverse := l.set(s.reverse(), ByA, Pair{p.B, p.A})
		s = l.spine(root)
		s.setReverse(reverse)
	}
	i := s.find(p.A)
	b := l.slab.get(s.block(i))
	at, before, _, ok := kind.find(b, p.A)
	if at == len(b) && len(b)+pairMax > blockMax && i == s.blocks()-1 {
		return l.blockAdd(root, kind, i, []Pair{p}) // what grows at its end has full blocks
	}
	more := 1
	if ok {
		more = 0
	}
	if l.coded = kind.splice(l.coded[:0], b, at, before, ok, true, p); len(l.coded) <= blockMax {
		l.blockSet(root, kind, i, more, l.coded)
		return root
	}
	l.halves = kind.pairs(l.halves[:0], l.coded)
	middle := len(l.halves) / 2
	l.coded = kind.code(l.coded[:0], l.halves[:middle])
	l.blockSet(root, kind, i, middle-s.count(i), l.coded)
	return l.blockAdd(root, kind, i, l.halves[middle:])
}

// grow makes a list of one block one with a spine.
func (l *Lists) grow(root place, kind Kind) place {
	pairs := kind.pairs(nil, l.slab.get(root.blob()))
	l.bones = append(l.bones[:0], make([]byte, spineHead+spineEntry)...)
	spine(l.bones).setPairs(len(pairs))
	spine(l.bones).set(0, pairs[0].A, root.blob(), len(pairs))
	root = l.rebone(0)
	l.turn(root, kind, pairs)
	return root
}

// turn gives a list with a spine its reverse, where its kind has one.
func (l *Lists) turn(root place, kind Kind, pairs []Pair) {
	if kind != ByBoth {
		return
	}
	turned := make([]Pair, 0, len(pairs))
	for _, p := range pairs {
		turned = append(turned, Pair{p.B, p.A})
	}
	slices.SortFunc(turned, func(a, b Pair) int { return cmp.Compare(a.A, b.A) })
	reverse := l.fill(ByA, turned)
	l.spine(root).setReverse(reverse)
}

func (l *Lists) delete(root place, kind Kind, a uint64) (place, bool) {
	if !root.isSpine() {
		b := l.slab.get(root.blob())
		at, before, _, ok := kind.find(b, a)
		if !ok {
			return root, false
		}
		l.coded = kind.splice(l.coded[:0], b, at, before, true, false, Pair{})
		return place(l.slab.put(root.blob(), l.coded)), true
	}
	s := l.spine(root)
	i := s.find(a)
	b := l.slab.get(s.block(i))
	at, before, p, ok := kind.find(b, a)
	if !ok {
		return root, false
	}
	if l.coded = kind.splice(l.coded[:0], b, at, before, true, false, Pair{}); len(l.coded) == 0 {
		root = l.blockDrop(root, i)
	} else {
		l.blockSet(root, kind, i, -1, l.coded)
		root = l.join(root, kind, i)
	}
	if kind == ByBoth {
		reverse, _ := l.delete(l.spine(root).reverse(), ByA, p.B)
		l.spine(root).setReverse(reverse)
	}
	return l.shrink(root), true
}

// join puts a block that has become small together with a neighbour, if both
// leave some room in one.
func (l *Lists) join(root place, kind Kind, i int) place {
	s := l.spine(root)
	if l.slab.length(s.block(i)) > blockMax/4 {
		return root
	}
	for _, left := range []int{i - 1, i} {
		if left < 0 || left+1 >= s.blocks() || l.slab.length(s.block(left))+l.slab.length(s.block(left+1)) > blockMax/2 {
			continue
		}
		l.halves = kind.pairs(l.halves[:0], l.slab.get(s.block(left)))
		l.halves = kind.pairs(l.halves, l.slab.get(s.block(left+1)))
		more := s.count(left + 1)
		root = l.blockDrop(root, left+1)
		l.coded = kind.code(l.coded[:0], l.halves)
		l.blockSet(root, kind, left, more, l.coded)
		return root
	}
	return root
}

// shrink gives up a spine that has only one block.
func (l *Lists) shrink(root place) place {
	s := l.spine(root)
	if s.blocks() > 1 {
		return root
	}
	block, reverse := place(s.block(0)), s.reverse()
	l.drop(reverse)
	l.slab.drop(root.blob())
	return block
}

// fillMax bounds a block of a list that is put as a whole, so that the next
// pairs find some room.
const fillMax = blockMax * 3 / 4

func (l *Lists) fill(kind Kind, list []Pair) (root place) {
	if l.coded = kind.code(l.coded[:0], list); len(l.coded) <= blockMax {
		return place(l.slab.put(0, l.coded))
	}
	// One spine for all: adding block by block would write it once for each.
	bones := make([]byte, spineHead, spineHead+len(l.coded)/fillMax*spineEntry+spineEntry)
	for rest := list; len(rest) > 0; {
		n, before := 0, Pair{}
		for l.coded = l.coded[:0]; n < len(rest) && len(l.coded)+pairMax <= fillMax; n++ {
			l.coded = kind.appendPair(l.coded, before, rest[n])
			before = rest[n]
		}
		at := len(bones)
		bones = append(bones, make([]byte, spineEntry)...)
		putEntry(bones[at:], rest[0].A, l.slab.put(0, l.coded), n)
		rest = rest[n:]
	}
	spine(bones).setPairs(len(list))
	root = place(l.slab.put(0, bones)) | spineBit
	l.turn(root, kind, list)
	return root
}

// drop frees a list.
func (l *Lists) drop(root place) {
	if root.isSpine() {
		s := l.spine(root)
		for i := range s.blocks() {
			l.slab.drop(s.block(i))
		}
		l.drop(s.reverse())
	}
	l.slab.drop(root.blob())
}

// size is the memory of a list.
func (l *Lists) size(root place) int {
	n := l.slab.bytes(root.blob())
	if root.isSpine() {
		s := l.spine(root)
		for i := range s.blocks() {
			n += l.slab.bytes(s.block(i))
		}
		n += l.size(s.reverse())
	}
	return n
}

// Drop takes an id out, if it is there.
func (l *Lists) Drop(id uint64) {
	l.dropID(id)
	l.tidy()
}

func (l *Lists) dropID(id uint64) {
	if row, ok := l.index.find1(id); ok {
		l.dropLists(row)
		l.index.remove(keyWords{id})
	}
}

func (l *Lists) dropLists(row []byte) {
	for i := range l.kinds {
		l.drop(place(rowWord(row, l.words+i)))
	}
}

// evictSteps is how far the clock hand goes between two looks at what it has
// freed: it takes marks away also where nothing more is evicted.
const evictSteps = 64

// Evict takes ids out that were not used since the clock hand last passed, and
// that keep does not hold, until rows and blocks of so many bytes are free or
// the hand went round twice. It returns the number of ids taken out. An id that
// keep does not hold is there until keep returns. Before the first call, which
// may be for 0 bytes, use is not recorded.
//
// What is free serves the next ids; Bytes falls once it is a quarter or so.
func (l *Lists) Evict(bytes int, keep func(id uint64) bool) (evicted int) {
	visit := func(s *segment, at int, used bool) bool {
		if used || bytes <= 0 || keep(l.index.id(s, at)) {
			return false
		}
		row := s.row(at)
		bytes -= s.stride
		for i := range l.kinds {
			bytes -= l.size(place(rowWord(row, l.words+i)))
		}
		l.dropLists(row)
		return true
	}
	steps := 2*l.index.slots + evictSlack
	for evicted = l.index.sweep(visit, 0); steps > 0 && bytes > 0; steps -= evictSteps {
		evicted += l.index.sweep(visit, evictSteps)
	}
	l.tidy()
	return evicted
}

// Each visits all ids, in any order. Nothing may be written during it.
func (l *Lists) Each(visit func(id uint64)) {
	l.index.each(func(s *segment, at int) { visit(l.index.id(s, at)) })
}

// DropBelow takes all ids out whose word is at most limit, and returns their
// number.
func (l *Lists) DropBelow(word int, limit uint64) (dropped int) {
	var ids []uint64
	l.index.each(func(s *segment, at int) {
		if s.word(at, word) <= limit {
			ids = append(ids, l.index.id(s, at))
		}
	})
	for _, id := range ids {
		l.dropID(id)
	}
	l.tidy()
	return len(ids)
}

// tidy gives memory back when too much of the slab is free. It looks at every
// row and moves an eighth of the blocks, but only after as much was freed as
// pays for it.
func (l *Lists) tidy() {
	if !l.slab.due() {
		return
	}
	for l.slab.wasteful() && l.slab.condemn() {
		l.vacate()
	}
}

// vacate moves what lives in condemned chunks, and razes them.
func (l *Lists) vacate() {
	l.index.each(func(s *segment, at int) {
		row := s.row(at)
		for i := l.words; i < l.words+len(l.kinds); i++ {
			setRowWord(row, i, uint64(l.move(place(rowWord(row, i)))))
		}
	})
	l.slab.raze()
}

// move moves what lives in condemned chunks of a list.
func (l *Lists) move(root place) place {
	if root.isSpine() {
		for i := range l.spine(root).blocks() {
			if b := l.spine(root).block(i); l.slab.condemned(b.ref()) {
				b = l.slab.move(b) // which may move the view of the spine
				l.spine(root).setBlock(i, b)
			}
		}
		reverse := l.move(l.spine(root).reverse())
		l.spine(root).setReverse(reverse)
	}
	if l.slab.condemned(root.blob().ref()) {
		return place(l.slab.move(root.blob())) | root&spineBit
	}
	return root
}

func rowWord(row []byte, i int) uint64          { return binary.LittleEndian.Uint64(row[8*i:]) }
func setRowWord(row []byte, i int, word uint64) { binary.LittleEndian.PutUint64(row[8*i:], word) }
