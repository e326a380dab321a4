package pipeline

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// Header is what a window says of itself.
type Header struct {
	From, To Position // covers (From, To]; From is To of the window before (I2)
	Rules    uint64   // fingerprint of the rules that derived it
	Events   uint64   // events counted in it, dead letters left out
	Time     int64    // the newest stream timestamp it covers, Unix ms; 0 for none
}

// TimeMark says that Position is the first of a log second: ages are measured
// by these (log time), not by anyone's clock.
type TimeMark struct {
	Second   int64 // Unix seconds
	Position Position
}

// Window is a decoded window. Its slices alias the encoded bytes.
type Window struct {
	Header
	Marks   []TimeMark // seconds that begin in this window, ascending
	Columns []string   // full names; sections refer to them by index
	// Authors are of posts that came or were deleted, an entry for each time; nil: it is
	// not known, as where messages are lost that a node may have counted (I10).
	Authors  []uint64
	Sections [][]byte // one for each shard, then one for every node (channels)
	Version  int      // of FormatWindows; to AppendWindow, 0 is the newest
}

// The encoding of a window, all integers unsigned LEB128 unless said:
//
//	┌─────┬────┬─────────┬───────┬────────┬──────┬───────┬───────────────┐
//	│"TMW"│ 01 │ From    │ To    │ Rules  │Events│ Time  │ marks         │
//	│ 3 B │ 1 B│         │ -From │ 8 B LE │      │       │ n, n × (Δsec, │
//	│     │    │         │       │        │      │       │  pos - From)  │
//	├─────┴────┴──┬──────┴───┬───┴────────┴─┬────┴────────┼───────────────┤
//	│ columns     │ authors  │ sections     │ section     │ CRC-32C of all│
//	│ n, n × (len,│ n, (n-1) │ n, n × length│ bytes, one  │ before it,    │
//	│  name)      │ × id     │              │ by one      │ 4 B LE        │
//	└─────────────┴──────────┴──────────────┴─────────────┴───────────────┘
//
// The byte after the magic is the version of FormatWindows. Where n of the authors is 0,
// they are not known.
const windowMagic = "TMW"

// windowHead is the least that a window has before From.
const windowHead = len(windowMagic) + 1

// checksumBytes is what a window's checksum takes, at its end.
const checksumBytes = 4

// ErrWindow wraps every complaint about a window's bytes.
var ErrWindow = errors.New("pipeline: malformed window")

// ErrWindowVersion is that of a window of a version that this program does not read.
var ErrWindowVersion = fmt.Errorf("%w: its version is not known", ErrWindow)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendWindow appends w's encoding.
func AppendWindow(dst []byte, w *Window) []byte {
	start := len(dst)
	dst = append(dst, windowMagic...)
	dst = append(dst, byte(cmp.Or(w.Version, FormatWindows.Newest)))
	dst = binary.AppendUvarint(dst, uint64(w.From))
	dst = binary.AppendUvarint(dst, uint64(w.To-w.From))
	dst = binary.LittleEndian.AppendUint64(dst, w.Rules)
	dst = binary.AppendUvarint(dst, w.Events)
	dst = binary.AppendUvarint(dst, uint64(w.Time))
	dst = binary.AppendUvarint(dst, uint64(len(w.Marks)))
	second := int64(0)
	for _, m := range w.Marks {
		dst = binary.AppendUvarint(dst, uint64(m.Second-second))
		dst = binary.AppendUvarint(dst, uint64(m.Position-w.From))
		second = m.Second
	}
	dst = binary.AppendUvarint(dst, uint64(len(w.Columns)))
	for _, name := range w.Columns {
		dst = binary.AppendUvarint(dst, uint64(len(name)))
		dst = append(dst, name...)
	}
	dst = appendAuthors(dst, w.Authors)
	dst = binary.AppendUvarint(dst, uint64(len(w.Sections)))
	for _, s := range w.Sections {
		dst = binary.AppendUvarint(dst, uint64(len(s)))
	}
	for _, s := range w.Sections {
		dst = append(dst, s...)
	}
	return appendChecksum(dst, start)
}

func appendAuthors(dst []byte, authors []uint64) []byte {
	if authors == nil {
		return append(dst, 0)
	}
	dst = binary.AppendUvarint(dst, uint64(len(authors))+1)
	for _, id := range authors {
		dst = binary.AppendUvarint(dst, id)
	}
	return dst
}

