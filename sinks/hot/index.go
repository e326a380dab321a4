package hot

import (
	"encoding/binary"
	"math/bits"

	"github.com/tidemark-io/tidemark/pipeline"
)

// index finds rows by a key of one to three words. The rows lie in a few segments
// without pointers:
//
//	hash       depth bits │ …
//	directory  └─► *segment, *segment, *segment, …
//	segment    row │ row │ free │ row │ row │ … │ 8 spare bytes
//	row        the key's other words, if any │ the owner's bits │ hash, in part │ 1 taken, 0 free
//	marks      one bit a slot: read since the clock hand passed
//
// It is extendible hashing (Fagin, Nievergelt, Pippenger, Strong, 1979): the
// directory is indexed by the hash's highest bits, and a segment that has grown
// to segmentMax is split in two by the next bit. Before that it is grown in
// steps of one page, so that free places are never many: some 10 % of the
// memory at any number of rows, where doubling would leave up to 55 %. A row is then
// moved ten to fifteen times in its life. In a loose index, which doubles them, it is two
// or three times; fit takes away what is free too much.
//
// Within a segment rows stand in the order of their hashes (Amble and Knuth,
// "Ordered hash tables", 1974): the home of a row is where its hash, as a
// fraction, falls in the segment; rows that want the same place push each
// other to the right, around the end if need be. The order makes a miss as
// cheap as a hit, some five places at nine tenths full where unordered rows
// would need fifty, and growing or splitting a pass that only copies.
// Removal shifts back what had been pushed, so there are no tombstones.
//
// The hash is a bijection of the key (pipeline.Mix), so a row holds its hash
// instead of the key, and of the hash only what its place does not tell
// (Cleary, "Compact hash tables using bidirectional linear probing", 1984).
// segment.go says how that is read.
//
// Hashes of one shard agree modulo the number of shards, which is why only
// their high bits choose the place. The low bits in which all agree are kept
// once for the whole index.
//
// One goroutine writes, with all readers kept out by its owner's lock; find,
// use and each may run side by side.
type index struct {
	layout
	dir      []*segment // by the highest depth bits of the hash, two at least
	shift    uint8      // 64 - depth
	segments int
	count    int    // rows
	memory   int    // of the segments
	slots    int    // of the segments
	hand     uint64 // the clock's, as a hash: it keeps its place while segments grow
	swept    bool   // the hand has moved: there are marks
	loose    bool   // segments are doubled, and do not grow in small steps
}

// window is how many places a search looks at together. Nine rows in ten are
// that near to their homes.
const window = 8

// newIndex makes an empty index: a key of 1 to 3 words, and so many bits for
// the owner. A row takes least bytes or more.
func newIndex(words, bits, least int) *index {
	x := &index{layout: newLayout(words, bits, least), shift: 63}
	x.dir = []*segment{x.newSegment(0, 1, 1, 0), x.newSegment(1<<63, 1, 1, 0)}
	return x
}

// rows is the number of rows held.
func (x *index) rows() int { return x.count }

// bytes is all memory taken: rows, free places, marks, directory.
func (x *index) bytes() int { return x.memory + 8*cap(x.dir) }

// find1 is the row of a key of one word. Like every row given out it is valid
// until rows are next put in or taken out. Behind the owner's bits are others
// that may be read, but not changed: up to 8 bytes, as the row's capacity says.
func (x *index) find1(id uint64) (row []byte, ok bool) {
	return x.find(keyWords{id})
}

// find is the row of a key; words that the index's keys do not have are ignored.
func (x *index) find(key keyWords) (row []byte, ok bool) {
	s, at, ok := x.place(key)
	if !ok {
		return nil, false
	}
	return s.row(at), true
}

// use is find that also marks the row as used, for the clock.
func (x *index) use(key keyWords) (row []byte, ok bool) {
	s, at, ok := x.place(key)
	if !ok {
		return nil, false
	}
	x.mark(s, at)
	return s.row(at), true
}

