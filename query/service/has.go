package service

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/internal/jsonscan"
)

// memberAsk is the "member" of a tidemark.get: in which sets it is.
type memberAsk struct {
	text  string          // as it was asked; "": none was
	isOne bool            // one value, not two
	ids   pipeline.Member // as an id, or as a pair of ids; zero: it is none
	token pipeline.Member // one value as a token
}

// parse reads an id, a token, or a list of two ids; null is none given.
func (m *memberAsk) parse(s *jsonscan.Scanner) *failure {
	if s.Null() {
		return nil
	}
	if s.IsArray() {
		return m.parsePair(s)
	}
	text, raw, isText := s.String()
	switch {
	case s.Err() != nil:
		return nil // End says why
	case !isText:
		text = raw
	}
	id, err := strconv.ParseUint(string(text), 10, 64)
	isID := err == nil && id > 0 && text[0] != '+'
	switch {
	case !isText && !isID, len(text) == 0:
		return fail(codeBadRequest, `member: %s is not an id ("7" or 7), a pair of ids (["50","7"]) or a token (a string)`, clip(raw))
	case len(text) > pipeline.TokenBytesMax:
		return fail(codeBadRequest, "member: %s is longer than a token may be, %d bytes", clip(raw), pipeline.TokenBytesMax)
	case isID:
		m.ids.A = id
	}
	m.text, m.isOne, m.token = clip(raw), true, pipeline.TokenMember(text)
	return nil
}

func (m *memberAsk) parsePair(s *jsonscan.Scanner) *failure {
	var ids []uint64
	for s.Array(); s.Element(); {
		id, raw, ok := s.Uint()
		switch {
		case s.Err() != nil:
			return nil // End says why
		case !ok || id == 0:
			return noID("member", len(ids), clip(raw))
		case len(ids) == 2:
			return fail(codeBadRequest, `member: a pair has two ids, as in ["50","7"]`)
		}
		ids = append(ids, id)
	}
	switch {
	case s.Err() != nil:
		return nil
	case len(ids) != 2:
		return fail(codeBadRequest, `member: a pair has two ids, as in ["50","7"]`)
	}
	m.text, m.ids = fmt.Sprintf(`["%d","%d"]`, ids[0], ids[1]), pipeline.Member{A: ids[0], B: ids[1]}
	return nil
}

// of is the member as a set of a shape has it; false: it has none of that shape.
func (m *memberAsk) of(shape pipeline.Members) (member pipeline.Member, ok bool) {
	switch shape {
	case pipeline.MembersIDs:
		return m.ids, m.isOne && m.ids.A > 0
	case pipeline.MembersPairs:
		return m.ids, !m.isOne
	case pipeline.MembersTokens:
		return m.token, m.isOne
	}
	return member, false
}

// kind is what the member is, in words.
func (m *memberAsk) kind() string {
	switch {
	case !m.isOne:
		return "a pair of ids"
	case m.ids.A > 0:
		return "an id or a token"
	}
	return "a token"
}

// findSets finds those of the words whose sets can have the member.
func (g *getCall) findSets() *failure {
	g.lookForNone()
	if g.member.text == "" {
		return nil
	}
	if f := g.ambiguous("member"); f != nil {
		return f
	}
	var others []string
	for _, w := range g.words {
		member, can := g.member.of(w.set)
		switch {
		case can:
			g.look(w, member)
		case w.set != pipeline.NoMembers:
			others = append(others, fmt.Sprintf("%s of %s", w.name, w.set))
		}
	}
	switch {
	case len(g.sets) > 0:
		return nil
	case len(others) == 0:
		return fail(codeBadRequest, "member: no column asked of counter %s has a set: their rules have no `once`", g.counts.name)
	}
	return fail(codeBadRequest, "member: %s is %s, and no column asked has a set of such; sets have: %s", g.member.text, g.member.kind(), strings.Join(others, ", "))
}

func (g *getCall) lookForNone() { g.sets, g.rows.Sets = g.sets[:0], g.rows.Sets[:0] }

// look has a member be looked for in the sets of a column.
func (g *getCall) look(w *word, member pipeline.Member) {
	g.sets = append(g.sets, w)
	g.rows.Sets = append(g.rows.Sets, pipeline.MemberOf{Column: w.column, Member: member})
}

// ambiguous refuses an answer in which two things have one name.
func (g *getCall) ambiguous(name string) *failure {
	for _, w := range g.words {
		if w.name == "has" {
			return fail(codeBadRequest, `%s: each row would have two things named "has", as counter %s has a column of that name`, name, g.counts.name)
		}
	}
	return nil
}

// leastSets is how many bytes a row takes in addition that says in which sets the
// member is.
func (g *getCall) leastSets() int {
	if len(g.sets) == 0 {
		return 0
	}
	least := len(`,"has":{}`) - 1 // the first has no comma
	for _, w := range g.sets {
		least += len(w.key) + len("true")
	}
	return least
}

// appendSets writes in which sets the member is of the i-th id.
func (g *getCall) appendSets(out []byte, i int) []byte {
	if len(g.sets) == 0 {
		return out
	}
	out = append(out, `,"has":{`...)
	for j, w := range g.sets {
		key := w.key
		if j == 0 {
			key = key[1:] // the comma
		}
		out = strconv.AppendBool(append(out, key...), g.rows.Has[i*len(g.sets)+j])
	}
	return append(out, '}')
}
