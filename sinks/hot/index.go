package hot

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/tidemark-io/tidemark/pipeline"
)

// index finds rows of a fixed size by a key of one or two words, which stands
// at the row's beginning. The rows lie in a few segments without pointers:
//
//	hash       depth bits │ …
//	directory  └─► *segment, *segment, *segment, …
//	segment    row │ row │ 0 free │ row │ row │ … │ 8 spare bytes
//	row        key (little endian, first word 0 = free) │ the owner's bytes
//	marks      one bit a slot: read since the clock hand passed
//
// It is extendible hashing (Fagin, Nievergelt, Pippenger, Strong, 1979): the
// directory is indexed by the hash's highest bits, and a segment that has grown
// to segmentMax is split in two by the next bit. Before that it is grown in
// steps of one page, so that free places are never many: 10 to 20 % of the
// memory at any number of rows, where doubling would leave up to 55 %.
//
// Within a segment rows stand in the order of their hashes (Amble and Knuth,
// "Ordered hash tables", 1974): the home of a row is where its hash, as a
// fraction, falls in the segment; rows that want the same place push each
// other to the right, around the end if need be. The order makes a miss as
// cheap as a hit, some five places at nine tenths full where unordered rows
// would need fifty, and growing or splitting a pass that only copies.
// Removal shifts back what had been pushed, so there are no tombstones.
//
// Hashes of one shard agree modulo the number of shards, which is why only
// their high bits serve here.
//
// One goroutine writes, with all readers kept out by its owner's lock; find,
// use and each may run side by side.
type index struct {
	words, stride int
	dir           []*segment // by the highest depth bits of the hash, one at least
	shift         uint8      // 64 - depth
	segments      int
	count         int    // rows
	memory        int    // of the segments
	slots         int    // of the segments
	hand          uint64 // the clock's, as a hash: it keeps its place while segments grow
	swept         bool   // the hand has moved: there are marks
}

type segment struct {
	buf   []byte
	marks marks
	slots int
	rows  uint32
	depth uint8 // leading hash bits in which all rows agree
}

const (
	// segmentMax is the largest buffer that is grown rather than split: small
	// enough that one growing (a copy of all) stays some tens of microseconds,
	// large enough that a segment's header and a step of one page are nothing.
	segmentMax = 128 << 10
	// segmentStep is the page of Go's allocator: larger objects are whole
	// pages, so steps of one waste nothing.
	segmentStep = 8 << 10
	// depthSlack bounds the directory to 2^depthSlack entries a segment or
	// little more. Only hashes made to agree in their high bits meet it; their
	// segment then grows past segmentMax.
	depthSlack = 2
	// spare bytes end every buffer, so that eight bytes may be loaded from
	// wherever a row's last byte is.
	spare = 8
	// window is how many places a search looks at together. Nine rows in ten
	// are that near to their homes.
	window = 8
	// segmentBytes is what a segment takes beside its buffer and marks: one
	// cache line.
	segmentBytes = 64
)

// smallSizes are the buffers below the ones in whole pages: size classes of
// Go's allocator, an eighth to a quarter apart. A shard has many tables and
// most stay small.
var smallSizes = [...]int{
	512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2304, 2688, 3072, 3456, 4096, 4864, 5376, 6144, 6912, 8192,
	9472, 10880, 12288, 14336, 16384, 18432, 21760, 24576, 28672, 32768,
}

// newIndex makes an empty index: rows of stride bytes, of which the first
// words (1 or 2) words are the key.
func newIndex(words, stride int) *index {
	x := &index{words: words, stride: stride, shift: 63}
	s := x.newSegment(0, 1)
	x.dir = []*segment{s, s}
	return x
}

// rows is the number of rows held.
func (x *index) rows() int { return x.count }

// bytes is all memory taken: rows, free places, marks, directory.
func (x *index) bytes() int { return x.memory + 8*cap(x.dir) }

