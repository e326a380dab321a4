package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/tidemark-io/tidemark/pipeline"
)

const (
	// segmentBytesMax is how many bytes of bodies, or of their index, close a
	// segment, which is made and read in memory. A message may go beyond it.
	segmentBytesMax = 16 << 20
	// segmentMessagesMax closes a segment of small messages.
	segmentMessagesMax = 1 << 18
	// decodedBytesMax bounds what a file decodes to, whatever it says: a segment
	// and the largest message, or its index.
	decodedBytesMax = 1 << 30
)

// Segment says what two files hold: the messages of EVENTS from First to Last. A
// sequence between that has no message had none in the stream.
type Segment struct {
	Format   int       `json:"format"` // version of pipeline.FormatBackups
	Events   time.Time `json:"events"` // when EVENTS was created
	First    uint64    `json:"first"`  // sequences
	Last     uint64    `json:"last"`
	Messages int       `json:"messages"`
	Time     int64     `json:"time"` // the newest stream timestamp, Unix milliseconds; 0: no message
	Bodies   File      `json:"bodies"`
	Index    File      `json:"index"`
}

// File is one file of a segment.
type File struct {
	Bytes   int64 `json:"bytes"`   // as stored
	Decoded int64 `json:"decoded"` // decompressed
	Sum     Sum   `json:"sha256"`  // as stored
}

// entry is a message's line of the index. The body is in the other file.
type entry struct {
	Sequence uint64              `json:"sequence"`
	Time     int64               `json:"time"` // Unix milliseconds
	Subject  string              `json:"subject"`
	Bytes    int                 `json:"bytes"` // of the body, without the end of line after it
	Header   map[string][]string `json:"header,omitempty"`
}

// builder makes one segment after the other.
type builder struct {
	segment       Segment
	bodies, index encoder
	line          bytes.Buffer
	json          *json.Encoder
}

// encoder compresses into memory.
type encoder struct {
	out   bytes.Buffer
	z     *zstd.Encoder
	bytes int64
}

func (e *encoder) begin() error {
	e.out.Reset()
	e.bytes = 0
	if e.z == nil {
		var err error
		e.z, err = zstd.NewWriter(&e.out, zstd.WithEncoderConcurrency(1))
		return err
	}
	e.z.Reset(&e.out)
	return nil
}

func (e *encoder) write(b []byte) error {
	e.bytes += int64(len(b))
	_, err := e.z.Write(b)
	return err
}

func (e *encoder) end() (File, error) {
	err := e.z.Close()
	return File{int64(e.out.Len()), e.bytes, sha256.Sum256(e.out.Bytes())}, err
}

// begin begins the segment from a sequence on.
func (b *builder) begin(version int, events time.Time, first uint64) error {
	b.segment = Segment{Format: version, Events: events, First: first, Last: first - 1}
	if b.json == nil {
		b.json = json.NewEncoder(&b.line)
		b.json.SetEscapeHTML(false)
	}
	return errors.Join(b.bodies.begin(), b.index.begin())
}

func (b *builder) full() bool {
	return max(b.bodies.bytes, b.index.bytes) >= segmentBytesMax || b.segment.Messages >= segmentMessagesMax
}

func (b *builder) add(m *pipeline.Message) error {
	b.segment.Last = m.Sequence
	b.segment.Messages++
	b.segment.Time = max(b.segment.Time, m.Time)
	b.line.Reset()
	if err := b.json.Encode(entry{m.Sequence, m.Time, m.Subject, len(m.Data), m.Header}); err != nil {
		return err
	}
	if err := b.index.write(b.line.Bytes()); err != nil {
		return err
	}
	if err := b.bodies.write(m.Data); err != nil {
		return err
	}
	return b.bodies.write([]byte{'\n'})
}

// end ends the segment, which covers all up to last.
func (b *builder) end(last uint64) (s Segment, bodies, index []byte, err error) {
	b.segment.Last = last
	var errs [2]error
	b.segment.Bodies, errs[0] = b.bodies.end()
	b.segment.Index, errs[1] = b.index.end()
	return b.segment, b.bodies.out.Bytes(), b.index.out.Bytes(), errors.Join(errs[:]...)
}

// Check says what is wrong with a segment, wherever it comes from.
func (s *Segment) Check() error {
	switch {
	case !pipeline.FormatBackups.Reads(s.Format):
		return fmt.Errorf("archive: messages %d to %d have version %d, and this program reads versions %d to %d: use the program that wrote them, or a newer one",
			s.First, s.Last, s.Format, pipeline.FormatBackups.Oldest, pipeline.FormatBackups.Newest)
	case s.First == 0 || s.Last < s.First || s.Last-s.First+1 < uint64(max(s.Messages, 0)) || s.Messages < 0,
		s.Bodies.Decoded > decodedBytesMax || s.Index.Decoded > decodedBytesMax:
		return fmt.Errorf("%w: a segment of %d messages, from %d to %d, in %d and %d bytes", ErrCorrupt, s.Messages, s.First, s.Last, s.Bodies.Decoded, s.Index.Decoded)
	}
	return nil
}

// Decode gives the messages of a segment, of what its two files hold. The error
// wraps [ErrCorrupt] and names the file.
func (s *Segment) Decode(bodies, index []byte) ([]pipeline.Message, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	list, err := s.Index.decode(index)
	if err != nil {
		return nil, fmt.Errorf("the index: %w", err)
	}
	data, err := s.Bodies.decode(bodies)
	if err != nil {
		return nil, fmt.Errorf("the bodies: %w", err)
	}
	out := make([]pipeline.Message, 0, s.Messages)
	last, decoder := s.First-1, json.NewDecoder(bytes.NewReader(list))
	for range s.Messages {
		var e entry
		switch err := decoder.Decode(&e); {
		case err != nil:
			return nil, fmt.Errorf("%w: the index ends after message %d, or makes no sense: %w", ErrCorrupt, last, err)
		case e.Sequence <= last || e.Sequence > s.Last:
			return nil, fmt.Errorf("%w: message %d comes after %d", ErrCorrupt, e.Sequence, last)
		case e.Bytes < 0 || e.Bytes >= len(data) || data[e.Bytes] != '\n':
			return nil, fmt.Errorf("%w: the body of message %d does not end after %d bytes", ErrCorrupt, e.Sequence, e.Bytes)
		}
		out = append(out, pipeline.Message{Sequence: e.Sequence, Time: e.Time, Subject: e.Subject, Header: e.Header, Data: data[:e.Bytes:e.Bytes]})
		data, last = data[e.Bytes+1:], e.Sequence
	}
	if _, err := decoder.Token(); len(data) > 0 || err != io.EOF {
		return nil, fmt.Errorf("%w: there is more after message %d, the last of %d", ErrCorrupt, last, s.Messages)
	}
	return out, nil
}

// decode checks what a file holds and decompresses it.
func (f *File) decode(b []byte) ([]byte, error) {
	if sum := Sum(sha256.Sum256(b)); int64(len(b)) != f.Bytes || sum != f.Sum {
		return nil, fmt.Errorf("%w: its %d bytes are not the %d that were written: the SHA-256 is %s, and was %s", ErrCorrupt, len(b), f.Bytes, sum, f.Sum)
	}
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(decodedBytesMax))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	out, err := z.DecodeAll(b, make([]byte, 0, max(0, min(f.Decoded, decodedBytesMax))))
	if err == nil && int64(len(out)) != f.Decoded {
		err = fmt.Errorf("%d bytes came of it, and %d went into it", len(out), f.Decoded)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return out, nil
}
