package service

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/internal/jsonscan"
)

// failure is a reply that says what is wrong, by the micro headers.
type failure struct {
	code    code
	message string
	body    []byte // beside the headers, for programs; mostly none
}

func fail(c code, format string, args ...any) *failure {
	return &failure{code: c, message: fmt.Sprintf(format, args...)}
}

// code is the class of an answer, after HTTP's.
type code int

const (
	codeOK         code = 200
	codeBadRequest code = 400 // what is wrong and where; a position that is not to be expected
	codeNotFound   code = 404 // no such counter or column
	codeTooMuch    code = 413 // more than one request or reply may hold
	codeInternal   code = 500
	codeNotReady   code = 503 // still loading, busy, or stopping; the log does not answer
	codeTooLate    code = 504 // a position was not reached in time
)

var codes = [...]code{codeOK, codeBadRequest, codeNotFound, codeTooMuch, codeInternal, codeNotReady, codeTooLate}

// wait is what any request may carry: answer only with that much applied.
type wait struct {
	position pipeline.Position // min_position, or where the message min_seq ends; 0 asks for nothing
	from     string            // which of the two was given; "": neither
	timeout  time.Duration     // below zero: not given
	whole    bool              // partial is false: no answer rather than one that is not whole
}

const (
	minPosition = "min_position"
	minSeq      = "min_seq"
)

// String names what was asked for, in the request's own terms.
func (w *wait) String() string {
	if w.from == minSeq {
		return fmt.Sprintf("%s %d", minSeq, w.position.Sequence())
	}
	return fmt.Sprintf("%s %s", minPosition, w.position)
}

// once refuses a request that says in two ways what it waits for: it would be
// answered with less applied than one of them asks.
func (w *wait) once(name string) *failure {
	if w.from != "" && w.from != name {
		return fail(codeBadRequest, "%s and %s are both given; give one of them", minPosition, minSeq)
	}
	w.from = name
	return nil
}

// member reads one member of a request if it is wait's own.
func (w *wait) member(s *jsonscan.Scanner, key []byte) (taken bool, f *failure) {
	switch string(key) {
	case minPosition:
		if s.Null() {
			return true, nil
		}
		u, raw, ok := s.Uint()
		if !ok && s.Err() == nil {
			return true, fail(codeBadRequest, "min_position: %s is not a position (an unsigned 64-bit integer, or the same as a string)", clip(raw))
		}
		w.position = pipeline.Position(u)
		return true, w.once(minPosition)
	case minSeq:
		if s.Null() {
			return true, nil
		}
		u, raw, ok := s.Uint()
		// An acknowledgement never says 0: taken for "wait for nothing", it
		// would hide a client's mistake.
		if s.Err() == nil && (!ok || u == 0 || u > sequenceMax) {
			return true, noSequence(clip(raw))
		}
		w.position = pipeline.EndOf(u) // of a pack: all of it
		return true, w.once(minSeq)
	case "timeout_ms":
		if s.Null() {
			return true, nil
		}
		u, raw, ok := s.Uint()
		if !ok && s.Err() == nil {
			return true, fail(codeBadRequest, "timeout_ms: %s is not a number of milliseconds", clip(raw))
		}
		w.timeout = time.Duration(min(u, uint64(timeoutCeiling/time.Millisecond))) * time.Millisecond
		return true, nil
	case "partial":
		partial := true
		f := parseBool(s, "partial", &partial)
		w.whole = !partial
		return true, f
	}
	return false, nil
}

func noSequence(given string) *failure {
	return fail(codeBadRequest, "min_seq: %s is not a sequence of the log (a whole number from 1 to %d, or the same as a string)", given, sequenceMax)
}

// orPass reads a member if it is wait's own and passes over it otherwise.
func (w *wait) orPass(s *jsonscan.Scanner, key []byte) *failure {
	taken, f := w.member(s, key)
	if !taken {
		s.Value()
	}
	return f
}

// parseUser reads the one user that a request is about; null is none given.
func parseUser(s *jsonscan.Scanner, user *uint64) *failure { return parseID(s, "user", user) }

// parseID reads one id; null is none given.
func parseID(s *jsonscan.Scanner, name string, to *uint64) *failure {
	if s.Null() {
		return nil
	}
	id, raw, ok := s.Uint()
	if s.Err() == nil && (!ok || id == 0) {
		return fail(codeBadRequest, "%s: %s is not an id: ids are whole numbers from 1 to 18446744073709551615, as numbers or strings", name, clip(raw))
	}
	*to = id
	return nil
}