// find1 is the row of a key of one word. Like every row given out it is valid
// until rows are next put in or taken out; behind its length are 8 bytes of
// capacity that may be read but belong to others. A key of 0 is never there.
func (x *index) find1(id uint64) (row []byte, ok bool) {
	return x.find([2]uint64{id})
}

// find is the row of a key; the second word of a one-word key is ignored.
func (x *index) find(key [2]uint64) (row []byte, ok bool) {
	s, at, ok := x.place(key)
	if !ok {
		return nil, false
	}
	return x.row(s, at), true
}

// use is find that also marks the row as used, for the clock.
func (x *index) use(key [2]uint64) (row []byte, ok bool) {
	s, at, ok := x.place(key)
	if !ok {
		return nil, false
	}
	x.mark(s, at)
	return x.row(s, at), true
}

// mark marks a row as used, once the hand has ever moved. Before, when all fits
// in memory, marks would cost a third of a read, for they lie apart from the
// rows; and they would all be set by the time the hand first asks.
func (x *index) mark(s *segment, at int) {
	if x.swept {
		s.marks.use(at)
	}
}

// insert makes a row, all zeros behind its key, and not marked as used. The
// key must not be there yet, nor its first word be 0.
func (x *index) insert(key [2]uint64) (row []byte) {
	s, at := x.insertAt(key)
	return x.row(s, at)
}

// remove takes a row out, and says whether it was there.
func (x *index) remove(key [2]uint64) bool {
	s, at, ok := x.place(key)
	if ok {
		x.removeAt(s, at)
		x.shrink(s)
	}
	return ok
}

// each visits all rows, which it may change but not insert or remove.
func (x *index) each(visit func(row []byte)) {
	x.eachSegment(func(s *segment) {
		for at := range s.slots {
			if x.word(s, at, 0) != 0 {
				visit(x.row(s, at))
			}
		}
	})
}

// sweep moves the clock hand on by so many slots from where it last stopped.
// At each slot it takes the mark away, and visits the row, if there is one,
// with what the mark was; visit says whether to take the row out, and is then
// asked about the one that moves into the place.
func (x *index) sweep(visit func(row []byte, used bool) (evict bool), slots int) (evicted int) {
	return x.sweepFor(visit, slots, x.count)
}

// sweepFor is sweep that stops where it has taken out so many rows. The few
// rows that then move back around the end of a segment it meets twice in a
// round.
func (x *index) sweepFor(visit func(row []byte, used bool) (evict bool), slots, most int) (evicted int) {
	x.swept = true
	for slots > 0 && evicted < most {
		s, at := x.home(x.hand)
		for at < s.slots && slots > 0 && evicted < most {
			used := s.marks.take(at)
			if x.word(s, at, 0) != 0 && visit(x.row(s, at), used) {
				x.removeAt(s, at)
				evicted++
				continue
			}
			at++
			slots--
		}
		x.hand = s.hash(x.hand, at)
		if at == s.slots {
			x.shrink(s)
		}
	}
	return evicted
}

// probe says how far rows stand from home, in slots: in the mean and at most.
func (x *index) probe() (mean float64, longest int) {
	sum := 0
	x.eachSegment(func(s *segment) {
		for at := range s.slots {
			if x.word(s, at, 0) != 0 {
				d := s.distance(at, x.hash(s, at))
				sum += d
				longest = max(longest, d)
			}
		}
	})
	return float64(sum) / float64(max(x.count, 1)), longest
}

func (x *index) eachSegment(visit func(*segment)) {
	for i := 0; i < len(x.dir); {
		s := x.dir[i]
		visit(s)
		i += 1 << (x.depth() - s.depth)
	}
}

func (x *index) depth() uint8 { return 64 - x.shift }

// segment is the segment of a hash. (The & spares a check of the shift.)
func (x *index) segment(h uint64) *segment { return x.dir[h>>(x.shift&63)] }