// touch brings the place of a hash, with a row there or not, nearer to the processor:
// several calls before as many searches wait for the memory together. What it returns
// means nothing, but must be used, or the compiler leaves the call out.
func (x *index) touch(h uint64) uint64 {
	s, home := x.home(h)
	at := home * s.stride
	return uint64(s.buf[at]) + uint64(s.buf[min(at+cacheLine, len(s.buf)-1)]) + uint64(s.buf[min(at+2*cacheLine, len(s.buf)-1)])
}

// mark marks a row as used, once the hand has ever moved. Before, when all fits
// in memory, marks would cost a third of a read, for they lie apart from the
// rows; and they would all be set by the time the hand first asks.
func (x *index) mark(s *segment, at int) {
	if x.swept {
		s.marks.use(at)
	}
}

// insert makes a row, the owner's bits all 0, and not marked as used. The key
// must not be there yet, nor its first word be 0.
func (x *index) insert(key keyWords) (row []byte) {
	s, at := x.insertAt(key)
	return s.row(at)
}

// remove takes a row out, and says whether it was there.
func (x *index) remove(key keyWords) bool {
	s, at, ok := x.place(key)
	if ok {
		x.removeAt(s, at)
		x.shrink(s)
	}
	return ok
}

// each visits all rows, which it may change but not insert or remove.
func (x *index) each(visit func(s *segment, at int)) {
	x.eachSegment(func(s *segment) {
		for at := range s.slots {
			if s.taken(at) {
				visit(s, at)
			}
		}
	})
}

// sweep moves the clock hand on by so many slots from where it last stopped.
// At each slot it takes the mark away, and visits the row, if there is one,
// with what the mark was; visit says whether to take the row out, and is then
// asked about the one that moves into the place.
func (x *index) sweep(visit func(s *segment, at int, used bool) (evict bool), slots int) (evicted int) {
	return x.sweepFor(visit, slots, x.count)
}

// sweepFor is sweep that stops where it has taken out so many rows. The few
// rows that then move back around the end of a segment it meets twice in a
// round.
func (x *index) sweepFor(visit func(s *segment, at int, used bool) (evict bool), slots, most int) (evicted int) {
	x.swept = true
	for slots > 0 && evicted < most {
		s, at := x.home(x.hand)
		for at < s.slots && slots > 0 && evicted < most {
			used := s.marks.take(at)
			if s.taken(at) && visit(s, at, used) {
				x.removeAt(s, at)
				evicted++
				continue
			}
			at++
			slots--
		}
		x.hand = s.start(at)
		if at == s.slots {
			x.shrink(s)
		}
	}
	return evicted
}

