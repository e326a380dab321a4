package importer

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

const (
	readBytes = 256 << 10 // read at once
	// prefixBytesMax is how much of the content an import is named after.
	prefixBytesMax = 64 << 10
	// packsAhead are cut while others are on their way.
	packsAhead = 8
)

var (
	gzipMagic = []byte{0x1f, 0x8b}
	byteOrder = []byte("\xef\xbb\xbf") // some editors put it in front of UTF-8
)

// input is the file or stdin. After begin one goroutine reads it, and leaves err for
// readers of its packs, at their end.
type input struct {
	name    string
	size    int64        // bytes on disk, 0 when not known
	done    atomic.Int64 // of these, read
	file    *os.File     // ours to close; nil for stdin
	regular bool         // reading it cannot hang
	source  io.Reader
	reading chan struct{} // closed when reading has ended; nil before read

	force  bool          // whatever it is, it is imported
	csv    bool          // its lines are counter,id,column,value
	table  *table        // makes events of them
	text   *bufio.Reader // uncompressed
	prefix []byte        // of the lines
	long   []byte        // a line longer than the reader's buffer
	number uint64        // of the line in the input, blank ones included
	events numbers       // of the lines that are not blank
	err    error         // what ended it before its end
}

func openInput(path string, stdin io.Reader) (*input, error) {
	in := &input{name: path, source: stdin}
	if path == "-" {
		in.name = "standard input"
		if stdin == nil {
			return nil, errors.New("there is no standard input")
		}
		if f, ok := stdin.(*os.File); ok {
			in.measure(f)
		}
		return in, nil
	}
	f, err := os.Open(path)
	if err != nil {
		if pe, ok := errors.AsType[*os.PathError](err); ok {
			err = pe.Err // the path is named already
		}
		return nil, err
	}
	in.measure(f)
	in.file, in.source = f, f
	return in, nil
}

func (in *input) measure(f *os.File) {
	if i, err := f.Stat(); err == nil && i.Mode().IsRegular() {
		in.size, in.regular = i.Size(), true
	}
}

func (in *input) close() {
	if in.file != nil {
		_ = in.file.Close()
	}
}

// wait returns when reading has ended, where that is certain to happen.
func (in *input) wait() {
	if in.reading != nil && in.regular {
		<-in.reading
	}
}

// Read implements [io.Reader]: it counts what comes from the disk.
func (in *input) Read(p []byte) (int, error) {
	n, err := in.source.Read(p)
	in.done.Add(int64(n))
	return n, err
}

// begin finds out what it is and reads the prefix. With an error of the input
// itself the prefix is what came before it.
func (in *input) begin(ctx context.Context) error {
	begun := make(chan error, 1)
	go func() { begun <- in.open() }()
	select {
	case err := <-begun:
		return err
	case <-ctx.Done():
		if in.regular {
			<-begun
		}
		return ctx.Err()
	}
}

func (in *input) open() error {
	raw := bufio.NewReaderSize(in, readBytes)
	in.text = raw
	if magic, _ := raw.Peek(len(gzipMagic)); bytes.Equal(magic, gzipMagic) {
		z, err := gzip.NewReader(raw)
		if err != nil {
			return err
		}
		in.text = bufio.NewReaderSize(z, readBytes)
	}
	if err := in.look(); err != nil {
		return err
	}
	if in.csv {
		in.table = &table{from: in.text}
		in.text = bufio.NewReaderSize(in.table, readBytes)
	}
	if mark, _ := in.text.Peek(len(byteOrder)); bytes.Equal(mark, byteOrder) {
		_, _ = in.text.Discard(len(byteOrder))
	}
	text, err := in.text.Peek(prefixBytesMax)
	if err != nil && err != io.EOF && len(text) == 0 {
		return err
	}
	in.prefix = prefixOf(text, err == io.EOF)
	if len(in.prefix) == 0 && len(text) == prefixBytesMax {
		in.prefix = []byte{'\n'} // blank lines so far: there may be others
	}
	return nil
}

// look refuses what begins with no event.
func (in *input) look() error {
	if in.force {
		return nil
	}
	text, err := in.text.Peek(prefixBytesMax)
	if err != nil && err != io.EOF {
		return nil // reading it says so
	}
	text = bytes.TrimPrefix(text, byteOrder)
	if in.csv {
		return lookAtCounts(text)
	}
	return lookAt(text)
}

