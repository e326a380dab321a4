package service

import (
	"bytes"
	"context"
	"errors"
	"strconv"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/jsonscan"
)

// membersRequest is {"column":"post.like","id":"42","limit":100,"after":"7"}.
type membersRequest struct {
	column []byte
	id     uint64
	limit  int
	after  []byte // as it was given; nil: it was not
}

// membersCall is a tidemark.members in work.
type membersCall struct {
	membersRequest
	word *word
	from pipeline.Member // members above it are listed
	page query.MemberPage
}

func (s *Service) membersEndpoint() *endpoint {
	return &endpoint{
		name:        "members",
		description: "the members of the set of a row, such as the users that like a post, by id, page by page",
		request:     `{"column":"post.like","id":"42","limit":100,"after":"…","min_position":"…","timeout_ms":2000}; all but column and id are optional; min_seq instead of min_position; after is the next of the page before; limit is 10000 at most`,
		reply:       `{"members":["7","9"],"next":"…","as_of":"…"}, pairs as [["50","7"]], without next at the end; with "degraded":true and "missing":["42"] when a part cannot be read`,
		advice:      "pass a lower limit",
		gated:       true,
		spreads:     true,
		parse:       s.parseMembers,
		answer:      s.answerMembers,
	}
}

func (s *Service) parseMembers(c *call) *failure {
	c.wants = s.pages
	m := &c.list
	if f := m.parse(c); f != nil {
		return f
	}
	var f *failure
	if m.word, f = s.catalog.column(m.column); f != nil {
		return f
	}
	switch m.word.set {
	case pipeline.NoMembers:
		return fail(codeBadRequest, "column: %s has no set to list: its rules have no `once`", clip(m.column))
	case pipeline.MembersTokens:
		return fail(codeBadRequest, "column: the set of %s is of tokens, of which digests are kept: they cannot be listed; tidemark.get with \"member\" says whether one is there", clip(m.column))
	}
	m.from, f = m.place()
	return f
}

// parse reads the body.
func (m *membersRequest) parse(c *call) *failure {
	*m = membersRequest{limit: usersLimit}
	newest := false
	s := &c.scanner
	s.Reset(c.body)
	for s.Object(); s.Member(); {
		var f *failure
		switch key := s.Key(); string(key) {
		case "column":
			m.column, f = parseName(s, "column")
		case "id":
			f = parseID(s, "id", &m.id)
		case "limit":
			f = parseLimit(s, &m.limit, usersLimitMax)
		case "after":
			m.after = parseText(s)
		case "newest":
			newest = parseNewest(s)
		default:
			f = c.wait.orPass(s, key)
		}
		if f != nil {
			return f
		}
	}
	if f := notJSON(s.End()); f != nil {
		return f
	}
	const example = `a request is {"column":"post.like","id":"42"}`
	switch {
	case newest:
		return noNewest()
	case len(m.column) == 0:
		return fail(codeBadRequest, "column is missing; %s", example)
	case m.id == 0:
		return fail(codeBadRequest, "id is missing; %s", example)
	}
	return nil
}

// parseText is a string's text, or any other value as it stands; nil: null.
func parseText(s *jsonscan.Scanner) []byte {
	if s.Null() {
		return nil
	}
	text, raw, ok := s.String()
	if !ok {
		text = raw
	}
	return text
}

// place reads after: an id, or a pair of them as "50,7". 0 is from the start.
func (m *membersCall) place() (from pipeline.Member, f *failure) {
	if m.after == nil {
		return from, nil
	}
	first, second, isPair := bytes.Cut(m.after, []byte{','})
	a, errA := strconv.ParseUint(string(first), 10, 64)
	b, errB := uint64(0), error(nil)
	if isPair {
		b, errB = strconv.ParseUint(string(second), 10, 64)
	}
	pairs := m.word.set == pipeline.MembersPairs
	switch {
	case errA == nil && errB == nil && (isPair == pairs || a == 0 && b == 0):
		return pipeline.Member{A: a, B: b}, nil
	case pairs:
		return from, fail(codeBadRequest, `after: %s is not a pair of ids as in "50,7"`, clip(m.after))
	}
	return from, fail(codeBadRequest, "after: %s is not an id (an unsigned 64-bit integer, or the same as a string)", clip(m.after))
}

func (s *Service) answerMembers(ctx context.Context, c *call) *failure {
	m := &c.list
	applied := s.reader.Applied()
	m.page.Cost = query.Cost{}
	err := c.reader.Members(ctx, m.word.column, m.id, m.from, m.limit, &m.page, c.disk)
	c.took(m.page.Cost)
	stopped := errors.Is(err, query.ErrStopped)
	if stopped {
		m.page.Reset()
		m.page.AsOf, err = applied, nil
	}
	if err != nil {
		return s.unreadable(c, err)
	}
	if !stopped {
		c.out = m.appendReply(c.out)
		return s.conclude(c, m.page.AsOf, nil)
	}
	if f := c.notWhole(1, 1, m.id); f != nil {
		return f
	}
	c.out = m.appendReply(c.out)
	return s.conclude(c, m.page.AsOf, func(out []byte) []byte { return appendQuoted(out, m.id) })
}

// appendReply writes the page without its end.
func (m *membersCall) appendReply(out []byte) []byte {
	pairs := m.word.set == pipeline.MembersPairs
	out = append(out, `{"members":[`...)
	for i, member := range m.page.Members {
		if i > 0 {
			out = append(out, ',')
		}
		if !pairs {
			out = appendQuoted(out, member.A)
			continue
		}
		out = appendQuoted(append(out, '['), member.A)
		out = append(appendQuoted(append(out, ','), member.B), ']')
	}
	out = append(out, ']')
	if n := len(m.page.Members); n > 0 && m.page.More {
		last := m.page.Members[n-1]
		out = append(out, `,"next":"`...)
		out = strconv.AppendUint(out, last.A, 10)
		if pairs {
			out = strconv.AppendUint(append(out, ','), last.B, 10)
		}
		out = append(out, '"')
	}
	return appendAsOf(out, m.page.AsOf)
}
