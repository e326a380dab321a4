// Package jsonscan reads the few JSON shapes of Tidemark's requests and
// replies in one pass over the body, without a token or a tree in between.
//
// A request is a small object around one long list of ids, and a reply one
// long list of rows; a general decoder spends most of its time on what these
// lists never hold. The scanner walks the flat parts by hand and leaves what
// it does not know (an unknown field that is itself an object, a string with
// escapes) to jsontext, so that what it accepts is JSON and nothing else.
//
//	s.Reset(body)
//	for s.Object(); s.Member(); {
//		switch string(s.Key()) {
//		case "ids":
//			for s.Array(); s.Element(); {
//				id, raw, ok := s.Uint()
//				...
//			}
//		default:
//			s.Value()
//		}
//	}
//	err := s.End()
package jsonscan

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Scanner reads one JSON text. Its first error sticks: from then on every
// method returns at once, so loops end and only End need be asked.
// Slices it returns lie in the text, or, for strings with escapes, do not.
// The zero Scanner is ready for Reset. Not for concurrent use.
type Scanner struct {
	data  []byte
	pos   int
	fresh bool // just behind an opening bracket: no comma is due
	err   error

	digitsAt, digitsLen int // see Digits
}

// Reset starts on another text, which must stay as it is while its slices
// are in use.
func (s *Scanner) Reset(data []byte) { *s = Scanner{data: data} }

// Err is the first error.
func (s *Scanner) Err() error { return s.err }

// End checks that nothing but white space follows and returns the first error.
func (s *Scanner) End() error {
	if s.err == nil && s.peek() != 0 {
		s.fail("the end")
	}
	return s.err
}

// fail notes what was expected at the present place.
func (s *Scanner) fail(expected string) {
	if s.err != nil {
		return
	}
	if s.pos >= len(s.data) {
		s.err = fmt.Errorf("it ends after %d bytes where %s was expected", len(s.data), expected)
	} else {
		s.err = fmt.Errorf("byte %d is %q where %s was expected", s.pos, s.data[s.pos], expected)
	}
	s.pos = len(s.data)
}

// peek passes over white space; 0 is the end of the text.
func (s *Scanner) peek() byte {
	if s.pos < len(s.data) && s.data[s.pos] > ' ' { // as in most replies and requests
		return s.data[s.pos]
	}
	return s.space()
}

func (s *Scanner) space() byte {
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; c {
		case ' ', '\n', '\t', '\r':
			s.pos++
		case 0: // would read as the end
			s.fail("a JSON value")
			return 0
		default:
			return c
		}
	}
	return 0
}

// Object enters an object; go on with Member.
func (s *Scanner) Object() { s.open('{', "an object") }

// Array enters an array; go on with Element.
func (s *Scanner) Array() { s.open('[', "a list") }

func (s *Scanner) open(bracket byte, what string) {
	if s.peek() != bracket || s.err != nil {
		s.fail(what)
		return
	}
	s.pos++
	s.fresh = true
}

// Member is true when the object has another member: read its Key, then its
// value. It is false once, at the object's end.
func (s *Scanner) Member() bool { return s.more('}', "a comma or }") }

// Element is the same for arrays: read a value.
func (s *Scanner) Element() bool { return s.more(']', "a comma or ]") }

func (s *Scanner) more(end byte, expected string) bool {
	if s.err != nil {
		return false
	}
	c := s.peek()
	switch {
	case c == end && s.err == nil:
		s.pos++
		s.fresh = false
		return false
	case s.fresh && c != 0:
		s.fresh = false
		return true
	case c == ',':
		s.pos++
		return true
	}
	s.fail(expected)
	return false
}

// Key reads a member's name and the colon.
func (s *Scanner) Key() []byte {
	key := s.text()
	if s.peek() != ':' || s.err != nil {
		s.fail("a colon")
		return nil
	}
	s.pos++
	return key
}

// Null reads a null, if that is what comes.
func (s *Scanner) Null() bool {
	if s.peek() != 'n' {
		return false
	}
	s.literal("null")
	return s.err == nil
}

