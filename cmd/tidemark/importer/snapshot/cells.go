package snapshot

import (
	"bufio"
	"cmp"
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
)

// What was read is kept in a file in the order in which it came, with cells
// that came twice: SCAN may give a key twice, and a pass that was interrupted
// reads a little again. It is sorted a piece at a time, and the sorted pieces
// are merged, so that memory does not grow with the keys.
//
//	cells: 20 bytes each, little endian
//	┌──────────┬────────────────────────┬────────────────────────┐
//	│ column 4 │ id 8                   │ value 8                │
//	└──────────┴────────────────────────┴────────────────────────┘
//
// A column is an index into the plan's columns, or says which fault a key has;
// its id is then a hash of the key, so that a key that came twice is one fault.

const (
	cellBytes = 20
	// pieceCells are sorted at once, in 48 MiB of memory.
	pieceCells = 2 << 20
	// piecesMax bounds the files that are open at once, and so the snapshot: to
	// 2^30 cells, 20 GiB on disk.
	piecesMax = 512
	cellsMax  = pieceCells * piecesMax
	mergeRead = 64 << 10 // of each piece at once
)

// fault is why a key gives no count.
type fault uint32

const (
	faultID    fault = iota // what stands for {id} is no id
	faultType               // not a string, not a hash
	faultValue              // not a whole number, or not one that an answer can say
	faults
)

var faultNames = [faults]string{"id", "type", "value"}

// faultColumn begins the columns that are faults.
const faultColumn = math.MaxUint32 - uint32(faults)

type cell struct {
	column uint32
	order  uint32 // in its piece
	id     uint64
	value  int64
}

func compareCells(a, b cell) int {
	return cmp.Or(cmp.Compare(a.column, b.column), cmp.Compare(a.id, b.id))
}

func (c cell) same(d cell) bool { return c.column == d.column && c.id == d.id }

func appendCell(to []byte, c cell) []byte {
	to = binary.LittleEndian.AppendUint32(to, c.column)
	to = binary.LittleEndian.AppendUint64(to, c.id)
	return binary.LittleEndian.AppendUint64(to, uint64(c.value))
}

func readCell(from io.Reader) (c cell, err error) {
	var b [cellBytes]byte
	if _, err = io.ReadFull(from, b[:]); err != nil {
		return c, err // io.EOF between two cells
	}
	c.column = binary.LittleEndian.Uint32(b[:])
	c.id = binary.LittleEndian.Uint64(b[4:])
	c.value = int64(binary.LittleEndian.Uint64(b[12:]))
	return c, nil
}

// sortCells visits the cells of a file in order of column and id, each once,
// as it came last. Its pieces are files in dir while it works; piece is how
// many cells each holds.
func sortCells(ctx context.Context, path, dir string, piece int, visit func(cell) error) (err error) {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	m := new(merge)
	defer func() { err = errors.Join(err, m.close()) }()
	i, err := from.Stat()
	if err != nil {
		return err
	}
	in := bufio.NewReaderSize(from, mergeRead)
	cells := make([]cell, 0, min(piece, int(i.Size()/cellBytes)))
	for ended := false; !ended; {
		cells = cells[:0]
		for len(cells) < piece {
			c, err := readCell(in)
			if err == io.EOF {
				ended = true
				break
			}
			if err != nil {
				return fmt.Errorf("read %s: %w", path, err)
			}
			c.order = uint32(len(cells))
			cells = append(cells, c)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		slices.SortFunc(cells, func(a, b cell) int { return cmp.Or(compareCells(a, b), cmp.Compare(a.order, b.order)) })
		if err := m.add(filepath.Join(dir, fmt.Sprintf("piece-%d", len(m.pieces))), cells); err != nil {
			return err
		}
	}
	return m.visit(ctx, visit)
}

// merge is a heap of pieces by their first cells; of the same cell, that of the
// later piece comes last.
type merge struct {
	pieces []*piece
	heap   []*piece
}

type piece struct {
	number int
	file   *os.File
	in     *bufio.Reader
	first  cell
}

// Len implements [heap.Interface].
func (m *merge) Len() int { return len(m.heap) }

// Less implements [heap.Interface].
func (m *merge) Less(i, j int) bool {
	a, b := m.heap[i], m.heap[j]
	return cmp.Or(compareCells(a.first, b.first), cmp.Compare(a.number, b.number)) < 0
}

// Swap implements [heap.Interface].
func (m *merge) Swap(i, j int) { m.heap[i], m.heap[j] = m.heap[j], m.heap[i] }

// Push implements [heap.Interface].
func (m *merge) Push(p any) { m.heap = append(m.heap, p.(*piece)) }

// Pop implements [heap.Interface].
func (m *merge) Pop() any {
	last := m.heap[len(m.heap)-1]
	m.heap = m.heap[:len(m.heap)-1]
	return last
}

// add writes sorted cells as a piece. The file no longer has a name when add returns,
// so that nothing is left of it whatever happens.
func (m *merge) add(path string, cells []cell) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	p := &piece{number: len(m.pieces), file: f}
	m.pieces = append(m.pieces, p)
	if err := os.Remove(path); err != nil {
		return err
	}
	out, line := bufio.NewWriterSize(f, mergeRead), []byte(nil)
	for i, c := range cells {
		if i+1 < len(cells) && c.same(cells[i+1]) {
			continue
		}
		line = appendCell(line[:0], c)
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return nil
}

func (m *merge) visit(ctx context.Context, visit func(cell) error) error {
	for _, p := range m.pieces {
		p.in = bufio.NewReaderSize(p.file, mergeRead)
		if err := m.advance(p, func() { heap.Push(m, p) }); err != nil {
			return err
		}
	}
	for n := 0; m.Len() > 0; n++ {
		if n%pieceCells == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		p := m.heap[0]
		c := p.first
		ended := true
		if err := m.advance(p, func() { ended = false; heap.Fix(m, 0) }); err != nil {
			return err
		}
		if ended {
			heap.Pop(m)
		}
		if m.Len() > 0 && m.heap[0].first.same(c) {
			continue // a later one
		}
		if err := visit(c); err != nil {
			return err
		}
	}
	return nil
}

// advance reads a piece's next cell; then is called when there is one.
func (m *merge) advance(p *piece, then func()) error {
	c, err := readCell(p.in)
	switch {
	case err == io.EOF:
		return nil
	case err != nil:
		return fmt.Errorf("read a sorted piece: %w", err)
	}
	p.first = c
	then()
	return nil
}

func (m *merge) close() error {
	var errs []error
	for _, p := range m.pieces {
		errs = append(errs, p.file.Close())
	}
	return errors.Join(errs...)
}
