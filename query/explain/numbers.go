package explain

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/pipeline"
)

// noticeKey stands in a filter for a stretch that may have notices. 0 is no id.
const noticeKey = 0

var (
	digitEscape = []byte(`\u003`) // \u0030 to \u0039 are digits, the rest is not: '<' is \u003c
	noticeWord  = []byte("notice")
	deleteWord  = []byte(`"del"`)
	// letterEscapes are of a to z, which nobody writes so.
	letterEscapes = [][]byte{[]byte(`\u006`), []byte(`\u007`)}
)

// deleteKey stands in a filter for a stretch that may have rows that are deleted
// (adjust with del). An id like it makes the filter say yes more often.
const deleteKey = math.MaxUint64

// deleteIn says whether a text may delete a row.
func deleteIn(text []byte) bool {
	return bytes.Contains(text, deleteWord) || bytes.Contains(text, letterEscapes[0])
}

// mayNotice says whether a message may have a notice.
func mayNotice(m *pipeline.Message) bool {
	return strings.HasSuffix(m.Subject, ".notice") || noticeIn(m.Data)
}

// noticeIn says whether a text may be of one.
func noticeIn(text []byte) bool {
	return bytes.Contains(text, noticeWord) || bytes.Contains(text, letterEscapes[0]) || bytes.Contains(text, letterEscapes[1])
}

// eachNumber visits the whole numbers that stand in a text as digits, those of
// more than 64 bits left out. An id in an event is one of them, as a number or as
// a string, unless it is written with escapes (escapes).
func eachNumber(text []byte, visit func(uint64) bool) bool {
	for i := 0; i < len(text); i++ {
		c := text[i] - '0'
		if c > 9 {
			continue
		}
		u, fits := uint64(c), true
		for i++; i < len(text); i++ {
			c = text[i] - '0'
			if c > 9 {
				break
			}
			fits = fits && (u < math.MaxUint64/10 || u == math.MaxUint64/10 && c <= math.MaxUint64%10)
			u = u*10 + uint64(c)
		}
		if fits && !visit(u) {
			return false
		}
	}
	return true
}

// escapes says that a text may hold digits that are written as escapes: "\u0031"
// is a way to say 1, though nobody does.
func escapes(text []byte) bool {
	for {
		at := bytes.Index(text, digitEscape)
		if at < 0 {
			return false
		}
		text = text[at+len(digitEscape):]
		if len(text) > 0 && text[0] >= '0' && text[0] <= '9' {
			return true
		}
	}
}

// mention is an id to look for in texts.
type mention struct {
	id     uint64
	digits []byte
}

func mentionOf(id uint64) mention { return mention{id, strconv.AppendUint(nil, id, 10)} }

// may says quickly whether a text may name the id: false is certain.
func (m mention) may(text []byte) bool { return bytes.Contains(text, m.digits) || escapes(text) }

// in says whether a text names the id, as far as digits tell.
func (m mention) in(text []byte) bool {
	if !m.may(text) {
		return false
	}
	return !eachNumber(text, func(u uint64) bool { return u != m.id }) || escapes(text)
}
