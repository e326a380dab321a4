package service

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/jsonscan"
)

const (
	explainLimit    = 20
	explainLimitMax = 1000
	// explainPlaces bounds the requests that wait for a turn.
	explainPlaces = 64
)

// explainCall is a tidemark.explain in work. Its request is
// {"number":"post.like","id":"42","limit":20,"before":"…"}.
type explainCall struct {
	id      uint64
	limit   int
	before  uint64
	name    string // of the number
	counter int
	words   []*word // its columns; all of counter unread for the badge
	badge   bool
	sets    *setsAsked // of the badge, or of one of its numbers that is no column
}

func (s *Service) explainEndpoint(explainer query.Explainer) *endpoint {
	return &endpoint{
		name:        "explain",
		description: "the events behind a number, newest first, and what each changed, page by page",
		request:     `{"number":"post.like","id":"42","limit":20,"before":"…","min_position":"…","timeout_ms":2000}; number is COUNTER.COLUMN, unread.feed, unread.channel:NAME, or unread: all of a user's; limit, before, min_position and timeout_ms are optional; before is the next of the page before; limit is 1000 at most`,
		reply:       `{"id":"42","value":3,"as_of":"…","events":[{"position":"…","time":"2026-01-02T15:04:05.678Z","type":"like","change":"+1","event":{…}}],"next":"…","base":{"position":"0","value":0}}, without next at the end`,
		advice:      "pass a lower limit",
		gated:       true,
		parse:       s.parseExplain,
		answer: func(ctx context.Context, c *call) *failure {
			return s.answerExplain(ctx, c, explainer)
		},
	}
}

func (s *Service) parseExplain(c *call) *failure {
	e := &c.explain
	*e = explainCall{limit: explainLimit}
	sc := &c.scanner
	sc.Reset(c.body)
	for sc.Object(); sc.Member(); {
		var f *failure
		switch key := sc.Key(); string(key) {
		case "number":
			f = e.parseNumber(sc)
		case "id":
			f = parseExplainID(sc, &e.id)
		case "limit":
			f = parseLimit(sc, &e.limit, explainLimitMax)
		case "before":
			_, f = parsePlace(sc, "before", "a position", &e.before)
		default:
			f = c.wait.orPass(sc, key)
		}
		if f != nil {
			return f
		}
	}
	if f := notJSON(sc.End()); f != nil {
		return f
	}
	c.wants = s.explains
	return s.resolveNumber(e)
}

func (e *explainCall) parseNumber(s *jsonscan.Scanner) *failure {
	if s.Null() {
		return nil
	}
	text, raw, ok := s.String()
	if s.Err() == nil && !ok {
		return fail(codeBadRequest, "number: %s is not a name like post.like", clip(raw))
	}
	e.name = string(text)
	return nil
}

func parseExplainID(s *jsonscan.Scanner, to *uint64) *failure {
	if s.Null() {
		return nil
	}
	id, raw, ok := s.Uint()
	if s.Err() == nil && (!ok || id == 0) {
		return fail(codeBadRequest, "id: %s is not an id: ids are whole numbers from 1 to 18446744073709551615, as numbers or strings", clip(raw))
	}
	*to = id
	return nil
}

// resolveNumber finds what is asked about.
func (s *Service) resolveNumber(e *explainCall) *failure {
	switch {
	case e.name == "" || e.id == 0:
		return fail(codeBadRequest, `number and id are wanted; a request is {"number":"post.like","id":"42"}`)
	case e.name == unreadCounter:
		e.badge, e.words, e.sets = true, s.catalog.unread, &setsAsked{feed: true}
		if counter, has := s.catalog.counters[unreadCounter]; has { // else feed and channels are all of the badge
			e.counter = counter.index
		}
		return nil
	}
	name, column, both := strings.Cut(e.name, ".")
	if !both {
		return fail(codeBadRequest, "number: %s is neither COUNTER.COLUMN, like post.like, nor unread", clip([]byte(e.name)))
	}
	if name == unreadCounter && s.catalog.unreadNames[column] == nil {
		if asked, is := setOf(column); is {
			e.sets = &asked
			return nil
		}
	}
	counts, f := s.catalog.resolve([]byte(name), nil)
	if f != nil {
		return f
	}
	w := counts.words[column]
	if w == nil {
		return fail(codeNotFound, "number: counter %s has no column %q; there are: %s", name, clip([]byte(column)), counts.list)
	}
	e.counter, e.words = counts.index, []*word{w}
	return nil
}

