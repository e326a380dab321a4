package client

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/query/internal/packed"
)

// question can be asked in both forms.
type question interface {
	subject() string
	wait() wait
	AppendJSON(body []byte) ([]byte, error)
	// appendPacked appends the binary form; false: it has none, and is asked in JSON.
	appendPacked(body []byte) ([]byte, bool)
}

// binaryForm is what is known of the nodes' binary form. A request goes to any of
// several nodes, and some may be older than others: a node that does not understand it
// refuses it as no JSON, and is asked again in JSON.
type binaryForm struct{ state atomic.Int64 }

const (
	unknown = 0 // to be asked with the next request
	offered = 1 // by the node that was asked last; above it: Unix ns until which nobody is asked
)

// jsonFor is how long JSON alone is spoken once a node did not understand the
// binary form, or did not offer it: with nodes of two versions, so often a request
// is asked twice.
const jsonFor = 10 * time.Second

// none notes that somebody does not know the binary form.
func (b *binaryForm) none(before int64) {
	b.state.CompareAndSwap(before, time.Now().Add(jsonFor).UnixNano())
}

// due says whether a request in JSON should ask for the binary form.
func (b *binaryForm) due(state int64) bool {
	return state == unknown || state > offered && time.Now().UnixNano() >= state
}

// bodies are buffers for requests: NATS has copied a body when it is sent.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

// either asks in the binary form where it is known that nodes offer it, in JSON
// otherwise, and says which form the reply has.
func (c *Client) either(ctx context.Context, q question) (reply []byte, isPacked bool, err error) {
	buffer := bodies.Get().(*[]byte)
	defer bodies.Put(buffer)
	state := c.binary.state.Load()
	if state == offered {
		body, ok := q.appendPacked((*buffer)[:0])
		*buffer = body
		if ok {
			m, err := c.send(ctx, &nats.Msg{Subject: q.subject(), Data: body}, q.wait())
			if understood(m, err) {
				return data(m), true, err
			}
			c.binary.none(state)
			state = c.binary.state.Load()
		}
	}
	body, err := q.AppendJSON((*buffer)[:0])
	if err != nil {
		return nil, false, err
	}
	*buffer = body
	request := &nats.Msg{Subject: q.subject(), Data: body}
	asks := c.binary.due(state) && c.nc.HeadersSupported()
	if asks {
		request.Header = nats.Header{packed.Header: {packed.Offer}}
	}
	m, err := c.send(ctx, request, q.wait())
	switch {
	case !asks || m == nil:
	case m.Header.Get(packed.Header) == packed.Offer:
		c.binary.state.CompareAndSwap(state, offered)
	default:
		c.binary.none(state)
	}
	return data(m), false, err
}

func data(m *nats.Msg) []byte {
	if m == nil {
		return nil
	}
	return m.Data
}

// understood says whether a request in binary form was read by a node that knows it, as
// far as that matters: to be too busy is not to misunderstand.
func understood(m *nats.Msg, err error) bool {
	return m == nil || !isCode(err, codeBadRequest) || m.Header.Get(packed.Header) == packed.Offer
}

func (r *GetRequest) subject() string { return "tidemark.get" }

func (r *GetRequest) wait() wait { return wait{r.MinPosition, r.Timeout} }

func (r *GetRequest) appendPacked(body []byte) ([]byte, bool) {
	w := r.wait().packed()
	return packed.AppendGet(body, &w, r.Counter, r.Columns, r.IDs), !r.asksSets() && !r.Raw && utf8.ValidString(r.Counter) && areTexts(r.Columns)
}

func (r *UnreadRequest) subject() string { return "tidemark.unread" }

func (r *UnreadRequest) wait() wait { return wait{r.MinPosition, r.Timeout} }

func (r *UnreadRequest) appendPacked(body []byte) ([]byte, bool) {
	w := r.wait().packed()
	return packed.AppendUnread(body, &w, r.Users, r.Channels), areTexts(r.Channels)
}

// areTexts says whether names could stand in JSON.
func areTexts(names []string) bool {
	for _, name := range names {
		if !utf8.ValidString(name) {
			return false
		}
	}
	return true
}

func (w wait) packed() packed.Wait {
	p := packed.Wait{Position: uint64(w.position), Timeout: -1}
	if w.timeout > 0 {
		p.Timeout = max(w.timeout, time.Millisecond)
	}
	return p
}

// unpack reads the reply to a request in binary form. As in JSON there are columns
// only where a row has some.
func (r *GetReply) unpack(body []byte, q *GetRequest) error {
	var p packed.GetReply
	if err := p.Read(body, len(q.IDs), q.Columns); err != nil {
		return err
	}
	columns := len(p.Columns)
	r.AsOf, r.Rows = Position(p.AsOf), make([]Row, len(q.IDs))
	missing := placesOf(&p.Tail, len(q.IDs))
	for i, id := range q.IDs {
		if missing == nil || !missing[i] {
			r.Columns = p.Columns
			r.Rows[i].Values = p.Values[i*columns : (i+1)*columns : (i+1)*columns]
		}
		r.Rows[i].ID = id
	}
	r.Degraded, r.Missing, r.Stale = missing != nil || p.Stale > 0, idsAt(p.Missing, q.IDs), milliseconds(p.Stale)
	return nil
}

// placesOf says of each of n places whether it is missing; nil: none is.
func placesOf(t *packed.Tail, n int) []bool {
	if len(t.Missing) == 0 {
		return nil
	}
	missing := make([]bool, n)
	for _, i := range t.Missing {
		missing[i] = true
	}
	return missing
}

// idsAt lists the ids at some places, each once.
func idsAt(places []int, ids []uint64) (at []uint64) {
	told := make(map[uint64]bool, len(places))
	for _, i := range places {
		if !told[ids[i]] {
			told[ids[i]] = true
			at = append(at, ids[i])
		}
	}
	return at
}

// unpack reads the reply to a request in binary form.
func (r *UnreadReply) unpack(body []byte, users []uint64) error {
	var p packed.UnreadReply
	if err := p.Read(body, len(users)); err != nil {
		return err
	}
	columns := p.Names.Columns()
	r.AsOf, r.Users = Position(p.AsOf), make([]UserUnread, len(users))
	missing := placesOf(&p.Tail, len(users))
	for i := range users {
		u := &r.Users[i]
		if u.User = users[i]; missing != nil && missing[i] {
			u.Missing = true
			continue
		}
		if err := u.fill(&p.Names, p.Values[i*columns:(i+1)*columns]); err != nil {
			return err
		}
	}
	r.Degraded, r.Missing, r.Stale = missing != nil || p.Stale > 0, idsAt(p.Missing, users), milliseconds(p.Stale)
	return nil
}

// fill takes over a user's values, one for each column.
func (u *UserUnread) fill(names *packed.Names, values []int64) error {
	u.Feed, values = uint64(values[0]), values[1:]
	u.Counts = make(map[string]int64, len(names.Counts))
	for j, name := range names.Counts {
		u.Counts[name] = values[j]
	}
	values = values[len(names.Counts):]
	u.Channels = make(map[string]uint64, len(names.Notices))
	for j, name := range names.Notices {
		u.Channels[name] = uint64(values[j])
	}
	values = values[len(names.Notices):]
	u.Dots = make(map[string]bool, len(names.Dots))
	for j, name := range names.Dots {
		if values[j]&^1 != 0 {
			return fmt.Errorf("user %d: %s is neither lit nor not", u.User, name)
		}
		u.Dots[name] = values[j] == 1
	}
	return nil
}
