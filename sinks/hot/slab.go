package hot

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// slab gives out blocks of bytes from large chunks without pointers, so that
// the garbage collector passes them by. A block is named by its place:
//
//	ref = chunk number << 18 │ byte within the chunk        (40 bits; 0: no block)
//
//	chunk  │ block │ block │ free block: ref of the next one of its size │ block │ … tail │
//
// Blocks have one of 4 sizes a doubling: 8, 10, 12, 14, 16, 20, 24, 28, 32, 40 …
// A freed block serves the next of its size; a block of more than 32 KiB has a
// chunk of its own, given back when it is freed.
//
// # Waste
//
// Of its block a string leaves a fifth free at most, a tenth on average (but none is
// below 8 bytes). Of the chunks a quarter may be free, and one chunk more: then the
// emptiest are condemned, what lives in them is moved (by the owner, which knows the
// refs), and they are razed. So memory is 7/4 of the strings and 256 KiB at the worst,
// whatever sizes come and go; and while blocks move, an eighth of the strings (or a
// chunk) more. A slab that was never used takes nothing, and its first chunk starts at
// 4 KiB.
//
// The road not taken: a log that is only appended to would have no size
// classes, but rewrite a list of 600 bytes for each post of 6. Here most
// changes stay in their block.
type slab struct {
	chunks []chunk  // 0 is none
	unused []uint64 // numbers of chunks razed
	tail   uint64   // the ref that the next block of a new size gets
	room   int      // bytes left there
	free   [ownClass + 1]uint64

	total int // bytes of chunks
	live  int // bytes of blocks given out
	freed int // bytes freed since blocks were last moved
}

type chunk struct {
	bytes     []byte
	live      int // bytes of blocks given out
	long      int // length of its one string, where that does not fit in a blob
	condemned bool
}

const (
	chunkBits  = 18
	chunkBytes = 1 << chunkBits
	chunkMin   = 4 << 10 // the first one grows from here
	refBits    = 40      // 2^22 chunks; half of them, 512 GiB, where Lists marks spines with the highest bit
	ownClass   = 4 * (15 - 3)
)

// classOf is the smallest size that n bytes fit in: 4 classes a doubling,
// 8 bytes are class 0.
func classOf(n int) int {
	if n <= 8 {
		return 0
	}
	k := bits.Len(uint(n-1)) - 1
	return 4*(k-3) + (n-1)>>(k-2)&3 + 1
}

func classBytes(class int) int { return (4 + class&3) << (class>>2 + 1) }

// blob is a string in a slab: its block and its length. 0 is the empty string,
// which has no block. A string of lengthLong bytes and more (four million
// followees) has a chunk of its own, and its length stands there.
//
//	ref 40 bits │ length 24 bits, lengthLong: see the chunk
type blob uint64

const (
	lengthBits = 64 - refBits
	lengthLong = 1<<lengthBits - 1
)

func (b blob) ref() uint64 { return uint64(b >> lengthBits) }

// length is the length of a string, class that of its block.
func (s *slab) length(b blob) int {
	if n := int(b & lengthLong); n < lengthLong {
		return n
	}
	return s.chunks[b.ref()>>chunkBits].long
}

func (s *slab) class(b blob) int { return classOf(s.length(b)) }

// bytes is the size of a string's block.
func (s *slab) bytes(b blob) int {
	if b == 0 {
		return 0
	}
	return classBytes(s.class(b))
}

// get is a view of a string.
func (s *slab) get(b blob) []byte {
	if b == 0 {
		return nil
	}
	return s.block(b.ref(), s.length(b))
}

// put replaces a string by another, which may be a view of the first.
func (s *slab) put(old blob, payload []byte) blob {
	n := len(payload)
	if n == 0 {
		s.drop(old)
		return 0
	}
	ref := old.ref()
	if old == 0 || s.class(old) != classOf(n) {
		ref = s.alloc(classOf(n))
	}
	copy(s.block(ref, n), payload)
	if ref != old.ref() {
		s.drop(old) // now that payload is out of it
	}
	if n >= lengthLong {
		s.chunks[ref>>chunkBits].long = n
	}
	return blob(ref<<lengthBits | uint64(min(n, lengthLong)))
}