func (x *index) row(s *segment, at int) []byte {
	off := at * x.stride
	return s.buf[off : off+x.stride : off+x.stride+spare]
}

// word is one of a slot's key words.
func (x *index) word(s *segment, at, word int) uint64 {
	return binary.LittleEndian.Uint64(s.buf[at*x.stride+8*word:])
}

func (x *index) keyHash(key [2]uint64) uint64 {
	h := pipeline.Mix(key[0])
	if x.words == 2 {
		h = pipeline.Mix(h + key[1])
	}
	return h
}

func (x *index) hash(s *segment, at int) uint64 {
	h := pipeline.Mix(x.word(s, at, 0))
	if x.words == 2 {
		h = pipeline.Mix(h + x.word(s, at, 1))
	}
	return h
}

// home is where a hash falls.
func (x *index) home(h uint64) (s *segment, at int) {
	s = x.segment(h)
	return s, s.home(h)
}

// place is the slot of a key.
func (x *index) place(key [2]uint64) (s *segment, at int, ok bool) {
	if x.words == 1 {
		return x.place1(key[0])
	}
	h := x.keyHash(key)
	s, at = x.home(h)
	at, ok = x.walk(s, at, 0, h, key)
	return s, at, ok
}

func (x *index) place1(id uint64) (s *segment, at int, ok bool) {
	s, at = x.home(pipeline.Mix(id))
	if x.swept {
		s.marks.load(at) // on its way while the row is
	}
	at, ok = x.search(s, at, id)
	return s, at, ok
}

// search looks for a key of one word from its home on. The places where most
// rows are it compares without a branch on each: a wrong guess of where the row
// is would cost more, above all when the row has yet to come from memory.
func (x *index) search(s *segment, home int, id uint64) (at int, ok bool) {
	if home+window > s.slots {
		return x.walk(s, home, 0, pipeline.Mix(id), [2]uint64{id})
	}
	found := uint64(0)
	for n, off := 0, home*x.stride; n < window; n, off = n+1, off+x.stride {
		found |= equal(s.buf[off:off+8:off+8], id) << n
	}
	if found != 0 {
		return home + bits.TrailingZeros64(found), id != 0
	}
	return x.walk(s, home+window-1, window-1, pipeline.Mix(id), [2]uint64{id})
}

func equal(word []byte, id uint64) uint64 {
	if binary.LittleEndian.Uint64(word) == id {
		return 1
	}
	return 0
}

// walk looks for a key from a slot on, n places right of its home. Every
// window places it checks whether it has passed where the key would stand.
func (x *index) walk(s *segment, from, n int, h uint64, key [2]uint64) (at int, ok bool) {
	for at = from; ; n++ {
		switch x.word(s, at, 0) {
		case 0:
			return at, false
		case key[0]:
			if x.words == 1 || x.word(s, at, 1) == key[1] {
				return at, true
			}
		}
		if n%window == window-1 && x.past(s, at, n, h) {
			return at, false
		}
		at = s.next(at)
	}
}

// past says whether the row at a slot, n places right of hash h's home,
// stands behind where h belongs.
func (x *index) past(s *segment, at, n int, h uint64) bool {
	other := x.hash(s, at)
	d := s.distance(at, other)
	return d < n || d == n && other > h
}

func (x *index) insertAt(key [2]uint64) (s *segment, at int) {
	h := x.keyHash(key)
	for s = x.segment(h); int(s.rows) >= limit(s.slots); s = x.segment(h) {
		x.grow(s, h)
	}
	at = x.open(s, h)
	row := x.row(s, at)
	clear(row)
	for w := range x.words {
		binary.LittleEndian.PutUint64(row[8*w:], key[w])
	}
	x.count++
	return s, at
}

