package hot

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/tidemark-io/tidemark/pipeline"
)

// segment is a part of an index: the rows whose hashes agree in their first
// depth bits.
//
//	hash   depth bits │ skip bits │ tag         │ alike bits
//	told by  segment    place       the row       the index
//
//	row    the owner's bits │ tag │ 1 taken, 0 free        (the tag ends the row)
//
// A row's tag is its hash without the bits that are known from elsewhere. The bits
// after the first depth ones are a fraction, and the row stands where that
// falls in the segment (home), or up to reach slots to the right. Fractions
// that differ in their first skip bits only are slots>>skip slots apart, which
// is more than reach. So of all fractions with a row's tag its own is the last
// one before the end of its slot; that holds around the segment's end as well,
// modulo 1. To find it takes one multiplication (hash).
//
// A row may have to stand further from home than reach: by an accident in one
// segment of hundreds, or because ids were chosen to fall in one place. Then
// the segment is copied into one with wider rows, where reach is larger, or
// skip is 0 and there is no bound.
type segment struct {
	buf    []byte
	slots  int
	stride int    // bytes a row takes
	reach  int    // the longest way from home; slots when there is no bound
	alike  uint64 // the alike bits, as they would follow the tag
	drop   uint8  // depth + skip
	shift  uint8  // bits in front of the tag in a row's last 8 bytes
	skip   uint8
	depth  uint8

	// A search that succeeds needs nothing from here on, but for the marks.
	marks marks
	first uint64 // the least hash
	width uint64 // of a slot, as a fraction of 2^64
	rows  int
}

// keyWords are a key: its first words, as many as the index has.
type keyWords [3]uint64

// layout is what all segments of an index have in common.
type layout struct {
	words  int    // of the key
	owned  int    // bits in front of the tag: the key's other words, the owner's
	least  int    // bytes a row takes at least
	sample uint64 // a hash
	alike  int    // low bits in which all hashes agree with it
	sure   bool   // enough rows were there that it is no accident
}

const (
	// reachLeast is the least reach of a new segment, unless there is no
	// bound. When it is full to the limit, one row in thousands needs more.
	reachLeast = 48
	// alikeMost is how many low bits are taken out at most: what the largest
	// number of shards (pipeline.ShardsMax) makes alike. alikeRows is how many
	// rows must be there before any are, so that they are not alike by accident.
	alikeMost, alikeRows = 12, 32
	// spare bytes end every buffer, so that eight bytes may be loaded from
	// wherever a row's last byte is.
	spare = 8
	// segmentBytes is what a segment takes beside its buffer and marks.
	segmentBytes = 112
)

func newLayout(words, bits, least int) layout {
	owned := 64*(words-1) + bits
	return layout{words: words, owned: owned, least: max(least, 8)}
}

// lay says how rows lie in a segment with a buffer of size bytes: in as few
// bytes as will do, and least at least.
func (l *layout) lay(s *segment, size, least int) {
	alike := 0
	if l.sure {
		alike = min(l.alike, alikeMost)
	}
	for stride := max(least, l.least, (l.owned+9)/8); ; stride++ {
		tag := min(8*stride-l.owned, 64) - 1
		skip := max(0, 64-int(s.depth)-alike-tag)
		slots := (size - spare) / stride
		reach := slots>>skip - 3
		if skip == 0 {
			reach = slots
		}
		if skip == 0 || reach >= reachLeast {
			s.slots, s.stride, s.reach = slots, stride, reach
			s.skip, s.drop, s.shift = uint8(skip), s.depth+uint8(skip), uint8(63-tag)
			s.width = math.MaxUint64 / uint64(max(slots, 1))
			s.alike = l.sample << s.drop &^ s.tagMask()
			return
		}
	}
}

func (l *layout) keyHash(key keyWords) uint64 {
	h := pipeline.Mix(key[0])
	for _, word := range key[1:l.words] {
		h = pipeline.Mix(h + word)
	}
	return h
}

// id is the first word of a row's key.
func (l *layout) id(s *segment, at int) uint64 {
	h := unmix(s.hash(at))
	for word := l.words - 2; word >= 0; word-- {
		h = unmix(h - s.word(at, word))
	}
	return h
}

// unmix is the id whose pipeline.Mix is m.
func unmix(m uint64) uint64 {
	m = (m ^ m>>31 ^ m>>62) * 0x319642b2d24d8ec3 // times Mix's factor this is 1
	m = (m ^ m>>27 ^ m>>54) * 0x96de1b173f119089
	return (m ^ m>>30 ^ m>>60) - 0x9e3779b97f4a7c15
}

