package hot

import (
	"encoding/binary"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
)

// unmix is the id whose Mix is m.
func unmix(m uint64) uint64 {
	m ^= m>>31 ^ m>>62
	m *= inverse(0x94d049bb133111eb)
	m ^= m>>27 ^ m>>54
	m *= inverse(0xbf58476d1ce4e5b9)
	m ^= m>>30 ^ m>>60
	return m - 0x9e3779b97f4a7c15
}

// inverse of an odd number modulo 2^64, by Newton's iteration.
func inverse(a uint64) uint64 {
	x := a
	for range 6 {
		x *= 2 - a*x
	}
	return x
}

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

// indexTwin is an index beside what it should hold.
type indexTwin struct {
	*index
	rows map[[2]uint64]byte // the row's last byte
	used map[[2]uint64]bool // since the first sweep
}

func newIndexTwin(t *rapid.T) *indexTwin {
	words := rapid.IntRange(1, 2).Draw(t, "words")
	extra := rapid.SampledFrom([]int{1, 6, 24, 300, 3000}).Draw(t, "extra") // wide rows soon fill a segment
	return &indexTwin{newIndex(words, 8*words+extra), map[[2]uint64]byte{}, map[[2]uint64]bool{}}
}

func (x *indexTwin) key(t *rapid.T) [2]uint64 {
	key := [2]uint64{ids().Draw(t, "id")}
	if x.words == 2 {
		key[1] = rapid.Uint64Range(0, 3).Draw(t, "second")
	}
	return key
}

func (x *indexTwin) keyOf(row []byte) (key [2]uint64) {
	for w := range x.words {
		key[w] = binary.LittleEndian.Uint64(row[8*w:])
	}
	return key
}

func (x *indexTwin) insert(t *rapid.T, key [2]uint64, value byte) {
	if _, ok := x.rows[key]; ok {
		return
	}
	row := x.index.insert(key)
	if len(row) != x.stride || x.keyOf(row) != key || slices.ContainsFunc(row[8*x.words:], func(b byte) bool { return b != 0 }) {
		t.Fatalf("new row of %v: %v", key, row)
	}
	row[x.stride-1] = value
	x.rows[key] = value
}

// check holds the index against the twin, and against its own order.
func (x *indexTwin) check(t *rapid.T) {
	seen := map[[2]uint64]bool{}
	x.each(func(row []byte) {
		key := x.keyOf(row)
		if value, ok := x.rows[key]; !ok || seen[key] || row[x.stride-1] != value {
			t.Fatalf("row %v: %d; want %d, there %v, seen %v", key, row[x.stride-1], value, ok, seen[key])
		}
		seen[key] = true
		if s, at, ok := x.place(key); !ok || s.marks.has(at) != x.used[key] {
			t.Fatalf("row %v: found %v; want it with mark %v", key, ok, x.used[key])
		}
	})
	if len(seen) != len(x.rows) || x.index.rows() != len(x.rows) {
		t.Fatalf("%d rows, %d counted; want %d", len(seen), x.index.rows(), len(x.rows))
	}
	memory, slots, segments := 0, 0, 0
	x.eachSegment(func(s *segment) {
		segments++
		slots += s.slots
		memory += segmentBytes + len(s.buf) + 4*cap(s.marks)
		x.checkSegment(t, s)
	})
	if memory != x.memory || slots != x.slots || segments != x.segments || len(x.dir) != 1<<x.depth() {
		t.Fatalf("%d bytes, %d slots, %d segments; counted %d, %d, %d", memory, slots, segments, x.memory, x.slots, x.segments)
	}
}

// checkSegment: every row is reached from its home past rows that stand before it.
func (x *indexTwin) checkSegment(t *rapid.T, s *segment) {
	rows := 0
	for at := range s.slots {
		if x.word(s, at, 0) == 0 {
			if s.marks.has(at) {
				t.Fatalf("a mark without a row at %d of %d", at, s.slots)
			}
			continue
		}
		rows++
		h := x.hash(s, at)
		d := s.distance(at, h)
		for n, walk := 0, s.home(h); walk != at; n, walk = n+1, s.next(walk) {
			if x.word(s, walk, 0) == 0 || x.past(s, walk, n, h) {
				t.Fatalf("slot %d of %d, %d from home: %d is free or behind it", at, s.slots, d, walk)
			}
		}
	}
	if rows != int(s.rows) || rows > limit(s.slots) {
		t.Fatalf("%d rows in a segment, counted %d, limit %d", rows, s.rows, limit(s.slots))
	}
}

// "The hot table against map" (STYLE 21), here the index beneath it.
func TestIndexTwin(t *testing.T) {
	if pipeline.Mix(unmix(12345678901234567)) != 12345678901234567 {
		t.Fatal("unmix is not Mix's inverse")
	}
	rapid.Check(t, indexAgrees)
}

