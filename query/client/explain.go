package client

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// ExplainRequest asks for the events behind a number.
type ExplainRequest struct {
	Number      string // "post.like"; "unread.feed", "unread.channel:system"; "unread" for all numbers of a user's badge
	ID          uint64
	Limit       int           // events in the page; 0: 20; at most 1,000
	Before      Position      // ExplainReply.Next of the page before; 0: from the newest
	MinPosition Position      // answer with at least this much applied
	Timeout     time.Duration // how long that, and reading the log, may take; 0: the node's default, two seconds
}

// ExplainReply is a page, newest first. A page ends early when its time is over:
// it may be empty and have a Next.
type ExplainReply struct {
	ID      uint64
	Value   int64            // the number as of AsOf
	Numbers map[string]int64 // of "unread": each of them; Value is their sum
	// Since says of the feed and of channels after which position things count.
	Since map[string]Position
	Notes []string // bounds that may keep something out of a number, in words
	AsOf  Position
	// Degraded: the number can be older than the nodes' freshness (2 s). Stale says how old.
	Degraded bool
	Stale    time.Duration
	Events   []ExplainedEvent
	Next     Position // goes to ExplainRequest.Before; 0 at the end
	Base     ExplainBase
}

// ExplainedEvent is an event and what it changed.
type ExplainedEvent struct {
	Position Position
	Time     time.Time // of the log
	Type     string
	Change   string            // "+1", "-1"; "=5" where it set the number
	Changes  map[string]string // of "unread": each number's
	Unsure   bool              // what the change depends on was not found in time, or is no longer in the log
	Event    json.RawMessage   // nil where it is longer than 64 KiB
	Bytes    int               // of the event, then
}

// ExplainBase is what is before the log's first event.
type ExplainBase struct {
	Position Position // up to which messages were removed; 0: the log is whole
	Value    *int64   // what the number was there; nil: not known
}

// Explain reads a page of the events behind a number. Errors of the node are
// *Error.
func (c *Client) Explain(ctx context.Context, r ExplainRequest) (ExplainReply, error) {
	w := wait{r.MinPosition, r.Timeout}
	body := strconv.AppendQuote([]byte(`{"number":`), r.Number)
	body = strconv.AppendUint(append(body, `,"id":`...), r.ID, 10)
	if r.Limit != 0 {
		body = strconv.AppendInt(append(body, `,"limit":`...), int64(r.Limit), 10)
	}
	if r.Before != 0 {
		body = strconv.AppendUint(append(body, `,"before":`...), uint64(r.Before), 10)
	}
	reply, err := c.ask(ctx, "tidemark.explain", append(w.appendTo(body), '}'), w)
	if err != nil {
		return ExplainReply{}, err
	}
	var page ExplainReply
	if err := page.decode(reply); err != nil {
		return ExplainReply{}, fmt.Errorf("client: the reply of tidemark.explain: %w", err)
	}
	return page, nil
}

func (r *ExplainReply) decode(body []byte) error {
	var reply struct {
		ID      uint64            `json:"id,string"`
		Value   int64             `json:"value"`
		Numbers map[string]int64  `json:"numbers"`
		Since   map[string]string `json:"since"`
		Notes   []string          `json:"notes"`
		AsOf    Position          `json:"as_of,string"`

		Degraded bool   `json:"degraded"`
		StaleMS  uint64 `json:"stale_ms"`

		Events []struct {
			Position Position          `json:"position,string"`
			Time     time.Time         `json:"time"`
			Type     string            `json:"type"`
			Change   string            `json:"change"`
			Changes  map[string]string `json:"changes"`
			Unsure   bool              `json:"unsure"`
			Event    json.RawMessage   `json:"event"`
			Bytes    int               `json:"event_bytes"`
		} `json:"events"`
		Next Position `json:"next,string"`
		Base struct {
			Position Position `json:"position,string"`
			Value    *int64   `json:"value"`
		} `json:"base"`
	}
	if err := json.Unmarshal(body, &reply); err != nil {
		return err
	}
	*r = ExplainReply{
		ID: reply.ID, Value: reply.Value, Numbers: reply.Numbers, Notes: reply.Notes, AsOf: reply.AsOf, Next: reply.Next,
		Base: ExplainBase{reply.Base.Position, reply.Base.Value}, Degraded: reply.Degraded, Stale: milliseconds(reply.StaleMS),
	}
	for name, text := range reply.Since {
		at, err := pipeline.ParsePosition(text)
		if err != nil {
			return fmt.Errorf("since %s: %w", name, err)
		}
		if r.Since == nil {
			r.Since = make(map[string]Position)
		}
		r.Since[name] = at
	}
	for _, e := range reply.Events {
		if e.Bytes > 0 {
			e.Event = nil
		}
		r.Events = append(r.Events, ExplainedEvent(e))
	}
	return nil
}
