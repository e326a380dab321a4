package hot

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

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
)

// smallSizes are the buffers below the ones in whole pages: size classes of
// Go's allocator, an eighth to a quarter apart. A shard has many tables and
// most stay small.
var smallSizes = [...]int{
	256, 384, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2304, 2688, 3072, 3456,
	4096, 4864, 5376, 6144, 6912, 8192, 9472, 10880, 12288, 14336, 16384, 18432, 20480, 21760, 24576, 28672, 32768,
}

// limit is the number of rows that so many slots are filled with: all but one in
// thirteen, and one is always free, at which searches end.
func limit(slots int) int { return min(slots*12/13, slots-1) }

// holds is the number of rows that a buffer of size bytes is filled with.
func (x *index) holds(depth uint8, size, least int) int {
	s := segment{depth: depth}
	x.lay(&s, size, least)
	return limit(s.slots)
}

// size is the smallest buffer for so many rows.
func (x *index) size(depth uint8, rows, least int) int {
	for _, size := range smallSizes {
		if x.holds(depth, size, least) >= rows {
			return size
		}
	}
	size := (rows*max(x.least, x.owned/8)/segmentStep + 1) * segmentStep
	for x.holds(depth, size, least) < rows {
		size += segmentStep
	}
	return size
}

// sizeAfter is the next step of a buffer that is full.
func (x *index) sizeAfter(size int) int {
	if x.loose && size < segmentMax {
		return min(sizeOf(2*size), segmentMax)
	}
	if size < smallSizes[len(smallSizes)-1] {
		at, _ := slices.BinarySearch(smallSizes[:], size+1)
		return smallSizes[at]
	}
	return size + max(segmentStep, size/segmentMax*(segmentMax/8)) // an eighth, once it cannot be split
}

// sizeOf is the smallest buffer of so many bytes that the allocator gives.
func sizeOf(bytes int) int {
	if bytes <= smallSizes[len(smallSizes)-1] {
		at, _ := slices.BinarySearch(smallSizes[:], bytes)
		return smallSizes[at]
	}
	return (bytes + segmentStep - 1) / segmentStep * segmentStep
}

// newSegment makes an empty segment for so many rows.
func (x *index) newSegment(first uint64, depth uint8, rows, least int) *segment {
	s := &segment{first: first, depth: depth}
	if x.loose {
		rows += rows / 4
	}
	x.allocate(s, x.size(depth, rows, least), least)
	x.segments++
	x.memory += segmentBytes
	return s
}

// discard forgets a segment.
func (x *index) discard(s *segment) {
	x.memory -= segmentBytes + len(s.buf) + 4*cap(s.marks)
	x.slots -= s.slots
	x.segments--
}

// allocate gives a segment a new buffer, without its rows.
func (x *index) allocate(s *segment, size, least int) {
	x.memory -= len(s.buf) + 4*cap(s.marks)
	x.slots -= s.slots
	x.lay(s, size, least)
	s.buf = make([]byte, size)
	s.marks = newMarks(s.slots)
	s.rows = 0
	x.memory += len(s.buf) + 4*cap(s.marks)
	x.slots += s.slots
}

// grow makes room in the segment of a hash.
func (x *index) grow(s *segment, h uint64) {
	size := x.sizeAfter(len(s.buf))
	if size > segmentMax && x.deepen(s) {
		x.split(s, h)
		return
	}
	x.resize(s, size, 0)
}

// fit makes so many segments from a hash on as small as if they had grown in small
// steps. to is the hash of the next one, 0 when all are done.
func (x *index) fit(from uint64, segments int) (to uint64, done bool) {
	at := int(from >> x.shift)
	for ; at < len(x.dir) && segments > 0; segments-- {
		s := x.dir[at]
		if size := x.size(s.depth, s.rows+1, 0); size < len(s.buf) {
			x.resize(s, size, 0)
		}
		at += 1 << (x.depth() - s.depth)
	}
	return uint64(at) << x.shift, at >= len(x.dir)
}

