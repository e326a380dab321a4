package check

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"sort"

	"github.com/tidemark-io/tidemark/pipeline"
)

// A stretch is a run of messages of EVENTS, and its filter says which of them have an event
// that changes something of an id, or does something with an id and another one together.
//
//	header  magic "TMSTRCH3" │ created │ first │ last │ events │ entries │ second │ flags │ keys… │ 0… │ CRC
//	blocks  682 × (key, message) │ CRC
//
// All blocks have 4,096 bytes, all numbers are little-endian. Entries ascend: of a key its
// first 4 bytes, and of a message how far it is behind the first one, 2 bytes. The header has
// the key of each block's first entry, 4 bytes, so that a question reads the header and the
// blocks that have the key. created is when EVENTS was made (Unix ns), first and last are
// sequences, second is the newest second in which a message was stored. The CRC (CRC-32C, 4
// bytes) of a block begins with created, first and the block's number, so that no block
// passes for another.
const (
	blockBytes   = 4096
	headerBytes  = 64
	entryBytes   = 6
	blockEntries = (blockBytes - 4) / entryBytes
	blocksMax    = (blockBytes - 4 - headerBytes) / 4
	entriesMax   = blocksMax * blockEntries

	flagAny = 1 // it may hold whatever is asked
)

var stretchMagic = []byte("TMSTRCH3")

// errDamaged: a filter is not as it was written.
var errDamaged = errors.New("check: a filter is damaged")

// stretch is a run of messages, first to last.
type stretch struct{ first, last uint64 }

// spanMax bounds a stretch: how far a message is behind the first one has two bytes.
const spanMax = 1 << 16

// key is what is looked for.
type key uint64

func keyOf(id uint64) key { return key(pipeline.Mix(id ^ 0x7469646d61726b)) }

// with is the key of an id together with another one, or with a member of one of its sets.
func (k key) with(a, b uint64) key {
	return key(pipeline.Mix(uint64(k) + pipeline.Mix(a+pipeline.Mix(b))))
}

// emptied is the key of an id of which a set was emptied.
func (k key) emptied() key { return key(pipeline.Mix(^uint64(k))) }

// keysOf visits the keys of a change.
func keysOf(c *pipeline.Change, o *pipeline.Operation, visit func(key)) {
	k := keyOf(c.ID)
	visit(k)
	switch {
	case c.Op == pipeline.OpEmpty:
		visit(k.emptied())
	case c.Op.OfSet():
		visit(k.with(o.Member.A, o.Member.B))
	case c.Op == pipeline.OpFollow, c.Op == pipeline.OpUnfollow, c.Op == pipeline.OpFollowed, c.Op == pipeline.OpUnfollowed:
		visit(k.with(o.Other, 0))
	}
}

// entry is a key, cut to 32 bits, and a message that has it, 16 bits.
type entry uint64

func (k key) entry(offset uint64) entry { return entry(uint64(k)>>32<<16 | offset) }

// builder gathers a stretch, which begins where the one before ends: sequences
// may be missing.
type builder struct {
	stretch
	events  int
	second  int64
	entries []entry // some of them often
}

// full says that a message behind the last is for the next stretch.
func (b *builder) full(m *pipeline.Message, events int) bool {
	return b.events >= events || m.Sequence-b.first >= spanMax
}

// add takes in a message behind the last.
func (b *builder) add(m *pipeline.Message, tracer pipeline.Tracer) {
	b.last, b.second = m.Sequence, max(b.second, m.Time/1000)
	b.events += 1 + bytes.Count(m.Data, []byte{'\n'})
	if len(b.entries) > 2*entriesMax {
		if b.compact(); len(b.entries) > entriesMax { // it has no filter to speak of
			return
		}
	}
	tracer.Trace(m, func([]byte) bool { return true }, func(t *pipeline.Traced) {
		section := t.Changes(t.Ids)
		for c, ok := section.Next(); ok; c, ok = section.Next() {
			keysOf(&c, &section.Operation, func(k key) { b.entries = append(b.entries, k.entry(m.Sequence-b.first)) })
		}
	})
}

func (b *builder) compact() {
	slices.Sort(b.entries)
	b.entries = slices.Compact(b.entries)
}

