// Package client speaks to Tidemark: it publishes events and asks counters.
//
//	c, err := client.Connect("nats://127.0.0.1:4222")
//	at, err := c.Publish(ctx, client.Like(7, 42, 9))        // user 7 likes post 42 of user 9
//	counts, _, err := c.Counts(ctx, "post", 42, client.Wait(at)) // that like included
//
// Publish stores one event and waits for its acknowledgement. A [Packer]
// stores many: it puts up to 1,024 events into a message and keeps several
// messages in flight. [Client.Get] reads up to 10,000 rows of a counter in one
// request, [Client.GetMany] any number.
//
// [Client.Unread] counts what users have not looked at yet; [Client.Read] marks it as
// read. [Client.Feed], [Client.Following] and [Client.Followers] read one page;
// AllFeed, AllFollowing and AllFollowers go through all of them. GetRequest.Member asks
// whether a member is in the sets of columns, [Client.Page] the same with all counts of
// posts; [Client.Members] lists a set. [Client.Stats], [Client.SlowLog],
// [Client.Nodes], [Client.Shards] and [Client.Schema] are for operators.
//
// Everything goes over NATS as docs/queries.md describes it; nothing here is
// out of reach for a client in another language. Where the nodes offer it, Get and
// Unread are asked in a binary form by themselves: it costs both sides less.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Position is a place in the event log. It is opaque but for its order.
type Position = pipeline.Position

// Client is a connection to Tidemark. It may be used concurrently.
type Client struct {
	nc         *nats.Conn
	own        bool
	ackTimeout time.Duration
	binary     binaryForm
}

// Connect connects to a NATS server that Tidemark is on; Close closes it.
func Connect(url string, options ...nats.Option) (*Client, error) {
	nc, err := nats.Connect(url, options...)
	if err != nil {
		return nil, fmt.Errorf("client: connect to %s: %w", url, err)
	}
	return &Client{nc: nc, own: true, ackTimeout: ackTimeout}, nil
}

// New uses a connection, which stays the caller's to close.
func New(nc *nats.Conn) *Client { return &Client{nc: nc, ackTimeout: ackTimeout} }

// Conn is the connection.
func (c *Client) Conn() *nats.Conn { return c.nc }

// Close closes the connection if Connect opened it. Packers must be closed
// before.
func (c *Client) Close() {
	if c.own {
		c.nc.Close()
	}
}

// Error is an answer that says what is wrong. Its codes are those of
// Tidemark's queries (400, 404, 413, 500, 503, 504) and of JetStream.
type Error struct {
	Code    int
	Message string
	cause   error
}

func (e *Error) Error() string { return fmt.Sprintf("tidemark: %s (%d)", e.Message, e.Code) }

// Unwrap is nats.ErrNoResponders when nobody was there to answer, ErrUncertain
// when the node does not know whether it stored a read, ErrRefused when events are
// refused.
func (e *Error) Unwrap() error { return e.cause }

const (
	codeBadRequest  = 400
	codeTooMuch     = 413 // a part of it may be answered
	codeUnavailable = 503 // not ready, busy, or nobody there: asking again may help
)

// isCode reports whether err is an Error with that code.
func isCode(err error, code int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == code
}

// Option goes with a single question.
type Option func(*wait)

type wait struct {
	position Position
	timeout  time.Duration
}

// Wait asks for an answer with at least p applied, p included.
func Wait(p Position) Option { return func(w *wait) { w.position = p } }

// Acked is what to wait for when JetStream has acknowledged a message with that
// sequence, of any publisher: the whole message, of a pack all its events.
//
//	counts, _, err := c.Counts(ctx, "post", 42, client.Wait(client.Acked(ack.Sequence)))
//
// No acknowledgement has sequence 0. Acked(0) is 0, which waits for nothing.
func Acked(sequence uint64) Position {
	if sequence == 0 {
		return 0
	}
	return pipeline.EndOf(min(sequence, pipeline.PositionMax.Sequence()))
}

// Within bounds Wait; the node's default is two seconds.
func Within(d time.Duration) Option { return func(w *wait) { w.timeout = d } }

// appendTo writes the members of a request, each with a comma in front.
func (w wait) appendTo(body []byte) []byte {
	if w.position > 0 {
		body = append(body, `,"min_position":"`...)
		body = strconv.AppendUint(body, uint64(w.position), 10)
		body = append(body, '"')
	}
	if w.timeout > 0 {
		body = append(body, `,"timeout_ms":`...)
		body = strconv.AppendInt(body, max(w.timeout.Milliseconds(), 1), 10)
	}
	return body
}

