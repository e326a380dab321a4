package wire

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// The versions of pipeline.FormatWire that this package understands. A message says
// Version, and the version in which it is written.
var (
	Version = byte(pipeline.FormatWire.Newest)
	Oldest  = byte(pipeline.FormatWire.Oldest)
)

// The first bytes of a message.
const (
	asksMagic    = "TMA"
	repliesMagic = "TMB"
)

const (
	asksHead    = len(asksMagic) + 2 + 8
	repliesHead = len(repliesMagic) + 3
	checksum    = 4
	// AskOverhead is the most that a part takes besides its body.
	AskOverhead = 5*binary.MaxVarintLen64 + 1
	// BatchOverhead is what a batch takes besides its parts.
	BatchOverhead = asksHead + checksum
	// MessageMin is the least max_payload with which nodes can talk: the longest
	// record, with what stands around it, fits into a message.
	MessageMin = 32 << 10
	// PartsMax is the most parts in a batch.
	PartsMax = 1 << 12
)

// What is wrong with a message. A damaged one may be whole when it is sent
// again, by another node perhaps; the others will not.
var (
	ErrDamaged = errors.New("wire: damaged")
	ErrVersion = errors.New("wire: version")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Fingerprint is of what two nodes must have in common to ask each other: the
// number of shards, and the columns that answers show. How they number columns
// is not in it.
func Fingerprint(schema *pipeline.Schema, shards int) uint64 {
	var lines []string
	for i := range schema.Columns {
		if c := &schema.Columns[i]; !c.Hidden {
			lines = append(lines, fmt.Sprintf("%q %d %d\n", schema.FullName(pipeline.Column(i)), c.Max, c.Default))
		}
	}
	slices.Sort(lines)
	h := sha256.New()
	fmt.Fprintf(h, "%d\n", shards)
	for _, line := range lines {
		h.Write([]byte(line))
	}
	return binary.LittleEndian.Uint64(h.Sum(nil))
}

// Ask is one part of a batch: a question with what every question has.
type Ask struct {
	ID     uint64            // the asker's name for it; not 0
	Kind   Kind              // of the question
	Min    pipeline.Position // the answer reflects it; 0: as it comes
	Wait   time.Duration     // Min is waited for no longer; whole milliseconds
	Within time.Duration     // the asker waits no longer; whole milliseconds
	Body   []byte            // the question
}

// Batch is what a batch says besides its parts.
type Batch struct {
	Version byte // the asker's
	Schema  uint64
}

// Both is the newest version that this package and a node of another version know.
func Both(version byte) byte { return byte(pipeline.FormatWire.Within(int(version))) }

// newer says that a sender may say more than this package knows.
func newer(version byte) bool { return version > Version }

// BeginBatch appends what comes before the parts, which are written in a version that
// the receiver is known to understand.
func BeginBatch(b []byte, schema uint64, in byte) []byte {
	b = append(b, asksMagic...)
	b = append(b, in, Version)
	return binary.LittleEndian.AppendUint64(b, schema)
}

// AppendAsk appends a part: AskOverhead bytes and its body at most.
func AppendAsk(b []byte, a *Ask) []byte {
	var head [AskOverhead]byte
	h := binary.AppendUvarint(head[:0], a.ID)
	h = append(h, byte(a.Kind))
	h = binary.AppendUvarint(h, uint64(a.Min))
	h = binary.AppendUvarint(h, uint64(max(a.Wait, 0)/time.Millisecond))
	h = binary.AppendUvarint(h, uint64(max(a.Within, 0)/time.Millisecond))
	b = binary.AppendUvarint(b, uint64(len(h)+len(a.Body)))
	b = append(b, h...)
	return append(b, a.Body...)
}

// End appends the checksum of all before it.
func End(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// open checks a message and returns what stands between its head and checksum. A
// version that is too new is reported before anything else is looked at but the
// checksum, which stays where it is in every version.
func open(message []byte, magic string, head int) (body []byte, version byte, err error) {
	if len(message) < head+checksum {
		return nil, 0, fmt.Errorf("%w: %d bytes are no message", ErrDamaged, len(message))
	}
	body = message[:len(message)-checksum]
	if is, says := crc32.Checksum(body, castagnoli), binary.LittleEndian.Uint32(message[len(body):]); is != says {
		return nil, 0, fmt.Errorf("%w: the checksum is %08x, and the message says %08x", ErrDamaged, is, says)
	}
	if string(body[:len(magic)]) != magic {
		return nil, 0, fmt.Errorf("%w: it begins with %q, not %q", ErrDamaged, body[:len(magic)], magic)
	}
	least, version := body[len(magic)], body[len(magic)+1]
	if least > Version || version < Oldest {
		return nil, 0, fmt.Errorf("%w: this node understands versions %d to %d, and the message is of version %d and needs %d at least", ErrVersion, Oldest, Version, version, least)
	}
	return body[head:], version, nil
}

// DecodeBatch reads a batch; its parts are appended to asks and share the
// message's memory.
func DecodeBatch(message []byte, asks []Ask) (Batch, []Ask, error) {
	rest, version, err := open(message, asksMagic, asksHead)
	if err != nil {
		return Batch{}, asks, err
	}
	batch := Batch{version, binary.LittleEndian.Uint64(message[len(asksMagic)+2:])}
	c := over(rest)
	for n := 0; len(c.B) > 0; n++ {
		if n == PartsMax {
			return batch, asks, fmt.Errorf("%w: more than %d parts", ErrDamaged, PartsMax)
		}
		p := over(c.Sized())
		a := Ask{ID: p.Uvarint(), Kind: Kind(p.Byte()), Min: pipeline.Position(p.Uvarint())}
		a.Wait, a.Within = p.milliseconds(), p.milliseconds()
		a.Body = p.B
		if err := errors.Join(c.Err, p.Err); err != nil || a.ID == 0 {
			return batch, asks, fmt.Errorf("%w: part %d: %w", ErrDamaged, n, cmp.Or(err, errNoID))
		}
		asks = append(asks, a)
	}
	return batch, asks, nil
}

func (c *cursor) milliseconds() time.Duration {
	return time.Duration(min(c.Uvarint(), withinMax)) * time.Millisecond
}

// withinMax keeps a time within time.Duration, in milliseconds.
const withinMax = 86_400_000

var errNoID = errors.New("no id")

// Status says what became of a part.
type Status byte

const (
	Answered  Status = iota // the body has records
	Elsewhere               // the shard is not held there, or not ready
	Stopped                 // the shard is stopped there
	Behind                  // Min was not reached in time
	Busy                    // too much is in work there; the body says what
	Refused                 // not understood; the body says why
	Failed                  // the body says why
	Garbled                 // the batch came damaged
)

// Reply is a piece of a part's answer.
type Reply struct {
	ID      uint64 // the part's; 0: of every part of the batch
	Status  Status
	Piece   int  // from 0
	Last    bool // no piece after this one
	Applied pipeline.Position
	Body    []byte // records of an answer; else words
}

// taken is the flag of a message behind which the asker may send the next batch.
const taken = 1

// BeginReplies appends what comes before the pieces, which are written in a version
// that the receiver is known to understand.
func BeginReplies(b []byte, in byte) []byte {
	b = append(b, repliesMagic...)
	return append(b, in, Version, 0)
}

// SetTaken marks a message: what of the batch could be answered at once is
// answered in it and in those before it, and the asker may send the next batch.
func SetTaken(message []byte) { message[repliesHead-1] |= taken }

// ReplyOverhead is the most that a piece takes besides its body, and what a
// message takes with one piece in it.
const ReplyOverhead = 4 + 3*binary.MaxVarintLen64 + 1 + repliesHead + checksum

// lastPiece is the flag of the last piece, beside the status.
const lastPiece = 0x80

// BeginReply appends what comes before a piece's body and returns where the
// piece begins, for EndReply.
func BeginReply(b []byte, r *Reply) (_ []byte, at int) {
	at = len(b)
	b = append(b, 0, 0, 0, 0)
	b = append(b, byte(r.Status))
	b = binary.AppendUvarint(b, r.ID)
	b = binary.AppendUvarint(b, uint64(r.Applied))
	return binary.AppendUvarint(b, uint64(r.Piece)), at
}

// EndReply ends a piece that begins at `at`.
func EndReply(b []byte, at int, last bool) {
	binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	if last {
		b[at+4] |= lastPiece
	}
}

// AppendReply appends a piece with a body that is at hand.
func AppendReply(b []byte, r *Reply) []byte {
	b, at := BeginReply(b, r)
	b = append(b, r.Body...)
	EndReply(b, at, r.Last)
	return b
}

// Replies is what a message of replies says besides its pieces.
type Replies struct {
	Version byte
	Taken   bool // see SetTaken
}

// DecodeReplies reads a message; its pieces are appended to replies and share
// its memory.
func DecodeReplies(message []byte, replies []Reply) (Replies, []Reply, error) {
	rest, version, err := open(message, repliesMagic, repliesHead)
	if err != nil {
		return Replies{}, replies, err
	}
	head := Replies{version, message[repliesHead-1]&taken != 0}
	c := over(rest)
	for len(c.B) > 0 {
		p := over(c.Bytes(uint64(c.Uint32())))
		status := p.Byte()
		r := Reply{Status: Status(status &^ lastPiece), Last: status&lastPiece != 0, ID: p.Uvarint(), Applied: pipeline.Position(p.Uvarint())}
		r.Piece = p.Count("piece", PiecesMax)
		r.Body = p.B
		if err := errors.Join(c.Err, p.Err); err != nil {
			return head, replies, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		replies = append(replies, r)
	}
	return head, replies, nil
}

// PiecesMax is the most pieces of one answer.
const PiecesMax = 1 << 16