// prefixOf are the whole lines of text, blank ones left out. A first line that
// is not whole counts as far as it is there.
func prefixOf(text []byte, whole bool) []byte {
	var prefix []byte
	for len(text) > 0 {
		line, rest, found := bytes.Cut(text, newline)
		if !found && !whole && len(prefix) > 0 {
			break
		}
		text = rest
		if !blank(line) {
			prefix = append(append(prefix, line...), '\n')
		}
	}
	return prefix
}

// leftOut stands for a line that no message can hold. It is no event, so that its number is
// among those that are refused.
const leftOut = "a line of %d bytes was left out: it is more than a message may have"

// next is the next line that is not blank, without its end. It is valid until
// the next call.
func (in *input) next(bytesMax int) ([]byte, error) {
	for {
		line, err := in.line(bytesMax)
		if err != nil {
			return nil, err
		}
		in.number++
		if !blank(line) {
			in.events.next(in.number)
			return line, nil
		}
	}
}

func (in *input) line(bytesMax int) ([]byte, error) {
	in.long = in.long[:0]
	for {
		part, err := in.text.ReadSlice('\n')
		part, ended := bytes.CutSuffix(part, newline)
		if long := len(in.long) + len(part); long > bytesMax {
			return in.pass(long, ended || err == io.EOF)
		}
		switch {
		case err == bufio.ErrBufferFull:
			in.long = append(in.long, part...)
			continue
		case err == nil && ended, err == io.EOF && len(in.long)+len(part) > 0:
		case err == nil:
			return nil, io.ErrNoProgress
		default:
			return nil, err // of a broken input, a line that is not whole is none
		}
		if len(in.long) == 0 {
			return part, nil
		}
		in.long = append(in.long, part...)
		return in.long, nil
	}
}

// pass reads a line to its end, of which that many bytes have come, and returns what
// stands for it.
func (in *input) pass(long int, ended bool) ([]byte, error) {
	for !ended {
		part, err := in.text.ReadSlice('\n')
		part, ended = bytes.CutSuffix(part, newline)
		long += len(part)
		switch {
		case err == io.EOF:
			ended = true
		case err != nil && err != bufio.ErrBufferFull:
			return nil, err
		}
	}
	return fmt.Appendf(in.long[:0], leftOut, long), nil
}

// read cuts what the record does not count into packs. The channel is closed
// at the end of the input, or where it breaks off, with in.err set.
func (in *input) read(ctx context.Context, bytesMax int, from record) <-chan *pack {
	packs := make(chan *pack, packsAhead)
	in.reading = make(chan struct{})
	c := newCutter(from.Pack, from.Bytes, from.Cut, func(p *pack) {
		select {
		case packs <- p:
		case <-ctx.Done():
		}
	})
	go func() {
		defer close(in.reading)
		defer close(packs)
		in.err = in.readLines(ctx, c, bytesMax, from)
	}()
	return packs
}

func (in *input) readLines(ctx context.Context, c *cutter, bytesMax int, from record) error {
	for c.line < from.Lines {
		line, err := in.next(bytesMax)
		switch {
		case err == io.EOF:
			return fatal{fmt.Errorf("%w: it has %d lines, and %d have been imported; to import it by itself, give it a name of its own (--name)",
				ErrDiffers, c.line, from.Lines)}
		case err != nil:
			return fatal{in.broken(err)}
		}
		c.skip(line)
		if c.line%packDefault == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if c.line > 0 && c.hash() != from.Hash {
		return fatal{fmt.Errorf("%w: its first %d lines are not those that have been imported; to import it by itself, give it a name of its own (--name)",
			ErrDiffers, c.line)}
	}
	for ctx.Err() == nil {
		line, err := in.next(bytesMax)
		if err != nil {
			c.end(true)
			if err == io.EOF {
				return ctx.Err() // whose end may have swallowed the last pack
			}
			return fatal{in.broken(err)}
		}
		c.add(line)
	}
	return ctx.Err()
}

func (in *input) broken(err error) error {
	return fmt.Errorf("read line %d: %w; what stands before it is imported", in.number+1, err)
}

// blank lines are passed over here as in a pack.
func blank(line []byte) bool {
	for _, c := range line {
		if c != ' ' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}