// encode writes the stretch's file.
func (b *builder) encode(created int64) []byte {
	b.compact()
	h := header{created: created, stretch: b.stretch, events: uint64(b.events), second: uint64(b.second)}
	if len(b.entries) > entriesMax {
		h.flags, b.entries = flagAny, b.entries[:0]
	}
	h.entries = uint64(len(b.entries))
	out := make([]byte, blockBytes*(1+(len(b.entries)+blockEntries-1)/blockEntries))
	for i, e := range b.entries {
		block, at := 1+i/blockEntries, i%blockEntries
		if at == 0 {
			h.keys = append(h.keys, uint32(e>>16))
		}
		to := out[blockBytes*block+entryBytes*at:]
		binary.LittleEndian.PutUint32(to, uint32(e>>16))
		binary.LittleEndian.PutUint16(to[4:], uint16(e))
	}
	copy(out, stretchMagic)
	for i, v := range []uint64{uint64(h.created), h.first, h.last, h.events, h.entries, h.second, h.flags} {
		binary.LittleEndian.PutUint64(out[8+8*i:], v)
	}
	for i, k := range h.keys {
		binary.LittleEndian.PutUint32(out[headerBytes+4*i:], k)
	}
	for i := range uint64(len(out) / blockBytes) {
		block := out[blockBytes*i:][:blockBytes]
		binary.LittleEndian.PutUint32(block[blockBytes-4:], h.sum(i, block))
	}
	return out
}

// header is the first block of a stretch's file.
type header struct {
	created int64
	stretch
	events, entries, second, flags uint64
	keys                           []uint32 // of the first entry of each block
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum is the checksum of a block.
func (h *header) sum(number uint64, block []byte) uint32 {
	var place [24]byte
	binary.LittleEndian.PutUint64(place[:], uint64(h.created))
	binary.LittleEndian.PutUint64(place[8:], h.first)
	binary.LittleEndian.PutUint64(place[16:], number)
	return crc32.Update(crc32.Checksum(place[:], castagnoli), castagnoli, block[:blockBytes-4])
}

// opened is a stretch's file, open.
type opened struct {
	file *os.File
	header
	block  [blockBytes]byte // the one read last
	number uint64
}

// read reads a block, which must be as it was written.
func (o *opened) read(number uint64) error {
	if o.number == number && number > 0 {
		return nil
	}
	o.number = 0
	if _, err := o.file.ReadAt(o.block[:], int64(blockBytes*number)); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	if binary.LittleEndian.Uint32(o.block[blockBytes-4:]) != o.sum(number, o.block[:]) {
		return fmt.Errorf("%w: block %d", errDamaged, number)
	}
	o.number = number
	return nil
}

// begin reads the header of the stretch that the file should be of.
func (o *opened) begin(created int64, s stretch) error {
	o.created, o.stretch = created, s
	if err := o.read(0); err != nil {
		return err
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(o.block[8+8*i:]) }
	o.events, o.entries, o.second, o.flags = word(3), word(4), word(5), word(6)
	if !bytes.Equal(o.block[:8], stretchMagic) || int64(word(0)) != created || word(1) != s.first || word(2) != s.last || o.entries > entriesMax {
		return fmt.Errorf("%w: it is of another stretch", errDamaged)
	}
	for i := range (o.entries + blockEntries - 1) / blockEntries {
		o.keys = append(o.keys, binary.LittleEndian.Uint32(o.block[headerBytes+4*i:]))
	}
	return nil
}

// find appends the sequences of messages that have a key, ascending.
func (o *opened) find(sequences []uint64, k key) ([]uint64, error) {
	is := uint32(k >> 32)
	first := sort.Search(len(o.keys), func(i int) bool { return o.keys[i] >= is })
	for block := max(first, 1) - 1; block < len(o.keys) && o.keys[block] <= is; block++ {
		if err := o.read(uint64(block + 1)); err != nil {
			return sequences, err
		}
		n := min(blockEntries, int(o.entries)-block*blockEntries)
		at := func(i int) uint32 { return binary.LittleEndian.Uint32(o.block[entryBytes*i:]) }
		for i := sort.Search(n, func(i int) bool { return at(i) >= is }); i < n && at(i) == is; i++ {
			sequences = append(sequences, o.first+uint64(binary.LittleEndian.Uint16(o.block[entryBytes*i+4:])))
		}
	}
	return sequences, nil
}

// findAny are the sequences of messages that have one of some keys, the newest first.
func (o *opened) findAny(keys []key) (sequences []uint64, err error) {
	slices.Sort(keys) // keys that follow one another are in one block
	for _, k := range keys {
		if sequences, err = o.find(sequences, k); err != nil {
			return nil, err
		}
	}
	slices.Sort(sequences)
	sequences = slices.Compact(sequences)
	slices.Reverse(sequences)
	return sequences, nil
}

// any says that what is asked may be in any message.
func (o *opened) any() bool { return o.flags&flagAny != 0 }

func (o *opened) close() { o.file.Close() }