func indexAgrees(t *rapid.T) {
	x := newIndexTwin(t)
	value := rapid.Byte()
	t.Repeat(map[string]func(*rapid.T){
		"insert": func(t *rapid.T) { x.insert(t, x.key(t), value.Draw(t, "value")) },
		"insertMany": func(t *rapid.T) {
			from, n := rapid.Uint64Max(1<<40).Draw(t, "from"), rapid.Uint64Range(1, 200).Draw(t, "n")
			for i := range n {
				x.insert(t, [2]uint64{from + i + 1}, byte(i))
			}
		},
		"remove": func(t *rapid.T) {
			key := x.key(t)
			_, want := x.rows[key]
			if got := x.remove(key); got != want {
				t.Fatalf("remove(%v) says %v", key, got)
			}
			delete(x.rows, key)
			delete(x.used, key)
		},
		"find": func(t *rapid.T) {
			key := x.key(t)
			value, want := x.rows[key]
			row, ok := x.find(key)
			if ok != want || ok && row[x.stride-1] != value {
				t.Fatalf("find(%v) is %v, %v; want %d, %v", key, row, ok, value, want)
			}
		},
		"use": func(t *rapid.T) {
			key := x.key(t)
			if _, ok := x.use(key); ok && x.swept {
				x.used[key] = true
			}
		},
		"useMost": func(t *rapid.T) {
			but := rapid.Uint64Range(2, 9).Draw(t, "but")
			for key := range x.rows {
				if key[0]%but > 0 {
					x.use(key)
					if x.swept {
						x.used[key] = true
					}
				}
			}
		},
		"sweep": func(t *rapid.T) {
			of := rapid.Uint64Range(1, 9).Draw(t, "of")
			want := 0
			got := x.sweep(func(row []byte, used bool) bool {
				key := x.keyOf(row)
				if used != x.used[key] {
					t.Fatalf("row %v used: %v", key, used)
				}
				delete(x.used, key)
				if used || key[0]%of > 0 {
					return false
				}
				delete(x.rows, key)
				want++
				return true
			}, rapid.IntRange(0, 2*x.slots).Draw(t, "slots"))
			if got != want {
				t.Fatalf("sweep says %d, evicted %d", got, want)
			}
		},
		"": x.check,
	})
}

// A round of the hand visits every row, also when the index grows within it.
func TestIndexHandGoesRound(t *testing.T) {
	x := newIndex(1, 14)
	for id := uint64(1); id <= 30_000; id++ {
		x.insert([2]uint64{id})
	}
	visits := map[uint64]int{}
	visit := func(row []byte, _ bool) bool {
		visits[binary.LittleEndian.Uint64(row)]++
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
		x.insert([2]uint64{id})
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

func TestIndexHandInverse(t *testing.T) {
	for _, slots := range []int{1, 2, 3, 36, 585, 9361, 9362, 23_457} {
		for _, depth := range []uint8{0, 1, 7, 30} {
			s := &segment{slots: slots, depth: depth}
			within := uint64(0xabcdef0123456789)
			for at := range slots {
				h := s.hash(within, at)
				if s.home(h) != at || h>>(64-depth) != within>>(64-depth) || (at > 0 && s.home(h-1) != at-1) {
					t.Fatalf("slot %d of %d at depth %d: hash %x falls in slot %d", at, slots, depth, h, s.home(h))
				}
			}
			if got, want := s.hash(within, slots), (within>>(64-depth)+1)<<(64-depth); got != want {
				t.Fatalf("behind the segment of %x at depth %d: %x, want %x", within, depth, got, want)
			}
		}
	}
}

// Ids made to fall in one slot cost time, but the directory stays small.
func TestIndexHostile(t *testing.T) {
	x := newIndex(1, 40)
	const n = 3000
	for m := uint64(1); m <= n; m++ {
		x.insert([2]uint64{unmix(m<<20 + 5)}) // in one slot at any depth
	}
	for id := uint64(1); id <= n; id++ {
		x.insert([2]uint64{id})
	}
	for m := uint64(1); m <= n; m += 7 {
		_, ok := x.find1(unmix(m<<20 + 5))
		_, no := x.find1(unmix(m<<20 + 6))
		if _, also := x.find1(m); !ok || !also || no {
			t.Fatalf("%d: %v, %v; %v", m, ok, also, no)
		}
	}
	if len(x.dir) > 2*x.segments<<depthSlack {
		t.Fatalf("a directory of %d entries for %d segments", len(x.dir), x.segments)
	}
	for m := uint64(1); m <= n; m++ {
		if !x.remove([2]uint64{unmix(m<<20 + 5)}) || !x.remove([2]uint64{m}) {
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
	x := newIndex(1, 14)
	for size := x.size(1); size < 4*segmentMax; {
		if got := cap(append([]byte(nil), make([]byte, size)...)); got != size {
			t.Errorf("a buffer of %d bytes takes %d", size, got)
		}
		next := sizeAfter(size)
		if next <= size || next-size > size/3 {
			t.Errorf("a buffer of %d bytes grows to %d", size, next)
		}
		if got := x.size(limit(x.slotsIn(size)) + 1); got != next && size < segmentMax {
			t.Errorf("one row more than %d bytes hold wants %d, want %d", size, got, next)
		}
		size = next
	}
}

// Evicting shrinks.
func TestIndexShrinks(t *testing.T) {
	x := newIndex(1, 14)
	const n = 100_000
	for id := uint64(1); id <= n; id++ {
		x.insert([2]uint64{id})
	}
	full := x.bytes()
	for part := uint64(2); part <= 64; part *= 2 { // keep a half, a quarter, …
		for range 2 { // evicting takes steps too
			x.sweep(func(row []byte, _ bool) bool { return binary.LittleEndian.Uint64(row)%part > 0 }, x.slots)
		}
		if got := float64(x.bytes()) / float64(x.rows()); x.rows() != n/int(part) || got > 14/0.5*1.1 {
			t.Fatalf("of %d bytes %d were kept for %d rows, %.1f a row", full, x.bytes(), x.rows(), got)
		}
	}
}