// row is the bytes of a slot, with 8 more as its capacity.
func (s *segment) row(at int) []byte {
	off := at * s.stride
	return s.buf[off : off+s.stride : off+s.stride+spare]
}

// word is one of the words that a row begins with.
func (s *segment) word(at, word int) uint64 {
	return binary.LittleEndian.Uint64(s.buf[at*s.stride+8*word:])
}

// The field is the tag with the bit behind it, the high bits of a row's last
// word.
func (s *segment) fieldMask() uint64  { return math.MaxUint64 << (s.shift & 63) }
func (s *segment) tagMask() uint64    { return s.fieldMask() << 1 }
func (s *segment) last(at int) []byte { return s.buf[(at+1)*s.stride-8:] }
func (s *segment) fieldOf(at int) uint64 {
	return binary.LittleEndian.Uint64(s.last(at)) & s.fieldMask()
}
func (s *segment) taken(at int) bool { return s.fieldOf(at)>>(s.shift&63)&1 == 1 }
func (s *segment) setField(at int, field uint64) {
	b := s.last(at)
	binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)&^s.fieldMask()|field)
}

// field is the field of a row with hash h, 0 when none of this segment has it.
func (s *segment) field(h uint64) uint64 {
	h <<= s.drop & 63
	tag := s.tagMask()
	if (h^s.alike)&^tag != 0 {
		return 0
	}
	return h&tag | 1<<(s.shift&63)
}

// hash is the hash of the row at a slot.
func (s *segment) hash(at int) uint64 {
	return s.hashOf(at, binary.LittleEndian.Uint64(s.last(at)))
}

// hashOf is the hash of the row at a slot, whose last word is given.
func (s *segment) hashOf(at int, last uint64) uint64 {
	// As home rounds, the end of the slot is not before here, and not a whole
	// slot after it: that and the rest of a slot at home are the 3 in lay.
	end := uint64(at+2) * s.width
	low := (last&s.tagMask() | s.alike) >> (s.skip & 63)
	fraction := end - (end-low)&(math.MaxUint64>>(s.skip&63))
	return s.first | fraction>>(s.depth&63)
}

// home is the slot in which a hash falls.
func (s *segment) home(h uint64) int {
	at, _ := bits.Mul64(h<<(s.depth&63), uint64(s.slots))
	return int(at)
}

// start is the least hash of this segment whose home is a slot, the inverse of
// home; of the slot behind the last, the least hash of the next segment.
func (s *segment) start(at int) uint64 {
	if at == s.slots {
		return s.first + 1<<(64-s.depth)
	}
	fraction, _ := bits.Div64(uint64(at), uint64(s.slots-1), uint64(s.slots))
	h := fraction >> s.depth
	if h<<s.depth != fraction {
		h++
	}
	return s.first + h
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

// past says whether the row at a slot, n places right of hash h's home,
// stands behind where h belongs.
func (s *segment) past(at, n int, h uint64) bool {
	return s.pastOf(at, binary.LittleEndian.Uint64(s.last(at)), n, h)
}

// pastOf is past of the row whose last word is given.
func (s *segment) pastOf(at int, last uint64, n int, h uint64) bool {
	other := s.hashOf(at, last)
	d := s.distance(at, other)
	return d < n || d == n && other > h
}

// free is the first free slot from one on.
func (s *segment) free(at int) int {
	buf, stride, taken := s.buf, s.stride, uint64(1)<<(s.shift&63)
	for {
		off := (at+1)*stride - 8
		for ; at+4 <= s.slots; at, off = at+4, off+4*stride { // most are taken
			four := binary.LittleEndian.Uint64(buf[off:]) & binary.LittleEndian.Uint64(buf[off+stride:]) &
				binary.LittleEndian.Uint64(buf[off+2*stride:]) & binary.LittleEndian.Uint64(buf[off+3*stride:])
			if four&taken == 0 {
				break
			}
		}
		for ; at < s.slots; at, off = at+1, off+stride {
			if binary.LittleEndian.Uint64(buf[off:])&taken == 0 {
				return at
			}
		}
		at = 0
	}
}

// mayShift says whether the rows of slots [from, to) may all move one to the
// right. From one slot to the next the distance from home grows by one at most,
// so few are looked at.
func (s *segment) mayShift(from, to int) bool {
	if s.skip == 0 {
		return true
	}
	left := to - from
	if left < 0 {
		left += s.slots
	}
	for at := from; left > 0; {
		room := s.reach - s.distance(at, s.hash(at))
		if room <= 0 {
			return false
		}
		left -= room
		if at += room; at >= s.slots {
			at -= s.slots
		}
	}
	return true
}

func (s *segment) moveRow(to, from int) {
	copy(s.row(to), s.row(from))
	s.marks.put(to, s.marks.take(from))
}
