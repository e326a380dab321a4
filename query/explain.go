package query

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/internal/jsonscan"
)

// Explainer reads in the log which events are behind a number. Explain may be
// called concurrently. It blocks for as long as it reads, until ctx ends at most.
type Explainer interface {
	Explain(ctx context.Context, ask *ExplainAsk, out *Explanation) error
}

// ExplainAsk asks for one page.
type ExplainAsk struct {
	ID      uint64
	Columns []pipeline.Column // of ID's rows, all of one counter

	AsOf   pipeline.Position // the number is as of this
	Before pipeline.Position // events before this are told
	Limit  int
	// Differences asks for what was really added, also where a number was set:
	// changes of several columns can be added up then.
	Differences bool
	Soft        time.Time // when a page ends with what has been found; ctx ends later
}

// Explanation is a page.
type Explanation struct {
	Events []ExplainedEvent // newest first
	// Next is where the next page begins: before it there may be more. 0: there
	// is none.
	Next pipeline.Position
	// Base is the position up to which the log holds nothing any more; 0: it
	// is whole.
	Base pipeline.Position
	Read int // messages that were read
}

// ExplainedEvent is an event and what it changed.
type ExplainedEvent struct {
	Position pipeline.Position
	Time     int64 // of the log, Unix ms
	Type     string
	Body     []byte         // nil where it is longer than ExplainBodyMax
	Bytes    int            // of the body
	Changes  []NumberChange // of the columns, in their order
}

// ExplainBodyMax is the longest event that is shown.
const ExplainBodyMax = 64 << 10

// NumberChange is what an event did to a number.
type NumberChange struct {
	Touched bool
	Set     bool  // to N; else N was added
	N       int64 // as stored
	// Unsure: what it depends on was not found in time, or is not in the log
	// any more. N is what the event says.
	Unsure bool
}

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
}