// appendChecksum closes the window that begins at dst[start].
func appendChecksum(dst []byte, start int) []byte {
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// DecodeHeader reads a window's header alone.
func DecodeHeader(b []byte) (Header, error) {
	r := reader{b: b}
	h := r.header()
	return h, r.err
}

// CheckWindow compares a window of any version with its checksum.
func CheckWindow(b []byte) error {
	if len(b) < windowHead+checksumBytes {
		return fmt.Errorf("%w: %d bytes are too few", ErrWindow, len(b))
	}
	body := b[:len(b)-checksumBytes]
	if sum := binary.LittleEndian.Uint32(b[len(body):]); sum != crc32.Checksum(body, castagnoli) {
		return fmt.Errorf("%w: checksum does not match", ErrWindow)
	}
	return nil
}

// DecodeWindow reads a whole window and checks it. The result aliases b.
func DecodeWindow(b []byte) (*Window, error) {
	if err := CheckWindow(b); err != nil {
		return nil, err
	}
	r := reader{b: b[:len(b)-checksumBytes]}
	w := &Window{Header: r.header(), Version: int(b[len(windowMagic)])}
	last := TimeMark{math.MinInt64, w.From}
	for n := r.count(2); n > 0; n-- {
		m := TimeMark{max(last.Second, 0) + int64(r.uvarint()), w.From + Position(r.uvarint())}
		if m.Second <= last.Second || m.Position <= last.Position || m.Position > w.To {
			r.fail("second %d at position %d follows %d at %d", m.Second, m.Position, last.Second, last.Position)
			break
		}
		w.Marks = append(w.Marks, m)
		last = m
	}
	for range r.count(1) {
		w.Columns = append(w.Columns, string(r.bytes(r.uvarint())))
	}
	w.Authors = r.authors()
	lengths := make([]uint64, r.count(1))
	for i := range lengths {
		lengths[i] = r.uvarint()
	}
	w.Sections = make([][]byte, len(lengths))
	for i, n := range lengths {
		w.Sections[i] = r.bytes(n)
	}
	if r.err == nil && len(r.b) != 0 {
		r.fail("%d bytes too many", len(r.b))
	}
	return w, r.err
}

// reader decodes varints and remembers the first error.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrWindow, fmt.Sprintf(format, args...))
	}
	r.b = nil
}

func (r *reader) header() Header {
	if !r.version() {
		return Header{}
	}
	var h Header
	h.From = Position(r.uvarint())
	h.To = h.From + Position(r.uvarint())
	if rules := r.bytes(8); rules != nil {
		h.Rules = binary.LittleEndian.Uint64(rules)
	}
	h.Events = r.uvarint()
	h.Time = int64(r.uvarint())
	switch {
	case r.err != nil:
	case h.To <= h.From:
		r.fail("it covers nothing: (%d, %d]", h.From, h.To)
	case h.To > PositionMax:
		r.fail("it ends at position %d, which no log has", h.To)
	}
	return h
}

// version reads what every window begins with.
func (r *reader) version() bool {
	head := r.bytes(uint64(windowHead))
	switch {
	case r.err != nil:
	case string(head[:len(windowMagic)]) != windowMagic:
		r.fail("it does not begin with %q", windowMagic)
	case !FormatWindows.Reads(int(head[len(windowMagic)])):
		r.err = fmt.Errorf("%w: the window has version %d, and this program reads versions %d to %d: use the program that wrote it, or a newer one",
			ErrWindowVersion, head[len(windowMagic)], FormatWindows.Oldest, FormatWindows.Newest)
	}
	return r.err == nil
}

// authors are nil where they are not known.
func (r *reader) authors() []uint64 {
	n := r.uvarint()
	switch {
	case n == 0:
		return nil
	case n-1 > uint64(len(r.b)):
		r.fail("%d authors do not fit in %d bytes", n-1, len(r.b))
		return nil
	}
	authors := make([]uint64, n-1)
	for i := range authors {
		authors[i] = r.uvarint()
	}
	return authors
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("it is cut short")
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count reads how many items of at least `size` bytes follow.
func (r *reader) count(size int) int {
	n := r.uvarint()
	if n > uint64(len(r.b)/size) {
		r.fail("%d items do not fit in %d bytes", n, len(r.b))
		return 0
	}
	return int(n)
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail("it is cut short")
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}
