package query

import (
	"context"
	"strconv"

	"github.com/tidemark-io/tidemark/pipeline"
)

// getRequest is {"counter":"post","ids":["42",43],"columns":["like"]}.
// Its words lie in the request's body; its slices are used again.
type getRequest struct {
	counter []byte
	ids     []uint64
	digits  []span // of each id in the body, where the reply can copy them
	columns [][]byte
	hasIDs  bool
}

// span is a part of the request's body, offset<<8 | length. Writing an id's
// 19 digits takes four times as long as copying them.
type span uint64

// getCall is a tidemark.get in work.
type getCall struct {
	getRequest
	words  []*word
	wanted []pipeline.Column
	counts *counter
	rows   Rows
}

func (s *Service) getEndpoint() *endpoint {
	return &endpoint{
		name:        "get",
		description: "values of counters, in the order asked, one row for every id",
		request:     `{"counter":"post","ids":["42",43],"columns":["like"],"min_position":"…","timeout_ms":2000}; columns (names or suffixes), min_position and timeout_ms are optional`,
		reply:       `{"rows":[{"id":"42","like":3},{"id":"43","like":0}],"as_of":"…"}; with "degraded":true and "missing":["43"] when a shard is stopped`,
		gated:       true,
		parse:       s.parseGet,
		answer:      s.answerGet,
	}
}

// parseGet reads the request and resolves its words.
func (s *Service) parseGet(c *call) *failure {
	g := &c.get
	if f := g.parse(c, s.limits.IDs); f != nil {
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
	g.wanted = g.wanted[:0]
	for _, w := range g.words {
		g.wanted = append(g.wanted, w.column)
	}
	return nil
}

// parse reads the body. Unknown members are passed over; an empty list of
// columns is none, an empty list of ids is a request for no rows.
func (g *getRequest) parse(c *call, idsMax int) (f *failure) {
	g.counter, g.columns, g.ids, g.hasIDs = nil, g.columns[:0], g.ids[:0], false
	g.digits = g.digits[:0]
	s := &c.scanner
	s.Reset(c.body)
	for s.Object(); s.Member(); {
		switch key := s.Key(); string(key) {
		case "counter":
			f = g.parseCounter(c)
		case "ids":
			f = g.parseIDs(c, idsMax)
		case "columns":
			f = g.parseColumns(c)
		default:
			var taken bool
			if taken, f = c.wait.member(s, key); !taken {
				s.Value()
			}
		}
		if f != nil {
			return f
		}
	}
	if f := notJSON(s.End()); f != nil {
		return f
	}
	if !g.hasIDs {
		return fail(codeBadRequest, `ids is missing; a request is {"counter":"post","ids":["42"]}`)
	}
	return nil
}

func (g *getRequest) parseCounter(c *call) *failure {
	s := &c.scanner
	if s.Null() {
		return nil
	}
	text, raw, ok := s.String()
	if !ok && s.Err() == nil {
		return fail(codeBadRequest, "counter: %s is not a name", clip(raw))
	}
	g.counter = text
	return nil
}

// parseIDs is where a request of many ids spends its time.
func (g *getRequest) parseIDs(c *call, most int) *failure {
	s := &c.scanner
	switch {
	case s.Null():
		return nil
	case g.hasIDs:
		return fail(codeBadRequest, "ids is given twice")
	case !s.IsArray():
		raw := s.Value()
		if s.Err() != nil {
			return nil // End tells
		}
		return fail(codeBadRequest, "ids: %s is not a list", clip(raw))
	}
	g.hasIDs = true
	ids, digits := g.ids, g.digits
	for s.Array(); s.Element(); {
		id, raw, ok := s.Uint()
		if s.Err() != nil {
			break
		}
		if !ok || id == 0 {
			return fail(codeBadRequest, "ids[%d]: %s is not an id: ids are whole numbers from 1 to 18446744073709551615, as numbers or strings", len(ids), clip(raw))
		}
		if len(ids) == most {
			return fail(codeTooMuch, "ids: more than %d in one request; ask in parts", most)
		}
		ids = append(ids, id)
		offset, length := s.Digits()
		digits = append(digits, span(offset<<8|length))
	}
	g.ids, g.digits = ids, digits
	return nil
}

func (g *getRequest) parseColumns(c *call) *failure {
	s := &c.scanner
	if s.Null() {
		return nil
	}
	if !s.IsArray() {
		raw := s.Value()
		if s.Err() != nil {
			return nil
		}
		return fail(codeBadRequest, "columns: %s is not a list", clip(raw))
	}
	g.columns = g.columns[:0]
	for s.Array(); s.Element(); {
		text, raw, ok := s.String()
		if !ok && s.Err() == nil {
			return fail(codeBadRequest, "columns[%d]: %s is not a name", len(g.columns), clip(raw))
		}
		g.columns = append(g.columns, text)
	}
	return nil
}

func (s *Service) answerGet(ctx context.Context, c *call) *failure {
	g := &c.get
	if err := s.reader.Rows(ctx, g.counts.index, g.wanted, g.ids, &g.rows); err != nil {
		return s.unreadable(c, err)
	}
	c.out = g.appendReply(c.out, c.body)
	return nil
}

// appendReply writes {"rows":[…],"as_of":"…"}. A missing id keeps its place
// in rows, but has no values: nothing that could be taken for a zero.
func (g *getCall) appendReply(out, body []byte) []byte {
	var missing []bool
	if len(g.rows.Missing) > 0 {
		missing = make([]bool, len(g.ids))
		for _, i := range g.rows.Missing {
			missing[i] = true
		}
	}
	out = append(out, `{"rows":[`...)
	for i := range g.ids {
		out = append(out, `{"id":"`...)
		out = g.appendID(out, body, i)
		out = append(out, '"')
		if missing == nil || !missing[i] {
			out = g.appendValues(out, g.rows.Values[i*len(g.words):], g.rows.Exist[i])
		}
		out = append(out, '}', ',')
	}
	if len(g.ids) > 0 {
		out = out[:len(out)-1] // the last comma
	}
	out = append(out, `],"as_of":"`...)
	out = strconv.AppendUint(out, uint64(g.rows.AsOf), 10)
	out = append(out, '"')
	if missing != nil {
		out = g.appendMissing(out)
	}
	return append(out, '}')
}

func (g *getCall) appendID(out, body []byte, i int) []byte {
	if at := g.digits[i]; at&0xff > 0 {
		return append(out, body[at>>8:at>>8+at&0xff]...)
	}
	return strconv.AppendUint(out, g.ids[i], 10)
}

func (g *getCall) appendValues(out []byte, values []int64, exists bool) []byte {
	for j, w := range g.words {
		out = append(out, w.key...)
		value := values[j]
		switch {
		case !exists:
			value = w.defaultValue
		case value < 0: // a deletion has overtaken its event
			value = 0
		}
		if value < 10 {
			out = append(out, '0'+byte(value))
		} else {
			out = strconv.AppendUint(out, uint64(value), 10)
		}
	}
	return out
}

// appendMissing names the ids that could not be read, each once.
func (g *getCall) appendMissing(out []byte) []byte {
	out = append(out, `,"degraded":true,"missing":[`...)
	told := make(map[uint64]struct{}, len(g.rows.Missing))
	for _, i := range g.rows.Missing {
		id := g.ids[i]
		if _, twice := told[id]; twice {
			continue
		}
		if len(told) > 0 {
			out = append(out, ',')
		}
		told[id] = struct{}{}
		out = append(out, '"')
		out = strconv.AppendUint(out, id, 10)
		out = append(out, '"')
	}
	return append(out, ']')
}
