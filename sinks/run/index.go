package run

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"unsafe"

	"github.com/dgraph-io/badger/v4/y"
)

// index says where the blocks of a run are and what cannot be in them.
type index struct {
	heads []Key   // first key of each block
	ends  []int64 // in the run, where each block ends
	parts []part
	bytes int // that filters point into
}

// part is some neighbouring blocks.
type part struct {
	end    int // the block after its last one
	filter y.Filter
}

// readIndex takes an index apart; b is kept.
func readIndex(b []byte, info Info) (*index, error) {
	n := len(b) - crcBytes
	if n < 0 {
		return nil, fmt.Errorf("%w: cut short", ErrCorrupt)
	}
	sum := crc32.Checksum(b[:n], castagnoli)
	if sum != binary.LittleEndian.Uint32(b[n:]) {
		return nil, fmt.Errorf("%w: checksum", ErrCorrupt)
	}
	if sum != info.Checksum {
		return nil, fmt.Errorf("%w: it is that of another run", ErrCorrupt)
	}
	x := &index{bytes: cap(b)}
	r := indexReader{b: b[:n]}
	if info.Blocks >= 0 && info.Blocks <= n {
		x.heads = make([]Key, 0, info.Blocks)
		x.ends = make([]int64, 0, info.Blocks)
	}
	for range r.uvarint(uint64(n)) {
		if r.part(x); r.bad {
			break
		}
	}
	switch {
	case r.bad || len(r.b) > 0:
		return nil, fmt.Errorf("%w: %d bytes before its end", ErrCorrupt, len(r.b))
	case len(x.heads) != info.Blocks:
		return nil, fmt.Errorf("%w: %d blocks of %d", ErrCorrupt, len(x.heads), info.Blocks)
	case x.end(len(x.ends)-1) != info.IndexAt:
		return nil, fmt.Errorf("%w: blocks end at byte %d of %d", ErrCorrupt, x.end(len(x.ends)-1), info.IndexAt)
	}
	return x, nil
}

// indexReader reads from the front of b until something is bad.
type indexReader struct {
	b   []byte
	bad bool
}

func (r *indexReader) part(x *index) {
	blocks := r.uvarint(uint64(len(r.b)))
	if blocks == 0 {
		r.bad = true
	}
	for i := uint64(0); i < blocks && !r.bad; i++ {
		r.block(x)
	}
	filter := r.bytes(r.uvarint(uint64(len(r.b))))
	if len(filter) == 1 {
		r.bad = true
	}
	x.parts = append(x.parts, part{len(x.heads), filter})
}

func (r *indexReader) block(x *index) {
	length := int64(r.uvarint(blockBytes + entryBytesMax))
	key := r.key()
	last := len(x.heads) - 1
	if r.bad || length <= crcBytes || key.check() != nil || last >= 0 && x.heads[last].Compare(&key) >= 0 {
		r.bad = true
		return
	}
	x.heads = append(x.heads, key)
	x.ends = append(x.ends, x.end(last)+length)
}

func (r *indexReader) key() (key Key) {
	key.Kind = Kind(r.byte())
	f := &forms[key.Kind&kindMask]
	if f.counted {
		key.Counter = r.byte()
	}
	key.A = r.uvarint(^uint64(0))
	if f.pair {
		key.B = r.uvarint(^uint64(0))
	}
	if f.triple {
		key.C = r.uvarint(^uint64(0))
	}
	if f.named {
		key.Name = string(r.bytes(r.uvarint(uint64(len(r.b)))))
	}
	return key
}

func (r *indexReader) byte() byte {
	if b := r.bytes(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (r *indexReader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) || r.bad {
		r.bad = true
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

// uvarint reads a number of at most most.
func (r *indexReader) uvarint(most uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > most || r.bad {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

// end is where a block ends; of the block before the first, where that begins.
func (x *index) end(block int) int64 {
	if block < 0 {
		return 0
	}
	return x.ends[block]
}

// find is the last block whose first key is not after key, where key is if it
// is anywhere; -1 where key is before all.
func (x *index) find(key *Key) int {
	low, high := 0, len(x.heads)
	for low < high {
		middle := int(uint(low+high) / 2)
		if x.heads[middle].Compare(key) <= 0 {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low - 1
}

// part is the number of the part that has a block.
func (x *index) part(block int) int {
	low, high := 0, len(x.parts)
	for low < high {
		middle := int(uint(low+high) / 2)
		if x.parts[middle].end <= block {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// may is false where a block surely has no entry with key.
func (x *index) may(block int, key *Key) bool {
	f := &forms[key.Kind&kindMask]
	var hash uint32
	switch {
	case f.points:
		hash = pointHash(key)
	case f.owners:
		hash = ownerHash(key)
	default:
		return true
	}
	return x.parts[x.part(block)].filter.MayContain(hash)
}

// mayOwn is false where surely no entry has the kind, the counter and A of a key.
func (x *index) mayOwn(key *Key) bool {
	f := &forms[key.Kind&kindMask]
	from := key.Emptied() // the first of them, or one before it
	block := max(x.find(&from), 0)
	hash := ownerHash(&from)
	if !f.owners {
		hash = pointHash(&from)
	}
	filters := f.owners || f.points && !f.pair
	for n := x.part(block); n < len(x.parts); n++ {
		if head := &x.heads[block]; head.head() > from.head() || head.head() == from.head() && head.A > from.A {
			return false
		}
		if !filters || x.parts[n].filter.MayContain(hash) {
			return true
		}
		block = x.parts[n].end
	}
	return false
}

// memory is how many bytes x keeps.
func (x *index) memory() int {
	n := x.bytes + cap(x.ends)*8 + cap(x.heads)*int(unsafe.Sizeof(Key{})) + cap(x.parts)*int(unsafe.Sizeof(part{}))
	for i := range x.heads {
		n += len(x.heads[i].Name)
	}
	return n
}
