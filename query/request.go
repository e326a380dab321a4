package query

import (
	"fmt"
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
}

func fail(c code, format string, args ...any) *failure {
	return &failure{c, fmt.Sprintf(format, args...)}
}

// code is the class of an answer, after HTTP's.
type code int

const (
	codeOK         code = 200
	codeBadRequest code = 400 // what is wrong and where
	codeNotFound   code = 404 // no such counter or column
	codeTooMuch    code = 413 // more than one request or reply may hold
	codeInternal   code = 500
	codeNotReady   code = 503 // still loading, busy, or stopping
	codeTooLate    code = 504 // min_position was not reached in time
)

var codes = [...]code{codeOK, codeBadRequest, codeNotFound, codeTooMuch, codeInternal, codeNotReady, codeTooLate}

// wait is what any request may carry: answer only with that much applied.
type wait struct {
	position pipeline.Position // min_position; 0 asks for nothing
	timeout  time.Duration     // below zero: not given
}

// member reads one member of a request if it is wait's own.
func (w *wait) member(s *jsonscan.Scanner, key []byte) (taken bool, f *failure) {
	switch string(key) {
	case "min_position":
		if s.Null() {
			return true, nil
		}
		u, raw, ok := s.Uint()
		if !ok && s.Err() == nil {
			return true, fail(codeBadRequest, "min_position: %s is not a position (an unsigned 64-bit integer, or the same as a string)", clip(raw))
		}
		w.position = pipeline.Position(u)
		return true, nil
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
	}
	return false, nil
}

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
		taken, f := c.wait.member(s, s.Key())
		if f != nil {
			return f
		}
		if !taken {
			s.Value()
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
func clip(raw []byte) string {
	const most = 48
	text := raw
	if len(text) > most {
		text = text[:most]
		for len(text) > 0 && !utf8.Valid(text) {
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
