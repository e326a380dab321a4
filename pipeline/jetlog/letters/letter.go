package letters

import (
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// Headers of a dead letter, beside those of the event.
const (
	HeaderSequence = "Tidemark-Sequence" // of the message in EVENTS
	HeaderLine     = "Tidemark-Line"     // in the message, 0 for the first
	HeaderReason   = "Tidemark-Reason"
	HeaderError    = "Tidemark-Error"           // one sentence
	HeaderLeftOut  = "Tidemark-Headers-Omitted" // how many of the event's did not fit
	// HeaderSubject is the subject of the message in EVENTS, where it has at most
	// subjectBytesMax bytes.
	HeaderSubject = "Tidemark-Subject"

	// carriedPrefix renames headers that would act on our stream, and those
	// that would pass for ours.
	carriedPrefix = "Tidemark-"

	detailBytesMax  = 1024
	subjectBytesMax = 256
	// headersBytesMax is JetStream's limit on all headers of a message.
	headersBytesMax = 64<<10 - 1
)

// letterMessage is a dead letter as it is published: its body untouched, its
// headers as they came, except that
//
//   - names that begin with Nats- (they would expect a sequence, set a time to
//     live, roll up the stream) or Tidemark-, and Status and Description (with
//     them, client libraries take a message without a body for an answer of the
//     server) get carriedPrefix in front;
//   - characters that cannot be published in a name become underscores.
//
// The message is never larger than bytesMax as long as the body leaves
// EnvelopeBytes of it, which EVENTS sees to, and its headers never exceed
// headersBytesMax. The event's own fitted both before; only where hundreds of
// them grow by being renamed or respaced, or they filled JetStream's limit
// already, those that do not fit are left out and counted.
func letterMessage(l pipeline.DeadLetter, bytesMax int64) *nats.Msg {
	m := &nats.Msg{
		Subject: jetlog.DeadLetterSubject + string(l.Reason),
		Data:    l.Data,
		Header: nats.Header{
			HeaderSequence: {strconv.FormatUint(l.Position.Sequence(), 10)},
			HeaderLine:     {strconv.Itoa(l.Position.Line())},
			HeaderReason:   {string(l.Reason)},
			HeaderError:    {cut(l.Detail, detailBytesMax)},
			HeaderLeftOut:  {strconv.Itoa(len(l.Header))}, // room for the worst

			jetstream.MsgIDHeader:          {eventIDOf(l.Position, l.Data).messageID()},
			jetstream.ExpectedStreamHeader: {jetlog.DeadLetterStream},
		},
	}
	if l.Subject != "" && len(l.Subject) <= subjectBytesMax {
		m.Header.Set(HeaderSubject, l.Subject)
	}
	room := min(bytesMax-int64(len(m.Data)), headersBytesMax) - int64(len("NATS/1.0\r\n\r\n"))
	for name, values := range m.Header {
		room -= headerBytes(name, values)
	}
	omitted := 0
	for _, name := range slices.Sorted(maps.Keys(l.Header)) {
		carried, values := carriedName(name), l.Header[name]
		if size := headerBytes(carried, values); size <= room {
			room -= size
			m.Header[carried] = append(m.Header[carried], values...)
		} else {
			omitted++
		}
	}
	if delete(m.Header, HeaderLeftOut); omitted > 0 {
		m.Header.Set(HeaderLeftOut, strconv.Itoa(omitted))
	}
	return m
}

// EventID names a refused event by its position and its body: an EVENTS that lost
// its tail before a position was counted may hold another message there, and that
// one must not pass for the letter already kept (I9). All letters of one event
// have the same.
type EventID struct {
	Position pipeline.Position
	Sum      uint32 // CRC-32 of the letter's body
}

func eventIDOf(position pipeline.Position, body []byte) EventID {
	return EventID{position, crc32.ChecksumIEEE(body)}
}

const messageIDPrefix = "dl-"

// messageID is the letter's Nats-Msg-Id.
func (e EventID) messageID() string { return messageIDPrefix + e.String() }

func (e EventID) String() string { return fmt.Sprintf("%d-%08x", e.Position, e.Sum) }

// parseEventID reads a letter's Nats-Msg-Id.
func parseEventID(text string) (e EventID, ok bool) {
	text, is := strings.CutPrefix(text, messageIDPrefix)
	position, sum, _ := strings.Cut(text, "-")
	at, err := pipeline.ParsePosition(position)
	n, bad := strconv.ParseUint(sum, 16, 32)
	e = EventID{at, uint32(n)}
	return e, is && err == nil && bad == nil && e.String() == text
}

// headerBytes is what a header takes on the wire.
func headerBytes(name string, values []string) int64 {
	n := 0
	for _, v := range values {
		n += len(name) + len(": \r\n") + len(v)
	}
	return int64(n)
}

func carriedName(name string) string {
	name = strings.Map(func(c rune) rune {
		if c <= ' ' || c > '~' || strings.ContainsRune("\"()/,:;<=>?@[\\]{}", c) {
			return '_'
		}
		return c
	}, name)
	if name == "" {
		return "_"
	}
	if hasPrefixFold(name, "Nats-") || hasPrefixFold(name, carriedPrefix) ||
		strings.EqualFold(name, "Status") || strings.EqualFold(name, "Description") {
		return carriedPrefix + name
	}
	return name
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// cut shortens s to n bytes, between characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
