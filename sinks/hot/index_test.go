package hot

import (
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
)

// ids are few enough to meet again, and of every sort that is hard on an index.
func ids() *rapid.Generator[uint64] {
	few := rapid.Uint64Range(1, 60)
	hashed := func(hash func(n uint64) uint64) *rapid.Generator[uint64] {
		return rapid.Map(few, func(n uint64) uint64 { return unmix(hash(n)) })
	}
	return rapid.OneOf(
		few, // small
		rapid.Map(few, func(n uint64) uint64 { return -n }),        // huge
		hashed(func(n uint64) uint64 { return n }),                 // all in the first slot
		hashed(func(n uint64) uint64 { return -n }),                // all in the last, and around the end
		hashed(func(n uint64) uint64 { return 1<<63 - 30 + n }),    // at a cut
		hashed(func(n uint64) uint64 { return n << 58 }),           // evenly
		hashed(func(n uint64) uint64 { return n << 52 }),           // in a row of slots
		hashed(func(n uint64) uint64 { return n<<20 | 7 }),         // the low bits, by which shards are chosen
		hashed(func(n uint64) uint64 { return 0x5555<<48 + n<<9 }), // in the middle
		rapid.Uint64(),
	).Filter(func(id uint64) bool { return id != 0 })
}

// checkIndex holds an index against its own order and sums: every row is found, and reached from
// its home past rows that stand before it. The twins of what stands on it call it.
func checkIndex(t fatal, x *index) {
	seen, rows, memory, slots, segments := map[keyWords]bool{}, 0, 0, 0, 0
	x.each(func(s *segment, at int) {
		key := keyWords{x.id(s, at)}
		for word := 1; word < x.words; word++ {
			key[word] = s.word(at, word-1)
		}
		if other, place, ok := x.place(key); !ok || other != s || place != at || seen[key] {
			t.Fatalf("row %v is at %d and found %v at %d; seen %v", key, at, ok, place, seen[key])
		}
		seen[key] = true
	})
	x.eachSegment(func(s *segment) {
		segments++
		slots += s.slots
		memory += segmentBytes + len(s.buf) + 4*cap(s.marks)
		rows += checkSegment(t, x, s)
	})
	if len(seen) != rows || x.rows() != rows || memory != x.memory || slots != x.slots || segments != x.segments || len(x.dir) != 1<<x.depth() {
		t.Fatalf("%d rows, %d bytes, %d slots, %d segments; counted %d, %d, %d, %d", rows, memory, slots, segments, x.rows(), x.memory, x.slots, x.segments)
	}
}

func checkSegment(t fatal, x *index, s *segment) (rows int) {
	for at := range s.slots {
		if !s.taken(at) {
			if s.marks.has(at) {
				t.Fatalf("a mark without a row at %d of %d", at, s.slots)
			}
			continue
		}
		rows++
		h := s.hash(at)
		d := s.distance(at, h)
		if d > s.reach || x.segment(h) != s || s.first != h>>(64-s.depth)<<(64-s.depth) {
			t.Fatalf("slot %d of %d, %d from home, reach %d: hash %x in the segment of %x", at, s.slots, d, s.reach, h, s.first)
		}
		for n, walk := 0, s.home(h); walk != at; n, walk = n+1, s.next(walk) {
			if !s.taken(walk) || s.past(walk, n, h) {
				t.Fatalf("slot %d of %d, %d from home: %d is free or behind it", at, s.slots, d, walk)
			}
		}
	}
	if rows != s.rows || rows > limit(s.slots) {
		t.Fatalf("%d rows in a segment, counted %d, limit %d", rows, s.rows, limit(s.slots))
	}
	return rows
}

// unmix is pipeline.Mix's inverse.
func TestUnmix(t *testing.T) {
	for id := uint64(1); id != 0; id *= 3 * 5 << 1 {
		if unmix(pipeline.Mix(id)) != id {
			t.Fatalf("unmix is not Mix's inverse for %d", id)
		}
	}
}

// A round of the hand visits every row, also when the index grows within it.
func TestIndexHandGoesRound(t *testing.T) {
	x := newIndex(1, 42, 0)
	for id := uint64(1); id <= 30_000; id++ {
		x.insert(keyWords{id})
	}
	visits := map[uint64]int{}
	visit := func(s *segment, at int, _ bool) bool {
		visits[x.id(s, at)]++
		return false
	}
	for left := x.slots; left > 0; left -= 100 {
		x.sweep(visit, min(100, left))
	}
	for id := uint64(1); id <= 30_000; id++ {
		if visits[id] != 1 {
			t.Fatalf("row %d was visited %d times in a round", id, visits[id])
		}
	}
	if x.hand != 0 {
		t.Fatalf("after a round the hand is at %x", x.hand)
	}
	clear(visits)
	for id := uint64(30_001); x.hand>>60 < 15; id++ { // the hand outruns growth
		x.insert(keyWords{id})
		x.sweep(visit, 10)
	}
	missed := 0
	for id := uint64(1); id <= 30_000; id++ {
		if visits[id] == 0 && pipeline.Mix(id)>>60 < 15 {
			missed++
		}
	}
	if missed > 30 { // the ones that stood near the hand when their segment grew
		t.Fatalf("the hand missed %d rows", missed)
	}
}

