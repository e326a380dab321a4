package hot

import (
	"encoding/binary"
	"sort"
)

// place is where a list is: 0 is the empty list, else its one block, or with
// the highest bit its spine, a string in the slab that says where its blocks
// are:
//
//	spine  pairs 8 B │ reverse 8 B │ entry │ entry │ …
//	entry  A of the block's first pair 8 B │ block 8 B │ pairs of the block 4 B
//
// reverse is the place of the same list by B, where it is a ByBoth list: pairs
// (B, A). A list of one block needs none, since all of it is looked through.
type place uint64

const (
	spineBit   = 1 << 63
	spineHead  = 16
	spineEntry = 20
)

func (p place) isSpine() bool { return p&spineBit != 0 }
func (p place) blob() blob    { return blob(p &^ spineBit) }

// spine is a view of a spine's bytes, valid until the slab gives out a block.
type spine []byte

func (l *Lists) spine(root place) spine { return l.slab.get(root.blob()) }

func (s spine) pairs() int             { return int(binary.LittleEndian.Uint64(s)) }
func (s spine) setPairs(n int)         { binary.LittleEndian.PutUint64(s, uint64(n)) }
func (s spine) reverse() place         { return place(binary.LittleEndian.Uint64(s[8:])) }
func (s spine) setReverse(p place)     { binary.LittleEndian.PutUint64(s[8:], uint64(p)) }
func (s spine) blocks() int            { return (len(s) - spineHead) / spineEntry }
func (s spine) entry(i int) []byte     { return s[spineHead+i*spineEntry:][:spineEntry] }
func (s spine) first(i int) uint64     { return binary.LittleEndian.Uint64(s.entry(i)) }
func (s spine) block(i int) blob       { return blob(binary.LittleEndian.Uint64(s.entry(i)[8:])) }
func (s spine) count(i int) int        { return int(binary.LittleEndian.Uint32(s.entry(i)[16:])) }
func (s spine) setBlock(i int, b blob) { binary.LittleEndian.PutUint64(s.entry(i)[8:], uint64(b)) }

func (s spine) set(i int, first uint64, b blob, count int) { putEntry(s.entry(i), first, b, count) }

func putEntry(e []byte, first uint64, b blob, count int) {
	binary.LittleEndian.PutUint64(e, first)
	binary.LittleEndian.PutUint64(e[8:], uint64(b))
	binary.LittleEndian.PutUint32(e[16:], uint32(count))
}

// find is the block in which a key is, or would be.
func (s spine) find(key uint64) int {
	return max(0, sort.Search(s.blocks(), func(i int) bool { return s.first(i) > key })-1)
}

// blockSet is block i of a list after it was written, and how many pairs more
// the list has.
func (l *Lists) blockSet(root place, kind Kind, i, more int, coded []byte) {
	b := l.slab.put(l.spine(root).block(i), coded)
	first, _ := kind.next(coded, Pair{})
	s := l.spine(root)
	s.set(i, first.A, b, s.count(i)+more)
	s.setPairs(s.pairs() + more)
}

// blockAdd makes a block behind block i.
func (l *Lists) blockAdd(root place, kind Kind, i int, list []Pair) place {
	l.coded = kind.code(l.coded[:0], list)
	b := l.slab.put(0, l.coded)
	s := l.spine(root)
	cut := spineHead + (i+1)*spineEntry
	l.bones = append(append(l.bones[:0], s[:cut]...), make([]byte, spineEntry)...)
	putEntry(l.bones[cut:], list[0].A, b, len(list))
	l.bones = append(l.bones, s[cut:]...)
	spine(l.bones).setPairs(s.pairs() + len(list))
	return l.rebone(root)
}

// blockDrop takes block i away; it is not the only one.
func (l *Lists) blockDrop(root place, i int) place {
	s := l.spine(root)
	l.slab.drop(s.block(i))
	cut := spineHead + i*spineEntry
	l.bones = append(append(l.bones[:0], s[:cut]...), s[cut+spineEntry:]...)
	spine(l.bones).setPairs(s.pairs() - s.count(i))
	return l.rebone(root)
}

// rebone puts l.bones in the place of a spine.
func (l *Lists) rebone(root place) place {
	return place(l.slab.put(root.blob(), l.bones)) | spineBit
}
