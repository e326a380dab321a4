package operators

import (
	"bytes"
	"unicode/utf8"
)

// strangersMax is the most unknown names that scan keeps apart.
const strangersMax = 8

// scan takes apart one JSON object as nearly every event is written: flat, and
// without escapes. It costs a fifth of what a tokenizer does, which is the largest
// part of deriving a window. It returns false for everything else, well-formed
// or not, and has decided nothing then: whether a line is refused, and with what
// words, is left to the tokenizer (parse).
//
// The fields must be cleared before, and are to be cleared when it returns false.
func (o *object) scan(line []byte) bool {
	var strangers [strangersMax][]byte
	unknown, seen := 0, uint64(0) // names, known ones by slot
	s := scanner{line: line}
	if !s.take('{') {
		return false
	}
	for more := !s.take('}'); more; {
		name, ok := s.text()
		if !ok || !s.take(':') {
			return false
		}
		name = name[1 : len(name)-1]
		value, ok := s.value()
		if !ok {
			return false
		}
		if slot, known := o.names.find(name); known {
			if slot >= 64 || seen>>slot&1 == 1 {
				return false
			}
			seen |= 1 << slot
			if value[0] != 'n' {
				o.fields[slot] = value
			}
		} else {
			if unknown == strangersMax {
				return false
			}
			for _, other := range strangers[:unknown] {
				if bytes.Equal(name, other) {
					return false
				}
			}
			strangers[unknown] = name
			unknown++
		}
		if more = s.take(','); !more && !s.take('}') {
			return false
		}
	}
	s.space()
	return s.at == len(line) && (!s.wide || utf8.Valid(line))
}

// scanner walks over a line. Its methods pass over white space first.
type scanner struct {
	line []byte
	at   int
	wide bool // a string has bytes that are not ASCII
}

func (s *scanner) space() {
	for s.at < len(s.line) {
		switch s.line[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return
		}
	}
}

// take passes over a delimiter, if that is next.
func (s *scanner) take(c byte) bool {
	s.space()
	if s.at < len(s.line) && s.line[s.at] == c {
		s.at++
		return true
	}
	return false
}

// value is a string, a number or a literal as it stands; a list or an object is
// not taken apart here.
func (s *scanner) value() (raw []byte, ok bool) {
	s.space()
	if s.at == len(s.line) {
		return nil, false
	}
	switch s.line[s.at] {
	case '"':
		return s.text()
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	}
	return s.number()
}

func (s *scanner) literal(word string) (raw []byte, ok bool) {
	rest := s.line[s.at:]
	if len(rest) < len(word) || string(rest[:len(word)]) != word {
		return nil, false
	}
	s.at += len(word)
	return rest[:len(word):len(word)], true
}

// number passes over a whole number; one with a fraction or an exponent is for
// the tokenizer, as is 01: what comes behind it is no delimiter.
func (s *scanner) number() (raw []byte, ok bool) {
	start, at := s.at, s.at
	if s.line[at] == '-' {
		at++
	}
	digits := at
	for at < len(s.line) && s.line[at]-'0' <= 9 {
		at++
	}
	if at == digits || s.line[digits] == '0' && at > digits+1 {
		return nil, false
	}
	s.at = at
	return s.line[start:at:at], true
}

// text is a string with its quotes, if it has no escapes.
func (s *scanner) text() (raw []byte, ok bool) {
	if !s.take('"') {
		return nil, false
	}
	start := s.at - 1
	for at := s.at; at < len(s.line); at++ {
		switch c := s.line[at]; {
		case c == '"':
			s.at = at + 1
			return s.line[start:s.at:s.at], true
		case c == '\\' || c < ' ':
			return nil, false
		case c >= utf8.RuneSelf:
			s.wide = true
		}
	}
	return nil, false
}
