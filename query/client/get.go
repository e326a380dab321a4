package client

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/query/internal/jsonscan"
)

// GetRequest asks columns of one counter for ids.
type GetRequest struct {
	Counter     string        // may be empty when all columns are suffixes of one counter
	IDs         []uint64      // at most 10,000; answered in this order, each as often as it is asked
	Columns     []string      // names or suffixes; nil: all, by name
	Member      Member        // whether it is in the sets of the columns: an id, or a pair; zero: it is not asked
	Token       string        // the same of a token; not together with Member
	Raw         bool          // sums as they are: also those below zero of columns that are not signed
	MinPosition Position      // answer with at least this much applied
	Timeout     time.Duration // how long MinPosition may take; 0: the node's default, two seconds
}

// GetReply is the answer: a row for every id, in the order asked.
type GetReply struct {
	Columns  []string // of every row's Values, in the order asked
	Sets     []string // of every row's Has: those of the columns that can have what was asked
	Rows     []Row
	AsOf     Position // every event at or before it is counted
	Degraded bool     // some ids could not be read, or the answer can be old: Stale
	Missing  []uint64 // those ids; their rows have no Values
	// Stale is how old the answer can be, where it can be older than the nodes' freshness
	// (2 s): Degraded then, with nothing missing perhaps. 0: it is not.
	Stale time.Duration
}

// Row is one id's values.
type Row struct {
	ID     uint64
	Values []int64 // Values[i] belongs to Columns[i]; nil for a missing id
	Has    []bool  // Has[i] belongs to Sets[i]; nil for a missing id
}

// Map is the i-th row as a map, nil for a missing id.
func (r *GetReply) Map(i int) map[string]int64 {
	if r.Rows[i].Values == nil {
		return nil
	}
	values := make(map[string]int64, len(r.Columns))
	for j, name := range r.Columns {
		values[name] = r.Rows[i].Values[j]
	}
	return values
}

// Value is one value of the i-th row; ok is false for a missing id and for a
// column that was not asked.
func (r *GetReply) Value(i int, column string) (value int64, ok bool) {
	j := slices.Index(r.Columns, column)
	if j < 0 || r.Rows[i].Values == nil {
		return 0, false
	}
	return r.Rows[i].Values[j], true
}

// Get reads rows with one request. An answer that is not whole is no error:
// look at Degraded. Errors of the node are *Error.
func (c *Client) Get(ctx context.Context, r GetRequest) (GetReply, error) {
	body, isPacked, err := c.either(ctx, &r)
	if err != nil {
		return GetReply{}, err
	}
	var reply GetReply
	if isPacked {
		err = reply.unpack(body, &r)
	} else {
		err = reply.decode(body, len(r.IDs))
	}
	if err != nil {
		return GetReply{}, unreadable("get", err)
	}
	return reply, nil
}

const (
	getManyIDs      = 5_000 // in one request: some 10 columns fit into NATS's usual 1 MB
	getManyParallel = 4
)