// open makes a gap where hash h belongs: what stands there and behind it, up
// to the next free slot, moves one to the right. A slot must be free.
func (x *index) open(s *segment, h uint64) (at int) {
	at = s.home(h)
	for n := 0; x.word(s, at, 0) != 0 && !x.past(s, at, n, h); n++ {
		at = s.next(at)
	}
	end := x.free(s, at)
	x.shiftRight(s, at, end)
	if x.swept {
		s.marks.take(at)
	}
	s.rows++
	return at
}

// free is the first free slot from a slot on.
func (x *index) free(s *segment, at int) int {
	buf, stride := s.buf, x.stride
	for {
		for off := at * stride; at < s.slots; at, off = at+1, off+stride {
			if binary.LittleEndian.Uint64(buf[off:]) == 0 {
				return at
			}
		}
		at = 0
	}
}

func (x *index) removeAt(s *segment, at int) {
	end := at // of the rows that had been pushed
	for next := s.next(end); x.word(s, next, 0) != 0 && s.distance(next, x.hash(s, next)) > 0; next = s.next(end) {
		end = next
	}
	x.shiftLeft(s, at, end)
	binary.LittleEndian.PutUint64(s.buf[end*x.stride:], 0)
	s.marks.take(end)
	s.rows--
	x.count--
}

// shiftRight moves the rows of slots [from, to) to (from, to].
func (x *index) shiftRight(s *segment, from, to int) {
	if from > to { // around the end
		x.shiftRight(s, 0, to)
		x.moveRow(s, 0, s.slots-1)
		x.shiftRight(s, from, s.slots-1)
		return
	}
	copy(s.buf[(from+1)*x.stride:(to+1)*x.stride], s.buf[from*x.stride:])
	if x.swept {
		s.marks.shiftRight(from, to)
	}
}

// shiftLeft moves the rows of slots (from, to] to [from, to).
func (x *index) shiftLeft(s *segment, from, to int) {
	if from > to { // around the end
		x.shiftLeft(s, from, s.slots-1)
		x.moveRow(s, s.slots-1, 0)
		x.shiftLeft(s, 0, to)
		return
	}
	copy(s.buf[from*x.stride:to*x.stride], s.buf[(from+1)*x.stride:])
	s.marks.shiftLeft(from, to)
}

func (x *index) moveRow(s *segment, to, from int) {
	copy(x.row(s, to), x.row(s, from))
	s.marks.put(to, s.marks.take(from))
}

// slotsIn is the number of slots in a buffer of so many bytes.
func (x *index) slotsIn(size int) int { return (size - spare) / x.stride }

// limit is the number of rows that so many slots are filled with: nine tenths,
// and one is always free, at which searches end.
func limit(slots int) int { return min(slots*9/10, slots-1) }

// size is the smallest buffer for so many rows.
func (x *index) size(rows int) int {
	for _, size := range smallSizes {
		if limit(x.slotsIn(size)) >= rows {
			return size
		}
	}
	size := (rows*x.stride/segmentStep + 1) * segmentStep
	for limit(x.slotsIn(size)) < rows {
		size += segmentStep
	}
	return size
}

// sizeAfter is the next step of a buffer that is full.
func sizeAfter(size int) int {
	if size < smallSizes[len(smallSizes)-1] {
		at, _ := slices.BinarySearch(smallSizes[:], size+1)
		return smallSizes[at]
	}
	return size + max(segmentStep, size/segmentMax*(segmentMax/8)) // an eighth, once it cannot be split
}

// newSegment makes an empty segment for so many rows.
func (x *index) newSegment(depth uint8, rows int) *segment {
	s := &segment{depth: depth}
	x.allocate(s, x.size(rows))
	x.segments++
	x.memory += segmentBytes
	return s
}

// allocate gives a segment a new buffer, without its rows.
func (x *index) allocate(s *segment, size int) {
	x.memory -= len(s.buf) + 4*cap(s.marks)
	x.slots -= s.slots
	s.buf = make([]byte, size)
	s.slots = x.slotsIn(size)
	s.marks = newMarks(s.slots)
	s.rows = 0
	x.memory += len(s.buf) + 4*cap(s.marks)
	x.slots += s.slots
}