// drop frees a string.
func (s *slab) drop(b blob) {
	if b != 0 {
		s.release(b.ref(), s.class(b))
	}
}

// block is the first n bytes of a block.
func (s *slab) block(ref uint64, n int) []byte {
	at := int(ref & (chunkBytes - 1))
	return s.chunks[ref>>chunkBits].bytes[at : at+n : at+n]
}

// alloc gives out a block of a class.
func (s *slab) alloc(class int) (ref uint64) {
	size := classBytes(class)
	switch {
	case class > ownClass:
		ref = s.add(size)
	case s.free[class] != 0:
		ref = s.free[class]
		s.free[class] = s.next(ref)
	default:
		ref = s.carve(size)
	}
	s.live += size
	s.chunks[ref>>chunkBits].live += size
	return ref
}

// release takes a block back.
func (s *slab) release(ref uint64, class int) {
	size := classBytes(class)
	s.live -= size
	s.freed += size
	c := &s.chunks[ref>>chunkBits]
	c.live -= size
	switch {
	case class > ownClass:
		s.remove(ref >> chunkBits)
	case !c.condemned:
		s.push(ref, class)
	}
}

func (s *slab) next(ref uint64) uint64 {
	return binary.LittleEndian.Uint64(s.block(ref, 8))
}

func (s *slab) push(ref uint64, class int) {
	binary.LittleEndian.PutUint64(s.block(ref, 8), s.free[class])
	s.free[class] = ref
}

// carve cuts a block from the tail.
func (s *slab) carve(size int) uint64 {
	for size > s.room {
		switch {
		case s.tail == 0:
			s.tail, s.room = s.add(chunkMin), chunkMin
		case len(s.chunks[s.tailNumber()].bytes) < chunkBytes:
			s.widen()
		default:
			s.scrap()
			s.tail, s.room = s.add(chunkBytes), chunkBytes
		}
	}
	ref := s.tail
	s.tail += uint64(size)
	s.room -= size
	return ref
}

// tailNumber is the number of the tail's chunk, of which all may be left, or
// nothing.
func (s *slab) tailNumber() uint64 { return (s.tail + uint64(s.room) - 1) >> chunkBits }

// widen doubles the first chunk. Refs stay as they are.
func (s *slab) widen() {
	c := &s.chunks[s.tailNumber()]
	more := len(c.bytes)
	wide := make([]byte, 2*more)
	copy(wide, c.bytes)
	c.bytes = wide
	s.room += more
	s.total += more
}

// scrap makes free blocks of the rest of the tail.
func (s *slab) scrap() {
	for s.room >= 8 {
		class := min(classOf(s.room+1)-1, ownClass) // the largest that fits
		s.push(s.tail, class)
		s.tail += uint64(classBytes(class))
		s.room -= classBytes(class)
	}
}

// add makes a chunk.
func (s *slab) add(size int) (ref uint64) {
	if len(s.chunks) == 0 {
		s.chunks = make([]chunk, 1, 4)
	}
	n := uint64(len(s.chunks))
	if last := len(s.unused) - 1; last >= 0 {
		n, s.unused = s.unused[last], s.unused[:last]
	} else {
		s.chunks = append(s.chunks, chunk{})
	}
	s.chunks[n] = chunk{bytes: make([]byte, size)}
	s.total += size
	return n << chunkBits
}

func (s *slab) remove(n uint64) {
	s.total -= len(s.chunks[n].bytes)
	s.chunks[n] = chunk{}
	s.unused = append(s.unused, n)
}

// size is all memory taken.
func (s *slab) size() int {
	return s.total + int(unsafe.Sizeof(chunk{}))*cap(s.chunks) + 8*cap(s.unused)
}