// probe says how far rows stand from home, in slots: in the mean and at most.
func (x *index) probe() (mean float64, longest int) {
	sum := 0
	x.each(func(s *segment, at int) {
		d := s.distance(at, s.hash(at))
		sum += d
		longest = max(longest, d)
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

// home is where a hash falls.
func (x *index) home(h uint64) (s *segment, at int) {
	s = x.segment(h)
	return s, s.home(h)
}

// place is the slot of a key.
func (x *index) place(key keyWords) (s *segment, at int, ok bool) {
	if x.words == 1 {
		return x.place1(key[0])
	}
	h := x.keyHash(key)
	s, at = x.home(h)
	at, ok = x.walk(s, at, 0, h, &key)
	return s, at, ok
}

func (x *index) place1(id uint64) (s *segment, at int, ok bool) {
	h := pipeline.Mix(id)
	s, at = x.home(h)
	if x.swept {
		s.marks.load(at) // on its way while the row is
	}
	at, ok = x.search(s, at, h)
	return s, at, ok
}

// search looks for a key of one word from its home on. The places where most
// rows are it compares without a branch on each: a wrong guess of where the row
// is would cost more, above all when the row has yet to come from memory.
func (x *index) search(s *segment, home int, h uint64) (at int, ok bool) {
	want := s.field(h)
	if home+window > s.slots || want == 0 {
		return x.walk(s, home, 0, h, nil)
	}
	found, mask := uint64(0), s.fieldMask()
	buf, stride := s.buf, s.stride
	for n, off := 0, (home+1)*stride-8; n < window; n, off = n+1, off+stride {
		found = 2*found + equal(binary.LittleEndian.Uint64(buf[off:off+8:off+8])&mask, want)
	}
	if found != 0 {
		return home + window - bits.Len64(found), true
	}
	return x.walk(s, home+window-1, window-1, h, nil)
}

func equal(a, b uint64) uint64 {
	if a == b {
		return 1
	}
	return 0
}

// walk looks for a key, by its hash and its other words, from a slot on, n places
// right of its home. Every window places it checks whether it has passed where
// the key would stand.
func (x *index) walk(s *segment, from, n int, h uint64, key *keyWords) (at int, ok bool) {
	want := s.field(h)
	if want == 0 {
		return 0, false
	}
	for at = from; n <= s.reach; n++ {
		switch s.fieldOf(at) {
		case 0:
			return at, false
		case want:
			if x.words == 1 || s.word(at, 0) == key[1] && (x.words == 2 || s.word(at, 1) == key[2]) {
				return at, true
			}
		}
		if n%window == window-1 && s.past(at, n, h) {
			return at, false
		}
		at = s.next(at)
	}
	return at, false
}

func (x *index) insertAt(key keyWords) (s *segment, at int) {
	h := x.keyHash(key)
	x.learn(h)
	s = x.segment(h)
	for ok := false; !ok; s = x.segment(h) {
		switch {
		case s.rows >= limit(s.slots):
			x.grow(s, h)
		case s.field(h) == 0: // the first one that differs in its low bits
			x.resize(s, len(s.buf), 0)
		default:
			if at, ok = x.open(s, h); !ok {
				x.resize(s, len(s.buf), s.stride+1)
			}
		}
	}
	row := s.row(at)
	clear(row)
	s.setField(at, s.field(h))
	for i, word := range key[1:x.words] {
		setRowWord(row, i, word)
	}
	x.count++
	return s, at
}

// learn keeps the low bits in which all hashes agree.
func (x *index) learn(h uint64) {
	if x.count == 0 {
		x.sample, x.alike = h, 64
	}
	x.alike = min(x.alike, bits.TrailingZeros64(h^x.sample))
	x.sure = x.count >= alikeRows
}

// open makes a gap where hash h belongs: what stands there and behind it, up
// to the next free slot, moves one to the right. A slot must be free. ok is
// false when a row would stand too far from its home.
func (x *index) open(s *segment, h uint64) (at int, ok bool) {
	at = s.home(h)
	n := 0
	for taken := uint64(1) << (s.shift & 63); n <= s.reach; n++ {
		last := binary.LittleEndian.Uint64(s.last(at))
		if last&taken == 0 || s.pastOf(at, last, n, h) {
			break
		}
		at = s.next(at)
	}
	if n > s.reach {
		return 0, false
	}
	end := s.free(at)
	if !s.mayShift(at, end) {
		return 0, false
	}
	x.shiftRight(s, at, end)
	if x.swept {
		s.marks.take(at)
	}
	s.rows++
	return at, true
}

func (x *index) removeAt(s *segment, at int) {
	end := at // of the rows that had been pushed
	for next := s.next(end); s.taken(next) && s.distance(next, s.hash(next)) > 0; next = s.next(end) {
		end = next
	}
	x.shiftLeft(s, at, end)
	s.setField(end, 0)
	s.marks.take(end)
	s.rows--
	x.count--
}

// shiftRight moves the rows of slots [from, to) to (from, to].
func (x *index) shiftRight(s *segment, from, to int) {
	if from > to { // around the end
		x.shiftRight(s, 0, to)
		s.moveRow(0, s.slots-1)
		x.shiftRight(s, from, s.slots-1)
		return
	}
	copy(s.buf[(from+1)*s.stride:(to+1)*s.stride], s.buf[from*s.stride:])
	if x.swept {
		s.marks.shiftRight(from, to)
	}
}

// shiftLeft moves the rows of slots (from, to] to [from, to).
func (x *index) shiftLeft(s *segment, from, to int) {
	if from > to { // around the end
		x.shiftLeft(s, from, s.slots-1)
		s.moveRow(s.slots-1, 0)
		x.shiftLeft(s, 0, to)
		return
	}
	copy(s.buf[from*s.stride:to*s.stride], s.buf[(from+1)*s.stride:])
	if x.swept {
		s.marks.shiftLeft(from, to)
	}
}