const (
	// timeoutDefault is how long a node waits if a request says nothing.
	timeoutDefault = 2 * time.Second
	// answerTimeout is added to the time that a node may wait, for a caller
	// whose context has no deadline.
	answerTimeout = 5 * time.Second
)

// ask sends a request and gives the reply's body, that of an *Error too.
func (c *Client) ask(ctx context.Context, subject string, body []byte, w wait) ([]byte, error) {
	reply, err := c.send(ctx, &nats.Msg{Subject: subject, Data: body}, w)
	if reply == nil {
		return nil, err
	}
	return reply.Data, err
}

// send sends a request and gives the reply, that of an *Error too, if there is one.
func (c *Client) send(ctx context.Context, request *nats.Msg, w wait) (*nats.Msg, error) {
	subject := request.Subject
	if _, has := ctx.Deadline(); !has {
		timeout := w.timeout
		if timeout == 0 {
			timeout = timeoutDefault
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout+answerTimeout)
		defer cancel()
	}
	reply, err := c.nc.RequestMsgWithContext(ctx, request)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, &Error{codeUnavailable, "nobody answers " + subject + ": is tidemark running on this NATS server?", err}
	}
	if err != nil {
		return nil, fmt.Errorf("client: ask %s: %w", subject, err)
	}
	if text := reply.Header.Get(micro.ErrorCodeHeader); text != "" {
		code, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("client: ask %s: error code %q", subject, text)
		}
		return reply, &Error{Code: code, Message: reply.Header.Get(micro.ErrorHeader)}
	}
	return reply, nil
}

// Ask sends hand-written JSON to an endpoint ("get", "unread", …) and gives
// the reply's JSON. Errors of the node are *Error.
func (c *Client) Ask(ctx context.Context, endpoint string, body []byte) ([]byte, error) {
	reply, err := c.ask(ctx, "tidemark."+endpoint, body, wait{})
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// simple asks an endpoint that has few fields of its own, or none.
func (c *Client) simple(ctx context.Context, subject, fields string, options []Option) ([]byte, error) {
	w := waitOf(options)
	body := append(w.appendTo([]byte("{"+fields)), '}')
	if fields == "" && len(body) > 2 {
		body = append(body[:1], body[2:]...) // the first comma
	}
	return c.ask(ctx, subject, body, w)
}

// Stats is the node's figures. Numbers are [json.Number]: counts of 64 bits
// stay exact.
func (c *Client) Stats(ctx context.Context, options ...Option) (map[string]any, error) {
	reply, err := c.simple(ctx, "tidemark.stats", "", options)
	if err != nil {
		return nil, err
	}
	figures := map[string]any{}
	if err := decode(reply, &figures); err != nil {
		return nil, fmt.Errorf("client: stats: %w", err)
	}
	return figures, nil
}

// Schema is what a node counts.
type Schema struct {
	Counters map[string]CounterSchema `json:"counters"`
	Types    map[string][]string      `json:"types"` // event types, each with the fields that are read of it; nil: not known
	Shards   int                      `json:"shards"`
	Version  string                   `json:"version"`
}

// CounterSchema is one counter's columns, in the configuration's order.
type CounterSchema struct {
	Columns []ColumnSchema `json:"columns"`
}

// ColumnSchema is one column. Bits is its width in the packed row, Max the
// width that it may grow to, Default the answer for a row that does not exist. Set is what
// is in the column's set: "ids", "pairs", "tokens", or "" where it has none; Keep for how
// many seconds it is remembered, 0 for ever. Items is how many items a column of unread keeps
// of a user at most, 0 where it keeps none.
type ColumnSchema struct {
	Name    string `json:"name"`
	Suffix  string `json:"suffix"` // a name of its own, may be empty
	Bits    int    `json:"bits"`
	Max     int    `json:"max"`
	Default int64  `json:"default"`
	Signed  bool   `json:"signed"` // values may be negative
	Set     string `json:"set"`
	Keep    int64  `json:"keep_s"`
	Items   int    `json:"items"`
}

// Schema asks what the node counts.
func (c *Client) Schema(ctx context.Context, options ...Option) (Schema, error) {
	reply, err := c.simple(ctx, "tidemark.schema", "", options)
	if err != nil {
		return Schema{}, err
	}
	var schema Schema
	if err := decode(reply, &schema); err != nil {
		return Schema{}, fmt.Errorf("client: schema: %w", err)
	}
	return schema, nil
}

func decode(body []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	return d.Decode(v)
}