// Ids made to fall in one slot cost time, but the directory stays small.
func TestIndexHostile(t *testing.T) {
	skipRaced(t)
	x := newIndex(1, 256, 0)
	const n = 3000
	for m := uint64(1); m <= n; m++ {
		x.insert(keyWords{unmix(m<<20 + 5)}) // in one slot at any depth
	}
	for id := uint64(1); id <= n; id++ {
		x.insert(keyWords{id})
	}
	for m := uint64(1); m <= n; m += 7 {
		_, ok := x.find1(unmix(m<<20 + 5))
		_, no := x.find1(unmix(m<<20 + 6))
		if _, also := x.find1(m); !ok || !also || no {
			t.Fatalf("%d: %v, %v; %v", m, ok, also, no)
		}
	}
	slots := 0
	x.eachSegment(func(s *segment) { slots += s.slots })
	if slots > 4*x.rows() {
		t.Fatalf("%d slots for %d rows", slots, x.rows())
	}
	if len(x.dir) > 2*x.segments<<depthSlack {
		t.Fatalf("a directory of %d entries for %d segments", len(x.dir), x.segments)
	}
	for m := uint64(1); m <= n; m++ {
		if !x.remove(keyWords{unmix(m<<20 + 5)}) || !x.remove(keyWords{m}) {
			t.Fatalf("%d is not there to be removed", m)
		}
	}
	if x.rows() != 0 || x.bytes() > x.segments*1024 {
		t.Fatalf("%d rows, %d bytes after all were removed", x.rows(), x.bytes())
	}
}

// "Steps of one waste nothing": every size is one the allocator gives.
func TestIndexSizes(t *testing.T) {
	if got := unsafe.Sizeof(segment{}); got > segmentBytes {
		t.Errorf("a segment takes %d bytes, counted as %d", got, segmentBytes)
	}
	x := newIndex(1, 42, 0)
	for size := x.size(1, 1, 0); size < 4*segmentMax; {
		if got := cap(append([]byte(nil), make([]byte, size)...)); got != size {
			t.Errorf("a buffer of %d bytes takes %d", size, got)
		}
		x.loose = true
		if loose := x.sizeAfter(size); size < segmentMax && cap(append([]byte(nil), make([]byte, loose)...)) != loose {
			t.Errorf("a loose buffer of %d bytes grows to %d", size, loose)
		}
		x.loose = false
		next := x.sizeAfter(size)
		if next <= size || next-size > max(size/3, 128) {
			t.Errorf("a buffer of %d bytes grows to %d", size, next)
		}
		if got := x.size(1, x.holds(1, size, 0)+1, 0); got != next && size < segmentMax {
			t.Errorf("one row more than %d bytes hold wants %d, want %d", size, got, next)
		}
		size = next
	}
}

// Where rows would stand too far from home, their segment's rows get wider: it
// does not grow until they fit.
func TestIndexWidens(t *testing.T) {
	x := newIndex(1, 42, 0)
	const n = 14_000
	for id := uint64(1); id <= n; id++ {
		x.insert(keyWords{unmix(pipeline.Mix(id)<<6 | 5)})
	}
	tight := x.dir[0].stride
	s := x.dir[0]
	for m := uint64(1); int(m) <= 2*s.reach; m++ {
		x.insert(keyWords{unmix(s.start(100) + m<<6 | 5)})
		if s = x.segment(s.start(100)); s.skip == 0 {
			break
		}
	}
	wide := 0
	x.eachSegment(func(s *segment) {
		if s.stride > tight {
			wide++
		}
	})
	if wide < 1 || wide > 2 { // two when it was split since
		t.Fatalf("%d segments have rows of more than %d bytes", wide, tight)
	}
	found := 0
	for id := uint64(1); id <= n; id++ {
		if _, ok := x.find1(unmix(pipeline.Mix(id)<<6 | 5)); ok {
			found++
		}
	}
	if found != n {
		t.Fatalf("%d of %d rows are found", found, n)
	}
}