// grow makes room in the segment of a hash.
func (x *index) grow(s *segment, h uint64) {
	size := sizeAfter(len(s.buf))
	if size > segmentMax && x.deepen(s) {
		x.split(s, h)
		return
	}
	x.resize(s, size)
}

// shrink gives back the memory of a segment that is less than seven tenths
// full: eviction is there for the memory, and is to see it soon.
func (x *index) shrink(s *segment) {
	if 10*int(s.rows) >= 7*s.slots {
		return
	}
	if size := x.size(int(s.rows+s.rows/8) + 1); size < len(s.buf) {
		x.resize(s, size)
	}
}

func (x *index) resize(s *segment, size int) {
	old := *s
	x.allocate(s, size)
	to := filler{segment: s}
	x.pour(&old, &to, &to)
}

// deepen makes sure that the directory tells a segment's halves apart, and
// says whether it may.
func (x *index) deepen(s *segment) bool {
	if s.depth < x.depth() {
		return true
	}
	if int(x.depth()) >= bits.Len(uint(x.segments))+depthSlack {
		return false
	}
	dir := make([]*segment, 2*len(x.dir))
	for i := range dir {
		dir[i] = x.dir[i/2]
	}
	x.dir = dir
	x.shift--
	return true
}

// split puts two segments into the place of the one of a hash.
func (x *index) split(s *segment, h uint64) {
	high := 0
	for at := range s.slots {
		if x.word(s, at, 0) != 0 {
			high += int(x.hash(s, at) << (s.depth & 63) >> 63)
		}
	}
	low, up := x.newSegment(s.depth+1, int(s.rows)-high), x.newSegment(s.depth+1, high)
	x.pour(s, &filler{segment: low}, &filler{segment: up})
	x.memory -= segmentBytes + len(s.buf) + 4*cap(s.marks)
	x.slots -= s.slots
	x.segments--

	half := 1 << (x.depth() - s.depth - 1)
	from := int(h >> x.shift &^ uint64(2*half-1))
	for i := range half {
		x.dir[from+i], x.dir[from+half+i] = low, up
	}
}

// pour copies a segment's rows into two empty ones by the next bit of their
// hashes, or into one given twice. A row is moved ten to fifteen times in its life,
// so this loop is most of what a new row costs.
func (x *index) pour(s *segment, low, high *filler) {
	stride, start := x.stride, x.free(s, 0)
	at, off := start, start*stride
	for range s.slots { // in the order of hashes, beginning behind a free slot
		if at, off = at+1, off+stride; at == s.slots {
			at, off = 0, 0
		}
		row := s.buf[off : off+stride]
		key := binary.LittleEndian.Uint64(row)
		if key == 0 {
			continue
		}
		h, to := pipeline.Mix(key), low
		if x.words == 2 {
			h = x.hash(s, at)
		}
		if h<<(s.depth&63)>>63 == 1 {
			to = high
		}
		slot, ok := to.slot(h)
		if !ok {
			slot = x.open(to.segment, h)
		}
		copyRow(to.buf[slot*stride:][:stride], row)
		if x.swept {
			to.marks.put(slot, s.marks.has(at))
		}
	}
}

// copyRow copies a row, which has at least 8 bytes, in words of which the last may
// overlap the one before: rows are too short for a call of memmove.
func copyRow(to, from []byte) {
	last := len(from) - 8
	for at := 0; at < last; at += 8 {
		binary.LittleEndian.PutUint64(to[at:], binary.LittleEndian.Uint64(from[at:]))
	}
	binary.LittleEndian.PutUint64(to[last:], binary.LittleEndian.Uint64(from[last:]))
}

