package hot

import "math/bits"

// Pair is one entry of a list: a member with its position, or a post with its.
type Pair struct{ A, B uint64 }

// slab gives out blocks of pairs, of sizes that are powers of two, from large
// pointer-free chunks; a freed block serves the next of its size. A block is
// named by its first pair's place:
//
//	ref = chunk << slabBits | pair within the chunk
type slab struct {
	chunks [][]Pair
	tail   uint32                // where the last ordinary chunk is free from
	free   [slabClasses][]uint32 // by class: refs
	bytes  int
}

const (
	slabBits    = 14
	slabPairs   = 1 << slabBits // in an ordinary chunk, 256 KiB
	slabClasses = 31            // a block has 1<<class pairs
)

// class is the smallest block that n pairs fit in.
func class(n int) int { return bits.Len(uint(n - 1)) }

// alloc returns a block of 1<<class pairs.
func (s *slab) alloc(class int) uint32 {
	if free := s.free[class]; len(free) > 0 {
		s.free[class] = free[:len(free)-1]
		return free[len(free)-1]
	}
	size := 1 << class
	if size > slabPairs { // a chunk of its own
		return s.grow(size)
	}
	if len(s.chunks) == 0 || int(s.tail&(slabPairs-1))+size > slabPairs || s.tail == 0 {
		s.tail = s.grow(slabPairs)
	}
	ref := s.tail
	s.tail += uint32(size)
	if s.tail&(slabPairs-1) == 0 {
		s.tail = 0 // full
	}
	return ref
}

// grow adds a chunk and returns its ref. The rest of the chunk before it is
// given to the free lists.
func (s *slab) grow(pairs int) uint32 {
	if pairs == slabPairs && s.tail != 0 {
		for at := int(s.tail & (slabPairs - 1)); at < slabPairs; {
			c := min(bits.TrailingZeros(uint(at)), bits.Len(uint(slabPairs-at))-1)
			s.free[c] = append(s.free[c], s.tail)
			s.tail += 1 << c
			at += 1 << c
		}
	}
	s.chunks = append(s.chunks, make([]Pair, pairs))
	s.bytes += pairs * 16
	return uint32(len(s.chunks)-1) << slabBits
}

// release takes a block back.
func (s *slab) release(ref uint32, class int) {
	s.free[class] = append(s.free[class], ref)
}

// block is the pairs of a block.
func (s *slab) block(ref uint32, class int) []Pair {
	at := ref & (slabPairs - 1)
	return s.chunks[ref>>slabBits][at : at+1<<class : at+1<<class]
}