// GetMany is Get for any number of ids: it asks in parts of 5,000, four at a
// time, and in halves where a reply would be too large. The parts may be as
// of different positions; AsOf is the lowest.
func (c *Client) GetMany(ctx context.Context, r GetRequest) (GetReply, error) {
	if len(r.IDs) <= getManyIDs {
		return c.getHalved(ctx, r)
	}
	if i := slices.Index(r.IDs, 0); i >= 0 { // a part would tell the wrong place
		return GetReply{}, &Error{Code: 400, Message: fmt.Sprintf("ids[%d]: 0 is not an id", i)}
	}
	parts := make([]GetReply, (len(r.IDs)+getManyIDs-1)/getManyIDs)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(getManyParallel)
	i := 0
	for ids := range slices.Chunk(r.IDs, getManyIDs) {
		part, to := r, &parts[i]
		part.IDs = ids
		i++
		g.Go(func() (err error) {
			*to, err = c.getHalved(ctx, part)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return GetReply{}, err
	}
	return join(parts), nil
}

// getHalved asks again in halves when the reply does not fit into a message.
func (c *Client) getHalved(ctx context.Context, r GetRequest) (GetReply, error) {
	reply, err := c.Get(ctx, r)
	if !isCode(err, codeTooMuch) || len(r.IDs) < 2 {
		return reply, err
	}
	var halves [2]GetReply
	all := r.IDs
	for i, ids := range [][]uint64{all[:len(all)/2], all[len(all)/2:]} {
		r.IDs = ids
		if halves[i], err = c.getHalved(ctx, r); err != nil {
			return GetReply{}, err
		}
	}
	return join(halves[:]), nil
}

func join(parts []GetReply) GetReply {
	all := GetReply{AsOf: parts[0].AsOf}
	told := map[uint64]bool{}
	for _, part := range parts {
		if all.Columns == nil {
			all.Columns, all.Sets = part.Columns, part.Sets
		}
		all.Rows = append(all.Rows, part.Rows...)
		all.AsOf = min(all.AsOf, part.AsOf)
		all.Degraded, all.Stale = all.Degraded || part.Degraded, max(all.Stale, part.Stale)
		for _, id := range part.Missing {
			if !told[id] {
				told[id] = true
				all.Missing = append(all.Missing, id)
			}
		}
	}
	return all
}

// unreadable is the error of a reply that is not what it should be.
func unreadable(endpoint string, err error) error {
	return fmt.Errorf("client: the reply of tidemark.%s: %w", endpoint, err)
}

// Counts reads all columns of one id. An id that cannot be read now is an
// *Error with code 503.
func (c *Client) Counts(ctx context.Context, counter string, id uint64, options ...Option) (map[string]int64, Position, error) {
	w := waitOf(options)
	reply, err := c.Get(ctx, GetRequest{Counter: counter, IDs: []uint64{id}, MinPosition: w.position, Timeout: w.timeout})
	if err != nil {
		return nil, 0, err
	}
	if reply.Degraded {
		return nil, 0, notWhole(fmt.Sprintf("%s %d", counter, id), reply.Stale)
	}
	return reply.Map(0), reply.AsOf, nil
}

// notWhole is the error for what cannot be read, or only as it was some time ago.
func notWhole(what string, stale time.Duration) *Error {
	why := "its shard is stopped"
	if stale > 0 {
		why = fmt.Sprintf("the answer can be %d ms old", stale.Milliseconds())
	}
	return &Error{Code: codeUnavailable, Message: fmt.Sprintf("%s cannot be read: %s", what, why)}
}

// AppendJSON appends the request as it goes over the wire in JSON.
func (r *GetRequest) AppendJSON(body []byte) ([]byte, error) {
	body = appendIDs(body, r.IDs)
	var err error
	if r.Counter != "" {
		body = append(body, `,"counter":`...)
		if body, err = jsontext.AppendQuote(body, r.Counter); err != nil {
			return nil, fmt.Errorf("client: counter %q: %w", r.Counter, err)
		}
	}
	if len(r.Columns) > 0 {
		body = append(body, `,"columns":[`...)
		for i, name := range r.Columns {
			if i > 0 {
				body = append(body, ',')
			}
			if body, err = jsontext.AppendQuote(body, name); err != nil {
				return nil, fmt.Errorf("client: column %q: %w", name, err)
			}
		}
		body = append(body, ']')
	}
	if body, err = r.appendMember(body); err != nil {
		return nil, err
	}
	if r.Raw {
		body = append(body, `,"raw":true`...)
	}
	body = r.wait().appendTo(body)
	return append(body, '}'), nil
}

// appendIDs begins a request about ids.
func appendIDs(body []byte, ids []uint64) []byte {
	body = append(body, `{"ids":[`...)
	for _, id := range ids {
		body = append(strconv.AppendUint(body, id, 10), ',')
	}
	return append(bytes.TrimSuffix(body, []byte{','}), ']')
}

// decode reads a reply of about that many rows. Rows come with the same
// columns in the same order, so names are looked up in the first row only;
// all values are one allocation.
func (r *GetReply) decode(body []byte, rows int) error {
	var s jsonscan.Scanner
	s.Reset(body)
	var values []int64
	var form rowForm
	var end ending
	var err error
	for s.Object(); s.Member() && err == nil; {
		switch key := s.Key(); string(key) {
		case "rows":
			r.Rows = make([]Row, 0, rows)
			for s.Array(); s.Element() && err == nil; {
				if form.columns != nil {
					if row, ok := form.decode(&s, &values); ok {
						r.Rows = append(r.Rows, row)
						continue
					}
				}
				if values, err = r.decodeRow(&s, values, rows); form.columns == nil && r.Columns != nil {
					form = newRowForm(r.Columns)
				}
			}
		default:
			err = end.member(&s, key)
		}
	}
	if err != nil {
		return err
	}
	r.AsOf, r.Degraded, r.Missing, r.Stale = end.asOf, end.degraded, end.missing, end.stale
	return s.End()
}

// rowForm is how a node writes rows: without a space, the id first. Most rows
// are read by comparing with it; what differs is read member by member.
type rowForm struct {
	columns []string // `,"like":`
}

func newRowForm(columns []string) rowForm {
	f := rowForm{make([]string, len(columns))}
	for i, name := range columns {
		quoted, _ := jsontext.AppendQuote([]byte{','}, name)
		f.columns[i] = string(append(quoted, ':'))
	}
	return f
}

// decode reads a row of this form; otherwise it reads nothing.
func (f rowForm) decode(s *jsonscan.Scanner, values *[]int64) (row Row, ok bool) {
	start, n := *s, len(*values)
	ok = s.Literal(`{"id":`)
	if ok {
		row.ID, _, ok = s.Uint()
	}
	for i := 0; ok && i < len(f.columns); i++ {
		if ok = s.Literal(f.columns[i]); ok {
			var value int64
			value, _, ok = s.Int()
			*values = append(*values, value)
		}
	}
	if !ok || !s.Literal(`}`) {
		*s, *values = start, (*values)[:n]
		return Row{}, false
	}
	row.Values = (*values)[n:len(*values):len(*values)]
	return row, true
}

func decodeID(s *jsonscan.Scanner) (uint64, error) {
	id, raw, ok := s.Uint()
	if !ok && s.Err() == nil {
		return 0, fmt.Errorf("an id is %s", raw)
	}
	return id, nil
}

// decodeRow reads {"id":"42","like":3} and takes its Values from values.
func (r *GetReply) decodeRow(s *jsonscan.Scanner, values []int64, rows int) ([]int64, error) {
	var row Row
	var err error
	first := r.Columns == nil
	j := 0
	for s.Object(); s.Member(); {
		key := s.Key()
		if string(key) == "id" {
			if row.ID, err = decodeID(s); err != nil {
				return nil, err
			}
			continue
		}
		if string(key) == "has" && s.IsObject() { // else it is a column of that name
			if row.Has, err = r.decodeHas(s, row.ID); err != nil {
				return nil, err
			}
			continue
		}
		if first {
			r.Columns = append(r.Columns, string(key))
		} else if j >= len(r.Columns) || string(key) != r.Columns[j] {
			return nil, fmt.Errorf("id %d has a column %s where others have not", row.ID, key)
		}
		value, raw, ok := s.Int()
		if !ok && s.Err() == nil {
			return nil, fmt.Errorf("id %d: %s is %s", row.ID, key, raw)
		}
		values = append(values, value)
		j++
	}
	if j > 0 {
		if j != len(r.Columns) && s.Err() == nil {
			return nil, fmt.Errorf("id %d has %d columns, others have %d", row.ID, j, len(r.Columns))
		}
		row.Values = values[len(values)-j : len(values) : len(values)]
		if first {
			values = slices.Grow(values, max(rows-1, 0)*j)
		}
	}
	r.Rows = append(r.Rows, row)
	return values, nil
}