func (s *Service) explainEndpoint(explainer Explainer) *endpoint {
	return &endpoint{
		name:        "explain",
		description: "the events behind a number, newest first, and what each changed, page by page",
		request:     `{"number":"post.like","id":"42","limit":20,"before":"…","min_position":"…","timeout_ms":2000}; number is COUNTER.COLUMN, or unread: all of a user's; limit, before, min_position and timeout_ms are optional; before is the next of the page before; limit is 1000 at most`,
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
	case e.name == unreadCounter && len(s.catalog.unread) > 0:
		e.badge, e.words = true, s.catalog.unread
		e.counter = s.catalog.counters[unreadCounter].index
		return nil
	}
	name, column, both := strings.Cut(e.name, ".")
	if !both {
		return fail(codeBadRequest, "number: %s is neither COUNTER.COLUMN, like post.like, nor unread", clip([]byte(e.name)))
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
func (s *Service) answerExplain(_ context.Context, c *call, explainer Explainer) *failure {
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
	rows := new(Rows)
	columns := make([]pipeline.Column, 0, len(e.words))
	for _, w := range e.words {
		columns = append(columns, w.column)
	}
	err := reader.Rows(ctx, e.counter, columns, []uint64{e.id}, rows, true)
	if err == nil && len(rows.Missing) > 0 {
		err = ErrStopped
	}
	c.took(rows.Cost)
	if errors.Is(err, ErrStopped) {
		return fail(codeNotReady, "%s of %d cannot be read now", e.name, e.id)
	}
	if err != nil {
		return s.unreadable(c, err)
	}
	ask := &ExplainAsk{
		ID: e.id, Columns: columns, Limit: e.limit, Differences: e.badge,
		AsOf: rows.AsOf, Before: pipeline.Position(e.before), Soft: begun.Add(timeout / explainSoft),
	}
	if ask.Before == 0 {
		ask.Before = pipeline.PositionMax
	}
	page := new(Explanation)
	err = explainer.Explain(ctx, ask, page)
	c.clock.lap(stageLog)
	switch {
	case s.reading.Err() != nil:
		return fail(codeNotReady, "stopping")
	case errors.Is(err, context.DeadlineExceeded):
		return fail(codeTooLate, "nothing of the log could be read within %d ms; pass a higher timeout_ms", timeout.Milliseconds())
	case err != nil:
		if line, leftOut := s.unanswered.line(time.Now()); line {
			s.log.Error("query: a number could not be explained", "number", e.name, "id", e.id, "left_out", leftOut, "err", err)
		}
		return fail(codeInternal, "the log cannot be read: %v", err)
	}
	c.out = e.appendReply(c.out, rows, page)
	return nil
}

// explainSoft is which part of its time a page takes to gather events; the rest
// is for what their changes depend on.
const explainSoft = 3

// appendReply writes {"id":"42","value":3,"as_of":"…","events":[…],…}.
func (e *explainCall) appendReply(out []byte, rows *Rows, page *Explanation) []byte {
	out = append(out, `{"id":`...)
	out = appendQuoted(out, e.id)
	value := int64(0)
	values := make([]int64, len(e.words))
	for i, w := range e.words {
		if values[i] = w.defaultValue; rows.Exist[0] {
			values[i] = w.shown(rows.Values[i])
		}
		value += values[i]
	}
	out = append(out, `,"value":`...)
	out = strconv.AppendInt(out, value, 10)
	if e.badge {
		out = append(out, `,"numbers":{`...)
		for i, w := range e.words {
			out = append(e.appendKey(out, w, i), strconv.FormatInt(values[i], 10)...)
		}
		out = append(out, '}')
	}
	out = appendAsOf(out, rows.AsOf)
	out = append(out, `,"events":[`...)
	for i := range page.Events {
		if i > 0 {
			out = append(out, ',')
		}
		out = e.appendEvent(out, &page.Events[i])
	}
	out = append(out, ']')
	if page.Next > 0 {
		out = append(out, `,"next":`...)
		out = appendQuoted(out, uint64(page.Next))
	}
	out = append(out, `,"base":{"position":`...)
	out = appendQuoted(out, uint64(page.Base))
	if base, known := e.base(rows, page); known {
		out = append(out, `,"value":`...)
		out = strconv.AppendInt(out, base, 10)
	}
	return append(out, '}', '}')
}

// base is what the number was where the log begins. Of a log whose beginning is
// gone it is what its events do not account for; a page that does not hold all of
// them, or one that sets the number, cannot tell.
func (e *explainCall) base(rows *Rows, page *Explanation) (base int64, known bool) {
	for i, w := range e.words {
		if page.Base == 0 {
			if !rows.Exist[0] && len(page.Events) == 0 && page.Next == 0 && e.before == 0 {
				base += w.defaultValue // there never was a row
			}
			continue
		}
		if page.Next > 0 || e.before > 0 {
			return 0, false
		}
		base += rows.Values[i]
		for k := range page.Events {
			c := &page.Events[k].Changes[i]
			if c.Set || c.Unsure {
				return 0, false
			}
			base -= c.N
		}
	}
	return base, true
}

func (e *explainCall) appendKey(out []byte, w *word, i int) []byte {
	if i == 0 {
		return append(out, w.key[1:]...) // without the comma
	}
	return append(out, w.key...)
}

func (e *explainCall) appendEvent(out []byte, event *ExplainedEvent) []byte {
	out = append(out, `{"position":`...)
	out = appendQuoted(out, uint64(event.Position))
	out = append(out, `,"time":"`...)
	out = time.UnixMilli(event.Time).UTC().AppendFormat(out, "2006-01-02T15:04:05.000Z")
	out = append(out, `","type":`...)
	out = strconv.AppendQuote(out, event.Type) // a-z 0-9 _ -
	all, unsure := NumberChange{}, false
	for i := range event.Changes {
		c := &event.Changes[i]
		all.Set = all.Set || c.Set
		all.N += c.N
		unsure = unsure || c.Unsure
	}
	out = append(out, `,"change":"`...)
	out = append(all.append(out), '"')
	if e.badge {
		out = append(out, `,"changes":{`...)
		some := 0
		for i, w := range e.words {
			if !event.Changes[i].Touched {
				continue
			}
			out = append(e.appendKey(out, w, some), '"')
			out = append(event.Changes[i].append(out), '"')
			some++
		}
		out = append(out, '}')
	}
	if unsure {
		out = append(out, `,"unsure":true`...)
	}
	if event.Body == nil {
		out = append(out, `,"event":null,"event_bytes":`...)
		out = strconv.AppendInt(out, int64(event.Bytes), 10)
		return append(out, '}')
	}
	out = append(out, `,"event":`...)
	return append(append(out, event.Body...), '}')
}

// append writes +1, -1 or =5.
func (c NumberChange) append(out []byte) []byte {
	switch {
	case c.Set:
		out = append(out, '=')
	case c.N >= 0:
		out = append(out, '+')
	}
	return strconv.AppendInt(out, c.N, 10)
}