// filler fills an empty segment in the order of hashes, beginning with any.
type filler struct {
	*segment
	first    uint64 // hash of the first row
	from, at int    // its home; where the next row may stand, counted on past the end
}

// slot is where the next row stands; ok is false when the rows have come
// around to where the first stands, so that others must move.
func (f *filler) slot(h uint64) (slot int, ok bool) {
	home := f.home(h)
	switch {
	case f.rows == 0:
		f.first, f.from, f.at = h, home, home
	case h < f.first:
		home += f.slots
	}
	slot = max(home, f.at)
	f.at = slot + 1
	if slot >= f.from+f.slots {
		return 0, false
	}
	if slot >= f.slots {
		slot -= f.slots
	}
	f.rows++
	return slot, true
}

// home is the slot in which a hash falls.
func (s *segment) home(h uint64) int {
	at, _ := bits.Mul64(h<<(s.depth&63), uint64(s.slots))
	return int(at)
}

// hash is the least hash of this segment whose home is a slot, the inverse of
// home; of the slot behind the last, the least hash of the next segment.
// within is any hash of this segment.
func (s *segment) hash(within uint64, at int) uint64 {
	start := within >> (64 - s.depth)
	if at == s.slots {
		return (start + 1) << (64 - s.depth)
	}
	fraction, _ := bits.Div64(uint64(at), uint64(s.slots-1), uint64(s.slots))
	h := fraction >> s.depth
	if h<<s.depth != fraction {
		h++
	}
	return start<<(64-s.depth) + h
}

// distance is how far right of its home a row with hash h stands.
func (s *segment) distance(at int, h uint64) int {
	d := at - s.home(h)
	if d < 0 {
		d += s.slots
	}
	return d
}

func (s *segment) next(at int) int {
	if at++; at < s.slots {
		return at
	}
	return 0
}

// marks is one bit a slot: the row was used since the clock hand passed.
// Readers set them side by side, all else is the writer's.
type marks []uint32

// newMarks has the capacity the allocator really gives.
func newMarks(slots int) marks {
	n := (slots + 31) / 32
	return slices.Grow(marks(nil), n)[:n]
}

// use sets a mark. Most are set already, and a load keeps the cache line
// shared among readers where a write would not.
func (m marks) use(at int) {
	w, bit := &m[at/32], uint32(1)<<(at%32)
	if atomic.LoadUint32(w)&bit == 0 {
		atomic.OrUint32(w, bit)
	}
}

func (m marks) load(at int) { _ = atomic.LoadUint32(&m[at/32]) }

func (m marks) has(at int) bool { return m[at/32]>>(at%32)&1 == 1 }

// take clears a mark and says whether it was set.
func (m marks) take(at int) bool {
	had := m.has(at)
	m[at/32] &^= 1 << (at % 32)
	return had
}

func (m marks) put(at int, used bool) {
	m.take(at)
	if used {
		m[at/32] |= 1 << (at % 32)
	}
}

// shiftRight moves the marks of slots [from, to) to (from, to].
func (m marks) shiftRight(from, to int) {
	for w := to / 32; w >= from/32; w-- {
		moved := m[w] << 1
		if w > from/32 {
			moved |= m[w-1] >> 31
		}
		m.blend(w, from, to, moved)
	}
}

// shiftLeft moves the marks of slots (from, to] to [from, to).
func (m marks) shiftLeft(from, to int) {
	for w := from / 32; w <= to/32; w++ {
		moved := m[w] >> 1
		if w < to/32 {
			moved |= m[w+1] << 31
		}
		m.blend(w, from, to, moved)
	}
}

// blend replaces those marks of a word whose slots are in [from, to].
func (m marks) blend(w, from, to int, moved uint32) {
	mask := ^uint32(0)
	if w == from/32 {
		mask <<= from % 32
	}
	if w == to/32 {
		mask &= ^uint32(0) >> (31 - to%32)
	}
	m[w] = m[w]&^mask | moved&mask
}
