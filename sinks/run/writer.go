package run

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
)

// Info is what must be known of a run to open it. The list of runs keeps it.
type Info struct {
	Entries  int    `json:"entries"`
	Blocks   int    `json:"blocks"`
	Bytes    int64  `json:"bytes"`    // of the run, index included
	IndexAt  int64  `json:"index_at"` // where in the run the index begins
	Checksum uint32 `json:"checksum"` // CRC-32C of the index
}

// A part of a run has a filter of its own, so that 32 bits of a hash are
// enough.
const (
	partEntriesMax = 32 << 10
	partBytesMax   = 512 << 10
)

// Writer writes a run. Memory is bounded by the run's index.
type Writer struct {
	to    io.Writer
	err   error // ends the writing
	info  Info
	block block

	parts     int
	index     []byte // the parts that are complete
	heads     []byte // of the open part: length and first key of each block
	blocks    int    // in the open part
	first     []byte // key of the open block
	partBytes int
	partCount int // entries in the open part
	filter    filterBuilder
}

// NewWriter writes to w, a block at a time: a bufio.Writer makes sense.
func NewWriter(w io.Writer) *Writer { return &Writer{to: w} }

// Reset begins another run, with the memory of the last one.
func (w *Writer) Reset(to io.Writer) {
	*w = Writer{
		to:     to,
		block:  block{b: w.block.b[:0], name: w.block.name[:0]},
		index:  w.index[:0],
		heads:  w.heads[:0],
		first:  w.first[:0],
		filter: filterBuilder{hashes: w.filter.hashes[:0]},
	}
}

// Add adds an entry. Keys must ascend, each once. key and value are not kept.
// After an error the run is of no use.
func (w *Writer) Add(key *Key, value []byte, gone bool) error {
	if w.err != nil {
		return w.err
	}
	if err := w.check(key, value, gone); err != nil {
		return w.fail(err)
	}
	room := blockBytes - crcBytes - keyBytesMax - binary.MaxVarintLen32 - len(value)
	if n := len(w.block.b); n > 0 && n > room {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if len(w.block.b) == 0 {
		w.first = appendKey(w.first[:0], key)
	}
	w.block.add(key, value, gone)
	w.filter.add(key)
	if forms[key.Kind].named {
		w.block.name = append(w.block.name[:0], key.Name...)
	}
	w.info.Entries++
	w.partCount++
	return nil
}

// check says why an entry cannot come next.
func (w *Writer) check(key *Key, value []byte, gone bool) error {
	if err := key.check(); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	switch {
	case len(value) > ValueBytesMax:
		return fmt.Errorf("run: %v: a value of %d bytes", key, len(value))
	case key.IsMark() && !gone:
		return fmt.Errorf("run: %v: an id or a position of 0", key)
	case forms[key.Kind].bare && len(value) > 0:
		return fmt.Errorf("run: %v: a value of %d bytes, where there is none", key, len(value))
	case gone && (key.Kind == Row || len(value) > 0):
		return fmt.Errorf("run: %v: a value or a row that is gone", key)
	case key.Kind == Row && len(value) == 0:
		return fmt.Errorf("run: %v: no value", key)
	case w.info.Entries > 0 && !w.ascends(key):
		return fmt.Errorf("run: %v is not after the entry before, %v", key, &w.block.last)
	}
	return nil
}

// ascends says that key is after the last one.
func (w *Writer) ascends(key *Key) bool {
	last := &w.block.last
	switch {
	case last.head() != key.head():
		return last.head() < key.head()
	case last.A != key.A:
		return last.A < key.A
	case last.B != key.B:
		return last.B < key.B
	case last.C != key.C:
		return last.C < key.C
	}
	return forms[key.Kind].named && string(w.block.name) < key.Name
}

func (w *Writer) fail(err error) error {
	w.err = err
	return err
}

// flush writes the open block.
func (w *Writer) flush() error {
	b := w.block.seal()
	if _, err := w.to.Write(b); err != nil {
		return w.fail(fmt.Errorf("run: writing: %w", err))
	}
	w.heads = binary.AppendUvarint(w.heads, uint64(len(b)))
	w.heads = append(w.heads, w.first...)
	w.info.IndexAt += int64(len(b))
	w.info.Blocks++
	w.blocks++
	w.partBytes += len(b)
	w.block.b = b[:0]
	// The next block can have as many bytes and entries again.
	if w.partBytes+blockBytes > partBytesMax || w.partCount+blockBytes/2 > partEntriesMax {
		w.endPart()
	}
	return nil
}

// endPart ends the open part.
func (w *Writer) endPart() {
	w.index = binary.AppendUvarint(w.index, uint64(w.blocks))
	w.index = append(w.index, w.heads...)
	filter := w.filter.build()
	w.index = binary.AppendUvarint(w.index, uint64(len(filter)))
	w.index = append(w.index, filter...)
	w.parts++
	w.heads, w.blocks, w.partBytes, w.partCount = w.heads[:0], 0, 0, 0
}

// Bytes is how many bytes the blocks have so far.
func (w *Writer) Bytes() int64 { return w.info.IndexAt + int64(len(w.block.b)) }

// Close writes what is left, then the index. It does not close what it writes
// to. A run without entries is one, too.
func (w *Writer) Close() (Info, error) {
	if w.err != nil {
		return Info{}, w.err
	}
	if len(w.block.b) > 0 {
		if err := w.flush(); err != nil {
			return Info{}, err
		}
	}
	if w.blocks > 0 {
		w.endPart()
	}
	head := binary.AppendUvarint(nil, uint64(w.parts))
	sum := crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, w.index)
	tail := binary.LittleEndian.AppendUint32(w.index, sum)
	for _, b := range [][]byte{head, tail} {
		if _, err := w.to.Write(b); err != nil {
			return Info{}, w.fail(fmt.Errorf("run: writing: %w", err))
		}
	}
	w.info.Bytes = w.info.IndexAt + int64(len(head)+len(tail))
	w.info.Checksum = sum
	w.err = errClosed
	return w.info, nil
}

var errClosed = fmt.Errorf("run: the writer is closed")
