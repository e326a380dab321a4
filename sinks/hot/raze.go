package hot

import (
	"fmt"
	"slices"
)

// wasteful says whether more than a quarter of the chunks (and a chunk) is free.
func (s *slab) wasteful() bool {
	return s.total-s.live > s.total/4+chunkBytes
}

// due says whether it is time to look at waste. A thirty-second was freed since
// the last time: so for a block freed a few are moved.
func (s *slab) due() bool {
	return s.freed > s.total/32 && s.wasteful()
}

// condemn chooses the emptiest chunks: nothing more is put there, and once
// everything is moved out (move), raze gives them back. What lives in them is
// an eighth of all at most, or one chunk. It says whether there are any.
func (s *slab) condemn() bool {
	var list []int
	for n := range s.chunks {
		c := &s.chunks[n]
		if len(c.bytes) == chunkBytes && uint64(n) != s.tailNumber() && c.live <= chunkBytes/8*7 {
			list = append(list, n)
		}
	}
	s.freed = 0
	if len(list) == 0 {
		return false
	}
	slices.SortFunc(list, func(a, b int) int { return s.chunks[a].live - s.chunks[b].live })
	moving := 0
	for i, n := range list {
		moving += s.chunks[n].live
		if i > 0 && moving > s.live/8 {
			break
		}
		s.chunks[n].condemned = true
	}
	s.sift()
	return true
}

// sift takes the free blocks of condemned chunks off the free lists.
func (s *slab) sift() {
	for class, ref := range s.free {
		s.free[class] = 0
		for ref != 0 {
			next := s.next(ref)
			if !s.condemned(ref) {
				s.push(ref, class)
			}
			ref = next
		}
	}
}

// condemned says whether a block has to move. (Chunk 0, of no block, never is.)
func (s *slab) condemned(ref uint64) bool { return s.chunks[ref>>chunkBits].condemned }

// move takes a string to another block. It is a short one: a list with a chunk of its
// own is never condemned.
func (s *slab) move(b blob) blob {
	ref := s.alloc(s.class(b))
	copy(s.block(ref, s.length(b)), s.get(b))
	s.drop(b)
	return blob(ref<<lengthBits) | b&lengthLong
}

// raze gives the condemned chunks back.
func (s *slab) raze() {
	for n, c := range s.chunks {
		if !c.condemned {
			continue
		}
		if c.live != 0 {
			panic(fmt.Sprintf("hot: chunk %d has %d bytes that nobody holds", n, c.live))
		}
		s.remove(uint64(n))
	}
}