// parseName reads the name of a counter or column; null is none given.
func parseName(s *jsonscan.Scanner, name string) (text []byte, f *failure) {
	if s.Null() {
		return nil, nil
	}
	text, raw, ok := s.String()
	if !ok && s.Err() == nil {
		return nil, fail(codeBadRequest, "%s: %s is not a name", name, clip(raw))
	}
	return text, nil
}

// parsePlace reads where a page starts or what was shown: a position or an
// id, where 0 and null stand for none.
func parsePlace(s *jsonscan.Scanner, name, kind string, place *uint64) (given bool, f *failure) {
	if s.Null() {
		return false, nil
	}
	u, raw, ok := s.Uint()
	if s.Err() == nil && !ok {
		return false, fail(codeBadRequest, "%s: %s is not %s (an unsigned 64-bit integer, or the same as a string)", name, clip(raw), kind)
	}
	*place = u
	return true, nil
}

// parseLimit reads how much one page may hold.
func parseLimit(s *jsonscan.Scanner, limit *int, most int) *failure {
	if s.Null() {
		return nil
	}
	raw := s.Value()
	if s.Err() != nil {
		return nil // End reports it
	}
	digits := raw
	if len(raw) > 2 && raw[0] == '"' {
		digits = raw[1 : len(raw)-1]
	}
	for _, d := range digits {
		if d < '0' || d > '9' {
			return fail(codeBadRequest, "limit: %s is not a number from 1 to %d", clip(raw), most)
		}
	}
	n, err := strconv.Atoi(string(digits)) // all digits: the only error is that it is too large
	switch {
	case err != nil || n > most:
		return fail(codeTooMuch, "limit: %s is more than %d; ask for one page after the other", clip(raw), most)
	case n == 0:
		return fail(codeBadRequest, "limit: %s is not a number from 1 to %d", clip(raw), most)
	}
	*limit = n
	return nil
}

// parseBool reads true or false; null is none given.
func parseBool(s *jsonscan.Scanner, name string, to *bool) *failure {
	if s.Null() {
		return nil
	}
	raw := s.Value()
	if s.Err() != nil {
		return nil // End reports it
	}
	*to = string(raw) == "true"
	if !*to && string(raw) != "false" {
		return fail(codeBadRequest, "%s: %s is not true or false", name, clip(raw))
	}
	return nil
}

// notOf passes over a value of another kind than it should be.
func notOf(s *jsonscan.Scanner, name, kind string) *failure {
	raw := s.Value()
	if s.Err() != nil {
		return nil // End reports it
	}
	return fail(codeBadRequest, "%s: %s is not %s", name, clip(raw), kind)
}

// sequenceMax is beyond every log, and small enough to have a position.
const sequenceMax = uint64(pipeline.PositionMax) / pipeline.PackMax

// timeoutCeiling keeps a timeout within time.Duration, however long was asked.
const timeoutCeiling = 24 * time.Hour

// parseWait reads a request that has nothing of its own. An empty body is an
// empty request.
func parseWait(c *call) *failure {
	if len(c.body) == 0 {
		return nil
	}
	s := &c.scanner
	s.Reset(c.body)
	for s.Object(); s.Member(); {
		if f := c.wait.orPass(s, s.Key()); f != nil {
			return f
		}
	}
	return notJSON(s.End())
}

func notJSON(err error) *failure {
	if err == nil {
		return nil
	}
	return fail(codeBadRequest, "the body is not the JSON object it should be: %v", err)
}

// clip makes a request's own words fit into an error: short, and of one line.
func clip(raw []byte) string { return clipTo(raw, clipMax) }

const clipMax = 48 // bytes

// clipTo clips to most bytes.
func clipTo(raw []byte, most int) string {
	text := raw
	if len(text) > most {
		text = text[:most]
		for len(text) > 0 { // not half a character
			if r, size := utf8.DecodeLastRune(text); r != utf8.RuneError || size > 1 {
				break
			}
			text = text[:len(text)-1]
		}
	}
	words := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, string(text))
	if len(raw) > most {
		words += "…"
	}
	return words
}