// shrink gives back the memory of a segment that is less than seven tenths
// full: eviction is there for the memory, and is to see it soon.
func (x *index) shrink(s *segment) {
	if 10*s.rows >= 7*s.slots || len(s.buf) == smallSizes[0] {
		return
	}
	if size := x.size(s.depth, s.rows+s.rows/8+1, 0); size < len(s.buf) {
		x.resize(s, size, 0)
	}
}

// resize gives a segment another buffer, of size bytes or what it needs for
// one row more. Rows take least bytes or more.
func (x *index) resize(s *segment, size, least int) {
	old := *s
	for {
		if x.holds(s.depth, size, least) <= old.rows {
			size = x.size(s.depth, old.rows+1, least)
		}
		x.allocate(s, size, least)
		to := filler{index: x, segment: s}
		if x.pour(&old, &to, &to) {
			return
		}
		least = s.stride + 1
	}
}

// deepen makes sure that the directory distinguishes a segment's halves, and says
// whether it may.
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
		if s.taken(at) {
			high += int(s.hash(at) << s.depth >> 63)
		}
	}
	var low, up *segment
	for least := 0; ; least = max(low.stride, up.stride) + 1 {
		low = x.newSegment(s.first, s.depth+1, s.rows-high, least)
		up = x.newSegment(s.first+1<<(63-s.depth), s.depth+1, high, least)
		if x.pour(s, &filler{index: x, segment: low}, &filler{index: x, segment: up}) {
			break
		}
		x.discard(low)
		x.discard(up)
	}
	x.discard(s)

	half := 1 << (x.depth() - s.depth - 1)
	from := int(h >> x.shift &^ uint64(2*half-1))
	for i := range half {
		x.dir[from+i], x.dir[from+half+i] = low, up
	}
}

// pour copies a segment's rows into two empty ones by the next bit of their
// hashes, or into one given twice. ok is false when a row would stand too far
// from home there. This loop is most of what a new row costs.
func (x *index) pour(s *segment, low, high *filler) (ok bool) {
	stride, taken, at := s.stride, uint64(1)<<(s.shift&63), s.free(0)
	for range s.slots { // in the order of hashes, beginning behind a free slot
		at = s.next(at)
		row := s.buf[at*stride : (at+1)*stride]
		last := binary.LittleEndian.Uint64(row[len(row)-8:])
		if last&taken == 0 {
			continue
		}
		h, to := s.hashOf(at, last), low
		if h<<(s.depth&63)>>63 == 1 {
			to = high
		}
		slot, ok := to.place(h)
		if !ok {
			return false
		}
		if to.stride == stride {
			copyRow(to.buf[slot*stride:][:stride], row, to.fieldMask(), to.field(h))
		} else { // the owner's bits are in both
			copy(to.row(slot), row)
			to.setField(slot, to.field(h))
		}
		if x.swept {
			to.marks.put(slot, s.marks.has(at))
		}
	}
	return true
}

// copyRow copies a row in words, of which the last may overlap the one before, and
// has the field in it: rows are too short for a call of memmove.
func copyRow(to, from []byte, mask, field uint64) {
	last := len(from) - 8
	for at := 0; at < last; at += 8 {
		binary.LittleEndian.PutUint64(to[at:], binary.LittleEndian.Uint64(from[at:]))
	}
	binary.LittleEndian.PutUint64(to[last:], binary.LittleEndian.Uint64(from[last:])&^mask|field)
}

// filler fills an empty segment in the order of hashes, beginning with any.
type filler struct {
	*segment
	index    *index
	begin    uint64 // hash of the first row
	from, at int    // its home; where the next row may stand, counted on past the end
}

// place is where the next row stands; ok is false when that is too far from
// its home. Where the rows have come around to where the first one stands,
// others move.
func (f *filler) place(h uint64) (slot int, ok bool) {
	home := f.home(h)
	switch {
	case f.rows == 0:
		f.begin, f.from, f.at = h, home, home
	case h < f.begin:
		home += f.slots
	}
	slot = max(home, f.at)
	f.at = slot + 1
	if slot-home > f.reach {
		return 0, false
	}
	if slot >= f.from+f.slots {
		return f.index.open(f.segment, h)
	}
	if slot >= f.slots {
		slot -= f.slots
	}
	f.rows++
	return slot, true
}
