package service

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/packed"
)

// getRequest is {"counter":"post","ids":["42",43],"columns":["like"],"member":"7"}.
// Its words lie in the request's body; its slices are used again.
type getRequest struct {
	counter []byte
	idList
	columns [][]byte
	member  memberAsk
	raw     bool
}

// getInline is the most ids that are read in the subscription's goroutine, each once
// more for each set that is asked: some 100 µs of work. More would hold up the small requests behind them.
const getInline = 1000

// getCall is a tidemark.get in work.
type getCall struct {
	getRequest
	words  []*word
	wanted []pipeline.Column
	counts *counter
	rows   query.Rows
	sets   []*word  // those in whose sets the member may be, as rows.Sets has it
	names  []string // of an answer in binary form
	cells  []uint64 // of a column of it
}

func (s *Service) getEndpoint() *endpoint {
	return &endpoint{
		name:        "get",
		description: "values of counters, in the order asked, one row for every id",
		request:     `{"counter":"post","ids":["42",43],"columns":["like"],"member":"7","min_position":"…","timeout_ms":2000}; all but counter and ids are optional: columns (names or suffixes), member (an id, a token, or a pair of ids as ["50","7"]), min_position (or min_seq, from an acknowledgement), timeout_ms`,
		reply:       `{"rows":[{"id":"42","like":3},{"id":"43","like":0}],"as_of":"…"}; with member each row has "has":{"like":true}; with "degraded":true and "missing":["43"] when a part cannot be read`,
		advice:      "ask for fewer ids or columns at once",
		gated:       true,
		lists:       true,
		spreads:     true,
		spell:       spellGet,
		parse:       s.parseGet,
		answer:      s.answerGet,
	}
}

// parseGet reads the request and resolves its words.
func (s *Service) parseGet(c *call) *failure {
	g := &c.get
	parse := g.parse
	if c.packed {
		parse = g.unpack
	}
	if f := parse(c, s.limits.IDs); f != nil {
		return f
	}
	c.ids = len(g.ids)
	counts, f := s.catalog.resolve(g.counter, g.columns)
	if f != nil {
		return f
	}
	g.counts = counts
	g.words = append(g.words[:0], counts.visible...)
	if len(g.columns) > 0 {
		if g.words, f = counts.find(g.columns, g.words[:0]); f != nil {
			return f
		}
	}
	if f := g.findSets(); f != nil {
		return f
	}
	g.plan(s, c)
	if c.packed {
		return c.cellsFit(len(g.words))
	}
	return nil
}

// plan says what is read, and whether that is much.
func (g *getCall) plan(s *Service, c *call) {
	g.wanted = g.wanted[:0]
	for _, w := range g.words {
		g.wanted = append(g.wanted, w.column)
	}
	if c.ids*(1+len(g.sets)) > getInline {
		c.wants = s.heavy
	}
}

// parse reads the body. Unknown members are passed over; an empty list of
// columns is none, an empty list of ids is a request for no rows.
func (g *getRequest) parse(c *call, idsMax int) (f *failure) {
	g.counter, g.columns, g.member, g.raw = nil, g.columns[:0], memberAsk{}, false
	g.idList.reset()
	s := &c.scanner
	s.Reset(c.body)
	for s.Object(); s.Member(); {
		switch key := s.Key(); string(key) {
		case "counter":
			g.counter, f = parseName(s, "counter")
		case "ids":
			f = g.idList.parse(c, "ids", idsMax)
		case "columns":
			f = g.parseColumns(c)
		case "member":
			f = g.member.parse(s)
		case "raw":
			f = parseBool(s, "raw", &g.raw)
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
	if !g.given {
		return fail(codeBadRequest, `ids is missing; a request is {"counter":"post","ids":["42"]}`)
	}
	return nil
}

func (g *getRequest) parseColumns(c *call) *failure {
	s := &c.scanner
	if s.Null() {
		return nil
	}
	if !s.IsArray() {
		return notOf(s, "columns", "a list")
	}
	g.columns = g.columns[:0]
	for s.Array(); s.Element(); {
		text, raw, ok := s.String()
		switch {
		case !ok && s.Err() == nil:
			return fail(codeBadRequest, "columns[%d]: %s is not a name", len(g.columns), clip(raw))
		case len(g.columns) == packed.ColumnsMax:
			return tooManyNames(&packed.TooManyNames{What: "columns", Most: packed.ColumnsMax})
		}
		g.columns = append(g.columns, text)
	}
	return nil
}

func (s *Service) answerGet(ctx context.Context, c *call) *failure {
	g := &c.get
	if row := leastRow + leastKeys(g.words) + g.leastSets(); !c.packed && !s.fits(c, row) {
		return s.wouldNotFit(c, row, fmt.Sprintf("%d ids with %d columns each", c.ids, len(g.words)))
	}
	applied := s.reader.Applied()
	g.rows.Cost = query.Cost{}
	err := c.reader.Rows(ctx, g.counts.index, g.wanted, g.ids, &g.rows, c.disk)
	c.took(g.rows.Cost)
	if errors.Is(err, query.ErrStopped) {
		g.rows.Reset(len(g.ids), len(g.wanted))
		g.rows.Missing = everyIndex(g.rows.Missing, len(g.ids))
		g.rows.AsOf, err = applied, nil
	}
	if err != nil {
		return s.unreadable(c, err)
	}
	if missing := g.rows.Missing; len(missing) > 0 {
		if f := c.notWhole(len(missing), len(g.ids), g.ids[missing[0]]); f != nil {
			return f
		}
	}
	if c.packed {
		return s.packGet(c)
	}
	c.out = g.appendReply(c.out, c.body)
	return s.conclude(c, g.rows.AsOf, g.missingOf(g.rows.Missing))
}

// appendReply writes {"rows":[…],"as_of":"…" without the end. A missing id keeps its place
// in rows, but has no values: nothing that could be taken for a zero.
func (g *getCall) appendReply(out, body []byte) []byte {
	missing := g.marks(g.rows.Missing)
	out = append(out, `{"rows":[`...)
	for i := range g.ids {
		out = append(out, `{"id":"`...)
		out = g.appendID(out, body, i)
		out = append(out, '"')
		if missing == nil || !missing[i] {
			out = g.appendValues(out, g.rows.Values[i*len(g.words):], g.rows.Exist[i])
			out = g.appendSets(out, i)
		}
		out = append(out, '}', ',')
	}
	if len(g.ids) > 0 {
		out = out[:len(out)-1] // the last comma
	}
	return appendAsOf(append(out, ']'), g.rows.AsOf)
}

func (g *getCall) appendValues(out []byte, values []int64, exists bool) []byte {
	for j, w := range g.words {
		out = append(out, w.key...)
		value := w.defaultValue
		switch {
		case exists && g.raw:
			value = values[j]
		case exists:
			value = w.shown(values[j])
		}
		if uint64(value) < 10 {
			out = append(out, '0'+byte(value))
		} else {
			out = strconv.AppendInt(out, value, 10)
		}
	}
	return out
}
