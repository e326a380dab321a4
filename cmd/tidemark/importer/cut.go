package importer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
)

// packBytesMax bounds the lines of a pack. A longer line has one of its own.
const packBytesMax = 256 << 10

// digest is the beginning of the SHA-256 of all lines up to some line, each
// with a newline.
type digest [16]byte

func (d digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText implements [encoding.TextMarshaler].
func (d digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *digest) UnmarshalText(text []byte) error {
	if n, err := hex.Decode(d[:], text[:min(len(text), 2*len(d))]); err != nil || n != len(d) || len(text) != 2*n {
		return fmt.Errorf("%.40q is not a digest of %d hex digits", text, 2*len(d))
	}
	return nil
}

func digestOf(h hash.Hash) (d digest) {
	copy(d[:], h.Sum(nil))
	return d
}

// pack is one message: some lines of the import, numbered from 1, blank ones
// left out.
type pack struct {
	first, last uint64
	hash        digest // of all lines up to last
	body        []byte // newlines in between
	// early: it ends because the input did, not by the rules. A later run of
	// a longer input would cut it otherwise, so the record must hold its end
	// (record.Cut) before it is sent.
	early bool

	sequence uint64 // in EVENTS, once it is known to be stored
	future   future // while it is on its way
	tries    int    // how often this run has sent it
}

// cutter cuts lines into packs. It is a plain value: the packs follow from
// the lines and the fields set at the start.
type cutter struct {
	linesMax, bytesMax int
	cut                uint64 // a pack ends with this line; 0: none must
	emit               func(*pack)

	sum  hash.Hash
	line uint64 // the last one
	pack *pack
	room int // for the next body
}

func newCutter(linesMax, bytesMax int, cut uint64, emit func(*pack)) *cutter {
	return &cutter{linesMax: linesMax, bytesMax: bytesMax, cut: cut, emit: emit, sum: sha256.New()}
}

// skip takes a line, without its end, that needs no sending.
func (c *cutter) skip(line []byte) {
	c.sum.Write(line)
	c.sum.Write(newline)
	c.line++
}

// hash is of all lines in packs, and of those skipped.
func (c *cutter) hash() digest { return digestOf(c.sum) }

// add takes a line without its end.
func (c *cutter) add(line []byte) {
	if c.pack != nil && len(c.pack.body)+1+len(line) > c.bytesMax {
		c.end(false)
	}
	c.line++
	if c.pack == nil {
		c.pack = &pack{first: c.line, body: make([]byte, 0, max(c.room, len(line)))}
	} else {
		c.pack.body = append(c.pack.body, '\n')
	}
	c.pack.body = append(c.pack.body, line...)
	c.pack.last = c.line
	if c.pack.last-c.pack.first+1 == uint64(c.linesMax) || c.line == c.cut {
		c.end(false)
	}
}

// end emits the lines at hand, if there are any.
func (c *cutter) end(early bool) {
	p := c.pack
	if p == nil {
		return
	}
	c.pack = nil
	c.sum.Write(p.body)
	c.sum.Write(newline)
	p.hash, p.early = c.hash(), early
	c.room = min(len(p.body)+len(p.body)/8, c.bytesMax)
	c.emit(p)
}

var newline = []byte{'\n'}
