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

// indexTwin is an index beside what it should hold.
type indexTwin struct {
	*index
	rows map[keyWords]byte // the row's last byte
	used map[keyWords]bool // since the first sweep
}

func newIndexTwin(t *rapid.T) *indexTwin {
	words := rapid.IntRange(1, 3).Draw(t, "words")
	extra := rapid.SampledFrom([]int{1, 6, 24, 300, 3000}).Draw(t, "extra") // wide rows soon fill a segment
	bits := 8*extra - rapid.IntRange(0, 7).Draw(t, "unused")
	least := rapid.SampledFrom([]int{0, 8 * words, 8*words + extra}).Draw(t, "least")
	return &indexTwin{newIndex(words, bits, least), map[keyWords]byte{}, map[keyWords]bool{}}
}

func (x *indexTwin) key(t *rapid.T) keyWords {
	key := keyWords{ids().Draw(t, "id")}
	for word := 1; word < x.words; word++ {
		key[word] = rapid.Uint64Range(0, 3).Draw(t, "word")
	}
	return key
}

func (x *indexTwin) keyOf(s *segment, at int) (key keyWords) {
	key[0] = x.id(s, at)
	for word := 1; word < x.words; word++ {
		key[word] = s.word(at, word-1)
	}
	return key
}

// fill puts a value into all the owner's bytes, the last of which may be cut
// off, and is says whether it is there.
func (x *indexTwin) fill(row []byte, value byte) {
	x.owners(row, func(b *byte, mask byte) { *b = *b&^mask | value&mask })
}

func (x *indexTwin) is(row []byte, value byte) bool {
	ok := true
	x.owners(row, func(b *byte, mask byte) { ok = ok && *b&mask == value&mask })
	return ok
}

func (x *indexTwin) owners(row []byte, visit func(b *byte, mask byte)) {
	for bit := 64 * (x.words - 1); bit < x.owned; bit += 8 {
		visit(&row[bit/8], byte(1<<min(8, x.owned-bit)-1))
	}
}

func (x *indexTwin) insert(t *rapid.T, key keyWords, value byte) {
	if _, ok := x.rows[key]; ok {
		return
	}
	row := x.index.insert(key)
	s, at, ok := x.place(key)
	if !ok || &row[0] != &s.row(at)[0] || x.keyOf(s, at) != key || !x.is(row, 0) {
		t.Fatalf("new row of %v: %v, found %v", key, row, ok)
	}
	x.fill(row, value)
	x.rows[key] = value
}

// check holds the index against the twin, and against its own order.
func (x *indexTwin) check(t *rapid.T) {
	seen := map[keyWords]bool{}
	x.each(func(s *segment, at int) {
		key := x.keyOf(s, at)
		if value, ok := x.rows[key]; !ok || seen[key] || !x.is(s.row(at), value) {
			t.Fatalf("row %v: %v; want %d, there %v, seen %v", key, s.row(at), value, ok, seen[key])
		}
		seen[key] = true
		if other, place, ok := x.place(key); !ok || other != s || place != at || s.marks.has(at) != x.used[key] {
			t.Fatalf("row %v: found %v at %d, is at %d; want it with mark %v", key, ok, place, at, x.used[key])
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
}

// The table against a map (STYLE 21), here the index beneath it.
func TestIndexTwin(t *testing.T) {
	for id := uint64(1); id != 0; id *= 3 * 5 << 1 {
		if unmix(pipeline.Mix(id)) != id {
			t.Fatalf("unmix is not Mix's inverse for %d", id)
		}
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
				x.insert(t, keyWords{from + i + 1}, byte(i))
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
			if ok != want || ok && !x.is(row, value) {
				t.Fatalf("find(%v) is %v, %v; want %d, %v", key, row, ok, value, want)
			}
		},
		"insertShard": func(t *rapid.T) { // whose hashes have their low bits in common
			shard, from := rapid.Uint64Max(2).Draw(t, "shard"), rapid.Uint64Max(1<<20).Draw(t, "from")
			for i := range rapid.Uint64Range(1, 200).Draw(t, "n") {
				if id := unmix(pipeline.Mix(from+i)<<6 | shard); id != 0 {
					x.insert(t, keyWords{id}, byte(i))
				}
			}
		},
		"findNear": func(t *rapid.T) { // what has the same tag as a row, or nearly
			bit := rapid.IntRange(0, 63).Draw(t, "bit")
			for key := range x.rows {
				h := x.keyHash(key) ^ 1<<bit
				other := key
				for word := x.words - 1; word > 0; word-- {
					h = unmix(h) - key[word]
				}
				other[0] = unmix(h)
				value, want := x.rows[other]
				if row, ok := x.find(other); ok != want || ok && !x.is(row, value) {
					t.Fatalf("find(%v), whose hash differs from that of %v in bit %d: %v, %v; want %d, %v", other, key, bit, row, ok, value, want)
				}
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
			got := x.sweep(func(s *segment, at int, used bool) bool {
				key := x.keyOf(s, at)
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
		"bulk": func(*rapid.T) { x.bulk = true },
		"fit": func(t *rapid.T) {
			for from, done := uint64(0), false; !done; {
				from, done = x.fit(from, rapid.IntRange(1, 3).Draw(t, "segments"))
			}
		},
		"": x.check,
	})
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
		next := sizeAfter(size)
		if next <= size || next-size > max(size/3, 128) {
			t.Errorf("a buffer of %d bytes grows to %d", size, next)
		}
		if got := x.size(1, x.holds(1, size, 0)+1, 0); got != next && size < segmentMax {
			t.Errorf("one row more than %d bytes hold wants %d, want %d", size, got, next)
		}
		size = next
	}
}

// Evicting shrinks.
func TestIndexShrinks(t *testing.T) {
	x := newIndex(1, 42, 0)
	const n = 100_000
	for id := uint64(1); id <= n; id++ {
		x.insert(keyWords{id})
	}
	full := x.bytes()
	for part := uint64(2); part <= 64; part *= 2 { // keep a half, a quarter, …
		for range 2 { // evicting takes steps too
			x.sweep(func(s *segment, at int, _ bool) bool { return x.id(s, at)%part > 0 }, x.slots)
		}
		if got := float64(x.bytes()) / float64(x.rows()); x.rows() != n/int(part) || got > 14/0.5*1.1 {
			t.Fatalf("of %d bytes %d were kept for %d rows, %.1f a row", full, x.bytes(), x.rows(), got)
		}
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
