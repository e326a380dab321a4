package service

import (
	"strconv"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/internal/packed"
)

// idList is a request's long list: ids of get, users of unread.
type idList struct {
	ids    []uint64
	digits []span // of each id in the body, where the reply can copy them
	given  bool
}

// span is a part of the request's body, offset<<8 | length. Writing an id's
// 19 digits takes four times as long as copying them.
type span uint64

func (l *idList) reset() { l.ids, l.digits, l.given = l.ids[:0], l.digits[:0], false }

// parse is where a request of many ids spends its time. name is the list's
// in the request.
func (l *idList) parse(c *call, name string, most int) *failure {
	s := &c.scanner
	switch {
	case s.Null():
		return nil
	case l.given:
		return fail(codeBadRequest, "%s is given twice", name)
	case !s.IsArray():
		return notOf(s, name, "a list")
	}
	l.given = true
	ids, digits := l.ids, l.digits
	for s.Array(); s.Element(); {
		id, raw, ok := s.Uint()
		if s.Err() != nil {
			break
		}
		if !ok || id == 0 {
			return noID(name, len(ids), clip(raw))
		}
		if len(ids) == most {
			return tooMany(name, most)
		}
		ids = append(ids, id)
		offset, length := s.Digits()
		digits = append(digits, span(offset<<8|length))
	}
	l.ids, l.digits = ids, digits
	return nil
}

func noID(name string, at int, given string) *failure {
	return fail(codeBadRequest, "%s[%d]: %s is not an id: ids are whole numbers from 1 to 18446744073709551615, as numbers or strings", name, at, given)
}

func tooMany(name string, most int) *failure {
	return fail(codeTooMuch, "%s: more than %d in one request; ask in parts", name, most)
}

func tooManyNames(e *packed.TooManyNames) *failure { return fail(codeTooMuch, "%v", e) }

// appendID writes the i-th id's digits.
func (l *idList) appendID(out, body []byte, i int) []byte {
	if at := l.digits[i]; at&0xff > 0 {
		return append(out, body[at>>8:at>>8+at&0xff]...)
	}
	return strconv.AppendUint(out, l.ids[i], 10)
}

// marks is a Reader's list of missing indexes as a lookup; nil: none.
func (l *idList) marks(missing []int) []bool {
	if len(missing) == 0 {
		return nil
	}
	marks := make([]bool, len(l.ids))
	for _, i := range missing {
		marks[i] = true
	}
	return marks
}

// appendMissing names the ids that could not be read, each once.
func (l *idList) appendMissing(out []byte, missing []int) []byte {
	told := make(map[uint64]struct{}, len(missing))
	for _, i := range missing {
		id := l.ids[i]
		if _, twice := told[id]; twice {
			continue
		}
		if len(told) > 0 {
			out = append(out, ',')
		}
		told[id] = struct{}{}
		out = appendQuoted(out, id)
	}
	return out
}

// missingOf writes them; nil: there are none.
func (l *idList) missingOf(missing []int) func(out []byte) []byte {
	if len(missing) == 0 {
		return nil
	}
	return func(out []byte) []byte { return l.appendMissing(out, missing) }
}

func everyIndex(to []int, n int) []int {
	to = to[:0]
	for i := range n {
		to = append(to, i)
	}
	return to
}

// appendQuoted writes an id or a position as replies give them.
func appendQuoted(out []byte, u uint64) []byte {
	out = append(out, '"')
	out = strconv.AppendUint(out, u, 10)
	return append(out, '"')
}

// appendAsOf ends a reply's list: it says how far the answer reaches.
func appendAsOf(out []byte, p pipeline.Position) []byte {
	out = append(out, `,"as_of":`...)
	return appendQuoted(out, uint64(p))
}