// unreadCounter is the counter of the 1:1 unread numbers.
const unreadCounter = "unread"

// answerExplain asks first what the number is, and then which events are behind
// what it was then.
func (s *Service) answerExplain(_ context.Context, c *call, explainer query.Explainer) *failure {
	if explainer == nil {
		return fail(codeNotReady, "not ready: this process does not read the log")
	}
	e, begun, timeout := &c.explain, time.Now(), s.patience(c)
	ctx, cancel := context.WithTimeout(s.reading, timeout)
	defer cancel()
	reader := s.reader
	if s.spread != nil {
		reader = s.spread.Far(c.wait.position, begun.Add(timeout))
	}
	ask := &query.ExplainAsk{
		Turn: s.turn,
		ID:   e.id, Limit: e.limit, Differences: e.badge,
		Before: pipeline.Position(e.before), Soft: begun.Add(timeout / explainSoft),
	}
	if ask.Before == 0 {
		ask.Before = pipeline.PositionMax
	}
	for _, w := range e.words {
		ask.Columns = append(ask.Columns, w.column)
	}
	for try := 1; ; try++ {
		differs, f := s.explainOnce(ctx, c, explainer, reader, ask)
		if f != nil || differs == "" {
			return f
		}
		if try == setTries {
			return fail(codeNotReady, "%s of %d changes faster than it is read: %s; ask again, or have it compared with the log: tidemark recount user %d",
				e.name, e.id, differs, e.id)
		}
	}
}

// explainOnce asks for the numbers, and then for the events. Where the sets have
// changed in between it says how they differ, and answers nothing.
func (s *Service) explainOnce(ctx context.Context, c *call, explainer query.Explainer, reader query.Reader, ask *query.ExplainAsk) (differs string, f *failure) {
	e := &c.explain
	answer := &explained{explainCall: e, rows: new(query.Rows), page: new(query.Explanation)}
	asOf := pipeline.PositionMax
	if e.sets != nil {
		sets, f, err := s.readSets(ctx, reader, e, ask.Before)
		if err != nil {
			f = s.unreadSets(c, err)
		}
		if f != nil {
			return "", f
		}
		c.took(sets.stand.Cost)
		answer.sets, asOf = sets, sets.asOf
		ask.Members, ask.Upto = sets.members, sets.upto
		if sets.stand.Dropped {
			answer.asOf = asOf
			c.out = answer.append(c.out)
			return "", s.conclude(c, asOf, nil)
		}
	}
	if len(ask.Columns) > 0 {
		err := reader.Rows(ctx, e.counter, ask.Columns, []uint64{e.id}, answer.rows, true)
		if err == nil && len(answer.rows.Missing) > 0 {
			err = query.ErrStopped
		}
		c.took(answer.rows.Cost)
		if errors.Is(err, query.ErrStopped) {
			return "", fail(codeNotReady, "%s of %d cannot be read now", e.name, e.id)
		}
		if err != nil {
			return "", s.unreadable(c, err)
		}
		asOf = min(asOf, answer.rows.AsOf)
		ask.AsOf = answer.rows.AsOf
	} else {
		ask.AsOf = pipeline.PositionMax - 1
	}
	answer.asOf = asOf
	err := explainer.Explain(ctx, ask, answer.page)
	c.clock.lap(stageLog)
	switch {
	case s.reading.Err() != nil:
		return "", fail(codeNotReady, "stopping")
	case errors.Is(err, context.DeadlineExceeded):
		return "", fail(codeTooLate, "nothing of the log could be read within %d ms; pass a higher timeout_ms", s.patience(c).Milliseconds())
	case err != nil:
		if line, leftOut := s.unanswered.line(time.Now()); line {
			s.log.Error("query: a number could not be explained", "number", e.name, "id", e.id, "left_out", leftOut, "error", err)
		}
		return "", fail(codeInternal, "the log cannot be read: %v", err)
	}
	if answer.whole() {
		if differs = answer.sets.disagrees(answer.page); differs != "" {
			return differs, nil
		}
	}
	c.out = answer.append(c.out)
	return "", s.conclude(c, asOf, nil)
}

// explainSoft is which part of its time a page takes to gather events; the rest
// is for what their changes depend on.
const explainSoft = 3