// IsArray reports whether an array comes; it reads nothing.
func (s *Scanner) IsArray() bool { return s.peek() == '[' }

// IsObject reports whether an object comes; it reads nothing.
func (s *Scanner) IsObject() bool { return s.peek() == '{' }

// String reads a string; ok is false when the value is something else, raw
// is the value as it stands.
func (s *Scanner) String() (text, raw []byte, ok bool) {
	if s.peek() != '"' {
		return nil, s.Value(), false
	}
	start := s.pos
	text = s.text()
	if s.err != nil {
		return nil, nil, false
	}
	return text, s.data[start:s.pos], true
}

// Uint reads an unsigned 64-bit integer, a number or a string of decimal
// digits; ok is false when the value is something else (a fraction, an
// exponent, too large), raw is the value as it stands.
func (s *Scanner) Uint() (value uint64, raw []byte, ok bool) {
	s.peek()
	d, start := s.data, s.pos
	i := start
	quoted := i < len(d) && d[i] == '"'
	if quoted {
		i++
	}
	first := i
	for i+8 <= len(d) {
		eight, ok := eightDigits(binary.LittleEndian.Uint64(d[i:]))
		if !ok {
			break
		}
		value = value*1e8 + eight
		i += 8
	}
	for i < len(d) {
		c := d[i] - '0'
		if c > 9 {
			break
		}
		value = value*10 + uint64(c)
		i++
	}
	// Up to 19 digits cannot overflow.
	if n := i - first; n > 0 && n <= 19 && i < len(d) {
		switch {
		case quoted && d[i] == '"':
			s.pos = i + 1
			s.digitsAt, s.digitsLen = first, n
			if d[first] == '0' {
				s.digitsLen = 0
			}
			return value, d[start:s.pos], true
		case !quoted && (d[i] == ',' || d[i] == ']' || d[i] == '}') && (d[first] != '0' || n == 1):
			s.pos = i
			s.digitsAt, s.digitsLen = first, n
			return value, d[start:i], true
		}
	}
	s.digitsLen = 0
	return s.uintSlow()
}

// Digits is where in the text the last Uint stands as strconv would write
// it; length is 0 where it does not (zeros in front, an escape, 20 digits).
func (s *Scanner) Digits() (offset, length int) { return s.digitsAt, s.digitsLen }

// eightDigits reads eight characters at once, the first in the lowest byte:
// neighbours are joined to pairs, pairs to fours, fours to the eight. It is
// simdjson's way (Langdale and Lemire, "Parsing gigabytes of JSON per
// second", 2019).
func eightDigits(x uint64) (value uint64, ok bool) {
	const high = 0xf0f0f0f0f0f0f0f0
	if x&high|(x+0x0606060606060606)&high>>4 != 0x3333333333333333 {
		return 0, false
	}
	x -= 0x3030303030303030
	x = x*10 + x>>8
	const pairs = 0x000000ff000000ff
	return (x&pairs*(100+1e6<<32) + x>>16&pairs*(1+1e4<<32)) >> 32, true
}

func (s *Scanner) uintSlow() (value uint64, raw []byte, ok bool) {
	raw = s.Value()
	if s.err != nil {
		return 0, nil, false
	}
	text := raw
	if raw[0] == '"' {
		var err error
		if text, err = jsontext.AppendUnquote(nil, raw); err != nil {
			return 0, raw, false
		}
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, raw, false
		}
	}
	value, err := strconv.ParseUint(string(text), 10, 64)
	return value, raw, err == nil
}

// Int reads a signed 64-bit integer; ok and raw are as in Uint.
func (s *Scanner) Int() (value int64, raw []byte, ok bool) {
	s.peek()
	i, negative := s.pos, false
	if i < len(s.data) && s.data[i] == '-' {
		negative = true
		i++
	}
	first := i
	var u int64
	for i < len(s.data) {
		c := s.data[i] - '0'
		if c > 9 {
			break
		}
		u = u*10 + int64(c)
		i++
	}
	if n := i - first; n > 0 && n <= 18 && i < len(s.data) && (s.data[first] != '0' || n == 1) {
		if c := s.data[i]; c == ',' || c == '}' || c == ']' {
			raw = s.data[s.pos:i]
			s.pos = i
			if negative {
				u = -u
			}
			return u, raw, true
		}
	}
	raw = s.Value()
	if s.err != nil {
		return 0, nil, false
	}
	value, err := strconv.ParseInt(string(raw), 10, 64)
	return value, raw, err == nil
}

