package service

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/internal/packed"
)

// The binary form of tidemark.get and tidemark.unread: the same questions on the
// same subjects, in the same lanes and with the same limits, read and written
// without JSON. Which form a request has its first bytes say. See package packed.

// forms says whether a request is in binary form, and whether the reply is to offer
// one: in a header. Answers in binary form need no such header, and others get none: it
// would be read in vain.
func (e *endpoint) forms(r request) (isPacked, offers bool) {
	if e.spell == nil {
		return false, false
	}
	if packed.IsAsk(r.body()) {
		return true, true
	}
	return false, r.header(packed.Header) != ""
}

// offer says that there is a binary form.
func offer(m *nats.Msg) {
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	m.Header.Set(packed.Header, packed.Offer)
}

// notPacked is the answer for a request that cannot be read. name is the list's.
func notPacked(err error, name string, most int) *failure {
	if err == nil {
		return nil
	}
	if zero, is := errors.AsType[*packed.NoID](err); is {
		return noID(name, zero.Index, "0")
	}
	if errors.Is(err, packed.ErrTooMany) {
		return tooMany(name, most)
	}
	if names, is := errors.AsType[*packed.TooManyNames](err); is {
		return tooManyNames(names)
	}
	return fail(codeBadRequest, "the body is not the request it should be: %v", err)
}

// take takes over what any request may carry.
func (w *wait) take(p *packed.Wait) *failure {
	w.timeout, w.whole = p.Timeout, p.Whole
	if p.Position > 0 {
		w.position, w.from = pipeline.Position(p.Position), minPosition
	}
	if !p.HasSeq {
		return nil
	}
	if p.Sequence == 0 || p.Sequence > sequenceMax {
		return noSequence(strconv.FormatUint(p.Sequence, 10))
	}
	w.position = pipeline.EndOf(p.Sequence)
	return w.once(minSeq)
}

// cellsFit refuses an answer in binary form that has too many cells.
func (c *call) cellsFit(columns int) *failure {
	if columns == 0 || c.ids <= packed.CellsMax/columns {
		return nil
	}
	return fail(codeTooMuch, "the reply has %d times %d cells, %d are the most; %s", c.ids, columns, packed.CellsMax, c.endpoint.advice)
}

// unpack reads the body, as parse does.
func (g *getRequest) unpack(c *call, idsMax int) *failure {
	g.idList.reset()
	g.member, g.raw = memberAsk{}, false
	ask := packed.GetAsk{Columns: g.columns[:0]}
	ids, err := ask.Read(c.body, g.ids, idsMax)
	g.ids, g.given, g.counter, g.columns = ids, true, ask.Counter, ask.Columns
	if f := notPacked(err, "ids", idsMax); f != nil {
		return f
	}
	return c.wait.take(&ask.Wait)
}

// packGet writes the answer. The cells of a missing id have no meaning.
func (s *Service) packGet(c *call) *failure {
	g := &c.get
	begin := len(c.out)
	c.out = g.pack(c.out)
	stale := s.stale(c, g.rows.AsOf)
	c.out = packed.EndReply(c.out, begin, stale)
	return s.ended(c, stale, len(g.rows.Missing) > 0)
}

func (g *getCall) pack(out []byte) []byte {
	g.names = g.names[:0]
	for _, w := range g.words {
		g.names = append(g.names, w.name)
	}
	out = packed.AppendGetHead(out, &packed.Tail{AsOf: uint64(g.rows.AsOf), Missing: g.rows.Missing}, len(g.ids), g.names)
	columns := len(g.words)
	g.cells = sized(g.cells, len(g.ids))
	for j, w := range g.words {
		for i, exists := range g.rows.Exist {
			value := w.defaultValue
			if exists {
				value = w.shown(g.rows.Values[i*columns+j])
			}
			g.cells[i] = uint64(value)
		}
		out = packed.AppendCells(out, g.cells)
	}
	return out
}

// sized makes room for n elements, whatever they are.
func sized(s []uint64, n int) []uint64 {
	if cap(s) < n {
		return make([]uint64, n)
	}
	return s[:n]
}

// unpackUnread reads the body, as readUnread does.
func (s *Service) unpackUnread(c *call) *failure {
	u := &c.unread
	u.idList.reset()
	u.channels = nil
	var ask packed.UnreadAsk
	ids, err := ask.Read(c.body, u.ids, s.limits.IDs)
	u.ids, u.given = ids, true
	if f := notPacked(err, "users", s.limits.IDs); f != nil {
		return f
	}
	if !ask.All {
		u.channels = []string{} // none is not the same as all
	}
	for _, text := range ask.Channels {
		if f := u.addChannel(string(text), strconv.AppendQuote(nil, string(text)), true); f != nil {
			return f
		}
	}
	return c.wait.take(&ask.Wait)
}

