package hot

import (
	"bytes"
	"slices"
	"testing"
)

// A block is the smallest of its classes that fits, and wastes a fifth at most.
func TestClasses(t *testing.T) {
	for n := 1; n <= 4*lengthLong; n += 1 + n/1000 {
		c := classOf(n)
		if classBytes(c) < n || c > 0 && classBytes(c-1) >= n {
			t.Fatalf("%d bytes are of class %d: %d bytes", n, c, classBytes(c))
		}
		if waste := classBytes(c) - n; n >= 8 && 5*waste > classBytes(c) {
			t.Fatalf("%d bytes waste %d", n, waste)
		}
	}
	if classBytes(ownClass) != 32<<10 {
		t.Fatalf("blocks of more than %d bytes have their own chunk", classBytes(ownClass))
	}
}

// checkSlab panics unless every byte of the chunks is in one block at most,
// given out or free, and the sums are right.
func checkSlab(t fatal, s *slab, blobs []blob) {
	type span struct{ from, to uint64 }
	var spans []span
	live := 0
	perChunk := make([]int, len(s.chunks))
	for _, b := range blobs {
		if b != 0 {
			spans = append(spans, span{b.ref(), b.ref() + uint64(s.bytes(b))})
			live += s.bytes(b)
			perChunk[b.ref()>>chunkBits] += s.bytes(b)
		}
	}
	for class, ref := range s.free {
		for ; ref != 0; ref = s.next(ref) {
			spans = append(spans, span{ref, ref + uint64(classBytes(class))})
		}
	}
	spans = append(spans, span{s.tail, s.tail + uint64(s.room)})
	slices.SortFunc(spans, func(a, b span) int { return int(a.from) - int(b.from) })
	for i := 1; i < len(spans); i++ {
		if spans[i].from < spans[i-1].to {
			t.Fatalf("blocks %x and %x overlap", spans[i-1], spans[i])
		}
	}
	total := 0
	for i, c := range s.chunks {
		total += len(c.bytes)
		if c.live != perChunk[i] || c.condemned {
			t.Fatalf("chunk %d has %d bytes given out, says %d (condemned: %v)", i, perChunk[i], c.live, c.condemned)
		}
	}
	if s.live != live || s.total != total {
		t.Fatalf("%d of %d bytes given out, says %d of %d", live, total, s.live, s.total)
	}
}

type fatal interface{ Fatalf(string, ...any) }

// Strings of all lengths, also of more than a blob can tell, and each a view of
// the one before.
func TestSlabLengths(t *testing.T) {
	var (
		s    slab
		b    blob
		want []byte
	)
	for _, n := range []int{0, 1, 7, 8, 9, 100, 99, 10_000, 32 << 10, 32<<10 + 1, 1 << 20, lengthLong - 1, lengthLong, lengthLong + 1, lengthLong + 2<<20, 1<<20 + 1, 30_000, 5, 0, 3} {
		for len(want) < n {
			want = append(want, byte(len(want)*7))
		}
		if n > s.length(b) {
			b = s.put(b, want[:n])
		} else {
			b = s.put(b, s.get(b)[:n]) // a view
		}
		if got := s.get(b); !bytes.Equal(got, want[:n]) {
			t.Fatalf("a string of %d bytes became one of %d", n, len(got))
		}
		checkSlab(t, &s, []blob{b})
	}
	if s.total > chunkBytes {
		t.Errorf("a string of 3 bytes takes %d", s.total)
	}
}

// "A slab that was never used takes nothing, and its first chunk starts at
// 4 KiB."
func TestSlabSmall(t *testing.T) {
	var s slab
	if s.size() != 0 {
		t.Errorf("an empty slab takes %d bytes", s.size())
	}
	s.put(0, make([]byte, 100))
	if s.size() > 5<<10 {
		t.Errorf("a string of 100 bytes takes %d", s.size())
	}
	var large slab // its first string does not fit the first chunk
	if b := large.put(0, make([]byte, 30_000)); large.length(b) != 30_000 || large.size() > 33<<10 {
		t.Errorf("a string of 30,000 bytes takes %d", large.size())
	}
	for range 20_000 {
		s.put(0, make([]byte, 100))
	}
	if limit := 20_000*112 + chunkBytes + 4096; s.size() > limit {
		t.Errorf("20,000 strings of 100 bytes take %d, at most %d", s.size(), limit)
	}
}