// Bool reads true or false.
func (s *Scanner) Bool() (value, ok bool) {
	switch string(s.Value()) {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return false, false
}

// Literal passes over exactly these bytes, if they come next: the quick way
// through text whose form is known. Whole values and punctuation only.
func (s *Scanner) Literal(text string) bool {
	if len(s.data)-s.pos < len(text) || string(s.data[s.pos:s.pos+len(text)]) != text {
		return false
	}
	s.pos += len(text)
	return true
}

// Value reads any value and returns it as it stands.
func (s *Scanner) Value() []byte {
	c := s.peek()
	if s.err != nil {
		return nil
	}
	start := s.pos
	switch {
	case c == '"':
		s.text()
	case c == '-' || c >= '0' && c <= '9':
		s.number()
	case c == 't':
		s.literal("true")
	case c == 'f':
		s.literal("false")
	case c == 'n':
		s.literal("null")
	case c == '{' || c == '[':
		s.nested()
	default:
		s.fail("a JSON value")
	}
	if s.err != nil {
		return nil
	}
	return s.data[start:s.pos]
}

func (s *Scanner) literal(word string) {
	if s.pos+len(word) > len(s.data) || string(s.data[s.pos:s.pos+len(word)]) != word {
		s.fail("a JSON value")
		return
	}
	s.pos += len(word)
}

// text reads a string and takes its quotes and escapes off.
func (s *Scanner) text() []byte {
	if s.peek() != '"' || s.err != nil {
		s.fail("a string")
		return nil
	}
	start := s.pos
	s.pos++
	escaped, ascii := false, true
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return s.unquote(start, escaped, ascii)
		case c == '\\':
			escaped = true
			s.pos += 2
		case c < ' ':
			s.fail("a printable character")
			return nil
		default:
			ascii = ascii && c < utf8.RuneSelf
			s.pos++
		}
	}
	s.pos = len(s.data) // an escape may have gone past it
	s.fail(`a closing "`)
	return nil
}

func (s *Scanner) unquote(start int, escaped, ascii bool) []byte {
	inside := s.data[start+1 : s.pos-1]
	if !escaped && (ascii || utf8.Valid(inside)) {
		return inside
	}
	text, err := jsontext.AppendUnquote(nil, s.data[start:s.pos])
	if err != nil {
		s.pos = start
		s.fail("a well-formed UTF-8 string")
		return nil
	}
	return text
}

func (s *Scanner) number() {
	if s.data[s.pos] == '-' {
		s.pos++
	}
	switch {
	case s.pos < len(s.data) && s.data[s.pos] == '0':
		s.pos++
	default:
		s.digits()
	}
	if s.err == nil && s.pos < len(s.data) && s.data[s.pos] == '.' {
		s.pos++
		s.digits()
	}
	if s.err == nil && s.pos < len(s.data) && (s.data[s.pos] == 'e' || s.data[s.pos] == 'E') {
		s.pos++
		if s.pos < len(s.data) && (s.data[s.pos] == '+' || s.data[s.pos] == '-') {
			s.pos++
		}
		s.digits()
	}
}

func (s *Scanner) digits() {
	start := s.pos
	for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
		s.pos++
	}
	if s.pos == start {
		s.fail("a digit")
	}
}

// nested passes over an object or array that nobody asked for.
func (s *Scanner) nested() {
	d := jsontext.NewDecoder(bytes.NewBuffer(s.data[s.pos:]), jsontext.AllowDuplicateNames(true))
	if err := d.SkipValue(); err != nil {
		s.pos += int(d.InputOffset())
		s.fail("a well-formed JSON value")
		return
	}
	s.pos += int(d.InputOffset())
}