// packUnread writes the answer. It gives up soon after the reply is longer than
// the server takes.
func (s *Service) packUnread(c *call) *failure {
	u, words := &c.unread, s.catalog.unread
	names := packed.Names{Notices: u.unreads.Notices, Dots: u.unreads.Dots, Counts: s.catalog.unreadColumns}
	if f := c.cellsFit(names.Columns()); f != nil {
		return f
	}
	most, users, begin := s.replyMax(), u.unreads.Users, len(c.out)
	out := packed.AppendUnreadHead(c.out, &packed.Tail{AsOf: uint64(u.unreads.AsOf), Missing: u.unreads.Missing}, len(u.ids), &names)
	u.cells = sized(u.cells, len(users))
	cells := u.cells
	for i := range users {
		cells[i] = users[i].Feed
	}
	out = packed.AppendCells(out, cells)
	for j, w := range words {
		for i := range users {
			cells[i] = uint64(w.shown(users[i].Counts[j]))
		}
		out = packed.AppendCells(out, cells)
	}
	for j := 0; j < len(names.Notices) && len(out) <= most; j++ {
		for i := range users {
			cells[i] = users[i].Notices[j]
		}
		out = packed.AppendCells(out, cells)
	}
	for j := 0; j < len(names.Dots) && len(out) <= most; j++ {
		for i := range users {
			cells[i] = 0
			if users[i].Dots[j] {
				cells[i] = 1
			}
		}
		out = packed.AppendCells(out, cells)
	}
	stale := s.stale(c, u.unreads.AsOf)
	c.out = packed.EndReply(out, begin, stale)
	return s.ended(c, stale, len(u.unreads.Missing) > 0)
}

// text is what was asked, for people: a request in binary form as the JSON that asks
// the same, its first most bytes or so.
func (c *call) text(most int) []byte {
	if !c.packed {
		return c.body
	}
	if text := c.endpoint.spell(c.body, most); text != nil {
		return text
	}
	return fmt.Appendf(nil, "binary form: %.*q", most, c.body)
}

func spellGet(body []byte, most int) []byte {
	var ask packed.GetAsk
	ids, err := ask.Read(body, nil, len(body))
	if err != nil {
		return nil
	}
	out := fmt.Appendf(nil, `{"counter":%.*q`, most, ask.Counter)
	if len(ask.Columns) > 0 {
		out = spellNames(out, "columns", ask.Columns, most)
	}
	return append(spellIDs(spellWait(out, &ask.Wait), "ids", ids, most), '}')
}

func spellUnread(body []byte, most int) []byte {
	var ask packed.UnreadAsk
	ids, err := ask.Read(body, nil, len(body))
	if err != nil {
		return nil
	}
	out := spellWait([]byte{'{'}, &ask.Wait)
	if !ask.All {
		out = spellNames(out, "channels", ask.Channels, most)
	}
	out = append(spellIDs(out, "users", ids, most), '}')
	return append(out[:1], out[2:]...) // without the first comma
}

func spellWait(out []byte, w *packed.Wait) []byte {
	if w.Position > 0 {
		out = fmt.Appendf(out, `,"min_position":"%d"`, w.Position)
	}
	if w.HasSeq {
		out = fmt.Appendf(out, `,"min_seq":%d`, w.Sequence)
	}
	if w.Timeout >= 0 {
		out = fmt.Appendf(out, `,"timeout_ms":%d`, w.Timeout.Milliseconds())
	}
	if w.Whole {
		out = append(out, `,"partial":false`...)
	}
	return out
}

func spellNames(out []byte, what string, names [][]byte, most int) []byte {
	out = fmt.Appendf(out, `,%q:[`, what)
	for i, name := range names {
		if len(out) > most { // there is no room for more
			break
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = fmt.Appendf(out, `%.*q`, most, name)
	}
	return append(out, ']')
}

func spellIDs(out []byte, what string, ids []uint64, most int) []byte {
	out = fmt.Appendf(out, `,%q:[`, what)
	for i, id := range ids {
		if len(out) > most { // there is no room for more
			break
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = appendQuoted(out, id)
	}
	return append(out, ']')
}
