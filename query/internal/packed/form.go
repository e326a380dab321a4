package packed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Version is what this package writes, and all that it reads.
const Version byte = 1

// Header is set in JSON requests of clients that would speak the binary form, and in
// replies of nodes that do: in replies to such requests, and in errors that answer
// requests in binary form. Its value is a version, decimal. An error without it, or
// with another version, comes from a node that did not understand.
const Header = "Tidemark-Binary"

// Offer is the value of Header.
var Offer = strconv.Itoa(int(Version))

// The first bytes of a message. JSON begins with none of them.
const (
	askMagic   = "TMQ"
	replyMagic = "TMR"
)

// CellsMax is the most cells of an answer: ids × columns, or users × (the feed, 1:1
// counters and channels). A column of zeros takes one byte, so nothing else
// bounds what an answer makes of a client's memory: 32 MiB.
const CellsMax = 1 << 22

// IsAsk says whether a body is a request in binary form, of any version.
func IsAsk(body []byte) bool {
	return len(body) > len(askMagic) && string(body[:len(askMagic)]) == askMagic
}

// Wait is what any request may carry.
type Wait struct {
	Position uint64        // min_position; 0: not given
	Sequence uint64        // min_seq; meant only where HasSeq
	HasSeq   bool          // min_seq is given
	Timeout  time.Duration // timeout_ms; below zero: not given
	Whole    bool          // "partial": false
}

// What of a request is given, one bit each.
const (
	givenPosition = 1 << iota
	givenSequence
	givenTimeout
	givenWhole
	givenChannels // the request ends with names of channels
	givenAll      = 1<<iota - 1
)

// appendAsk begins a request.
func appendAsk(b []byte, w *Wait, more byte) []byte {
	given := more
	if w.Position > 0 {
		given |= givenPosition
	}
	if w.HasSeq {
		given |= givenSequence
	}
	if w.Timeout >= 0 {
		given |= givenTimeout
	}
	if w.Whole {
		given |= givenWhole
	}
	b = append(b, askMagic...)
	b = append(b, Version, given)
	if w.Position > 0 {
		b = binary.AppendUvarint(b, w.Position)
	}
	if w.HasSeq {
		b = binary.AppendUvarint(b, w.Sequence)
	}
	if w.Timeout >= 0 {
		b = binary.AppendUvarint(b, uint64(w.Timeout/time.Millisecond))
	}
	return b
}

// timeoutMax keeps a timeout within time.Duration, in milliseconds.
const timeoutMax = 86_400_000

// ask reads the head of a request.
func (c *Cursor) ask(may byte) (w Wait, given byte) {
	if string(c.Bytes(uint64(len(askMagic)))) != askMagic {
		c.Fail("it does not begin with %s", askMagic)
	}
	if v := c.Byte(); c.Err == nil && v != Version {
		c.Fail("it is of version %d, and this node understands version %d", v, Version)
	}
	given = c.Byte()
	if given&^may != 0 {
		c.Fail("flags %#x", given)
	}
	w.Timeout, w.Whole, w.HasSeq = -1, given&givenWhole != 0, given&givenSequence != 0
	if given&givenPosition != 0 {
		w.Position = c.Uvarint()
	}
	if w.HasSeq {
		w.Sequence = c.Uvarint()
	}
	if given&givenTimeout != 0 {
		w.Timeout = time.Duration(min(c.Uvarint(), timeoutMax)) * time.Millisecond
	}
	return w, given
}

// ErrTooMany: a request has more ids than it may.
var ErrTooMany = errors.New("too many ids")

// tooMany looks at the number of ids that come next.
func (c *Cursor) tooMany(most int) {
	ahead := *c
	if n := ahead.Uvarint(); ahead.Err == nil && n > uint64(most) {
		c.Fail("%w: %d", ErrTooMany, n)
	}
}

// What a request may name. A name may take one byte of it, and takes 24 of memory.
const (
	ColumnsMax  = 1 << 10
	ChannelsMax = 1 << 7
)

// TooManyNames is the error for a request that names more of What (columns,
// channels) than it may: Most.
type TooManyNames struct {
	What string
	Most int
}

func (e *TooManyNames) Error() string {
	return fmt.Sprintf("%s[%d]: more than %d %[1]s in one request", e.What, e.Most, e.Most)
}

// names reads a list of most texts at most; they share the memory of what is read.
func (c *Cursor) names(to [][]byte, what string, most int) [][]byte {
	n := c.Uvarint()
	if n > uint64(most) {
		c.Fail("%w", &TooManyNames{what, most})
		return to
	}
	for range n {
		if to = append(to, c.Sized()); c.Err != nil {
			break
		}
	}
	return to
}

func appendNames(b []byte, names []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(names)))
	for _, name := range names {
		b = AppendText(b, name)
	}
	return b
}

// Tail is what answers say besides their cells.
type Tail struct {
	AsOf uint64
	// Missing are the places in the list asked of what could not be read; their
	// cells mean nothing. A place may be there twice.
	Missing []int
	// Stale is how old the answer can be, in milliseconds, where it is older than it may
	// be; 0: it is not.
	Stale uint64
}

// The flags of a reply.
const (
	degraded = 1 << iota // it has places of what is missing
	isStale              // it ends with Tail.Stale
)

// EndReply ends a reply that begins at `at`: its age is known last.
func EndReply(b []byte, at int, stale uint64) []byte {
	if stale == 0 {
		return b
	}
	b[at+len(replyMagic)+1] |= isStale
	return binary.AppendUvarint(b, stale)
}

// appendReply begins a reply.
func appendReply(b []byte, t *Tail) []byte {
	b = append(b, replyMagic...)
	if len(t.Missing) == 0 {
		b = append(b, Version, 0)
		return binary.AppendUvarint(b, t.AsOf)
	}
	b = append(b, Version, degraded)
	b = binary.AppendUvarint(b, t.AsOf)
	b = binary.AppendUvarint(b, uint64(len(t.Missing)))
	for _, i := range t.Missing {
		b = binary.AppendUvarint(b, uint64(i))
	}
	return b
}

// reply reads the head of a reply about n ids; end reads what comes after its cells.
func (c *Cursor) reply(n int) (t Tail, flags byte) {
	if string(c.Bytes(uint64(len(replyMagic)))) != replyMagic {
		c.Fail("it does not begin with %s", replyMagic)
	}
	if v := c.Byte(); c.Err == nil && v != Version {
		c.Fail("it is of version %d, and %d was asked for", v, Version)
	}
	flags = c.Byte()
	if flags&^(degraded|isStale) != 0 {
		c.Fail("flags %#x", flags)
	}
	t.AsOf = c.Uvarint()
	if flags&degraded != 0 {
		missing := c.Count("missing", len(c.B))
		t.Missing = make([]int, 0, missing)
		for range missing {
			t.Missing = append(t.Missing, c.Within("missing", n))
		}
	}
	return t, flags
}

func (c *Cursor) end(t *Tail, flags byte) error {
	if flags&isStale != 0 {
		if t.Stale = c.Uvarint(); c.Err == nil && t.Stale == 0 {
			c.Fail("stale by nothing")
		}
	}
	return c.End()
}

// cells bounds an answer.
func (c *Cursor) cells(n, columns int) {
	if columns > 0 && n > CellsMax/columns {
		c.Fail("%d times %d cells are more than %d", n, columns, CellsMax)
	}
}

// malformed wraps what Cursor found.
func malformed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the binary form of %s: %w", what, err)
}
