package explain

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
)

// A stretch is a run of messages of EVENTS, and its filter says which numbers
// stand in them. The filter is a blocked Bloom filter (Putze, Sanders, Singler,
// "Cache-, Hash- and Space-Efficient Bloom Filters", 2007): all bits of a key are in one
// block, so a question reads one block of the file. Each block has a checksum of
// its own, since it is what is read.
//
//	header, 64 bytes   magic "TMSTRCH2" │ created │ first │ last │ events │ blocks │ flags │ 0… │ CRC
//	blocks × 64 bytes  480 bits │ CRC
//
// created is when EVENTS was made (Unix ns), first and last are sequences. All
// numbers are little-endian; the CRC (CRC-32C, 4 bytes) of a block begins with
// created, first and the block's number, so that no block passes for another.
const (
	blockBytes = 64
	blockBits  = (blockBytes - 4) * 8
	keyBits    = 16 // a key: some three in a thousand questions about what is not there are answered yes
	keyProbes  = 7

	flagAny = 1 // it may hold whatever is asked
)

var stretchMagic = []byte("TMSTRCH2")

// errDamaged: a filter is not as it was written.
var errDamaged = errors.New("explain: a filter is damaged")

// stretch is a run of messages, first to last.
type stretch struct{ first, last uint64 }

// builder gathers a stretch, which begins where the one before ends: sequences
// may be missing.
type builder struct {
	stretch
	events int
	any    bool
	keys   []uint64 // hashes, some of them often
}

// keysMax bounds the numbers of one stretch; one that has more has no filter to
// speak of. An event has five, as a rule.
const keysMax = 1 << 20

// add takes in a message behind the last.
func (b *builder) add(m *pipeline.Message) {
	b.last = m.Sequence
	b.events += 1 + bytes.Count(m.Data, []byte{'\n'})
	if len(b.keys) > 2*keysMax {
		b.compact()
	}
	if b.any {
		return
	}
	b.any = len(b.keys) > keysMax || escapes(m.Data)
	eachNumber(m.Data, func(u uint64) bool {
		b.keys = append(b.keys, hashOf(u))
		return true
	})
	if deleteIn(m.Data) {
		b.keys = append(b.keys, hashOf(deleteKey))
	}
	if mayNotice(m) {
		b.keys = append(b.keys, hashOf(noticeKey))
	}
}

func (b *builder) compact() {
	slices.Sort(b.keys)
	b.keys = slices.Compact(b.keys)
}

func hashOf(key uint64) uint64 { return pipeline.Mix(key ^ 0x7469646d61726b) }

// encode writes the stretch's file.
func (b *builder) encode(created int64) []byte {
	b.compact()
	if b.any = b.any || len(b.keys) > keysMax; b.any {
		b.keys = b.keys[:0]
	}
	blocks := (len(b.keys)*keyBits + blockBits - 1) / blockBits
	out := make([]byte, blockBytes*(1+blocks))
	h := header{created: created, stretch: b.stretch, events: uint64(b.events), blocks: uint64(blocks)}
	if b.any {
		h.flags = flagAny
	}
	h.encode(out)
	for _, hash := range b.keys {
		block := out[blockBytes*(1+blockOf(hash, uint64(blocks))):]
		probe(hash, func(bit uint32) bool {
			block[bit/8] |= 1 << (bit % 8)
			return true
		})
	}
	for i := range uint64(blocks) {
		block := out[blockBytes*(1+i):][:blockBytes]
		binary.LittleEndian.PutUint32(block[blockBytes-4:], h.sum(i, block))
	}
	return out
}

// blockOf is the block that has a key.
func blockOf(hash, blocks uint64) uint64 { return (hash >> 32) * blocks >> 32 }

// probe visits the bits of a key.
func probe(hash uint64, visit func(bit uint32) bool) bool {
	low := uint32(hash)
	step := low>>16 | low<<16 | 1
	for range keyProbes {
		if !visit(uint32(uint64(low) * blockBits >> 32)) {
			return false
		}
		low += step * 0x9e3779b1
	}
	return true
}

// header is the first block of a stretch's file.
type header struct {
	created int64
	stretch
	events, blocks, flags uint64
}

func (h *header) encode(out []byte) {
	copy(out, stretchMagic)
	for i, v := range []uint64{uint64(h.created), h.first, h.last, h.events, h.blocks, h.flags} {
		binary.LittleEndian.PutUint64(out[8+8*i:], v)
	}
	binary.LittleEndian.PutUint32(out[blockBytes-4:], crc32.Checksum(out[:blockBytes-4], castagnoli))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func decodeHeader(block []byte) (h header, err error) {
	if len(block) < blockBytes || !bytes.Equal(block[:8], stretchMagic) ||
		binary.LittleEndian.Uint32(block[blockBytes-4:]) != crc32.Checksum(block[:blockBytes-4], castagnoli) {
		return header{}, fmt.Errorf("%w: its header", errDamaged)
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(block[8+8*i:]) }
	h = header{int64(word(0)), stretch{word(1), word(2)}, word(3), word(4), word(5)}
	return h, nil
}

// sum is the checksum of a block.
func (h *header) sum(number uint64, block []byte) uint32 {
	var place [24]byte
	binary.LittleEndian.PutUint64(place[:], uint64(h.created))
	binary.LittleEndian.PutUint64(place[8:], h.first)
	binary.LittleEndian.PutUint64(place[16:], number)
	return crc32.Update(crc32.Checksum(place[:], castagnoli), castagnoli, block[:blockBytes-4])
}

// has says whether the block read from a file has a key.
func (h *header) has(hash uint64, block []byte) (bool, error) {
	number := blockOf(hash, h.blocks)
	if binary.LittleEndian.Uint32(block[blockBytes-4:]) != h.sum(number, block) {
		return false, fmt.Errorf("%w: block %d", errDamaged, number)
	}
	return probe(hash, func(bit uint32) bool { return block[bit/8]&(1<<(bit%8)) != 0 }), nil
}
