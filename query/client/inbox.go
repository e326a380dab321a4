package client

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tidemark-io/tidemark/query/internal/jsonscan"
)

// InboxRequest asks a page of what is new for a user.
type InboxRequest struct {
	User        uint64
	Kinds       []string      // columns of unread that keep items; none: all of them
	Limit       int           // items in the page; 0: 20; at most 1,000
	Before      Position      // InboxReply.Next of the page before; 0: from the newest
	Unread      bool          // unread items alone
	MinPosition Position      // answer with at least this much applied
	Timeout     time.Duration // how long MinPosition may take; 0: the node's default, two seconds
}

// InboxReply is a page, newest first. Pages that follow one another have no gap and no
// repeat while new items arrive.
type InboxReply struct {
	Items    []InboxItem
	Next     Position // goes to InboxRequest.Before; 0 at the end
	AsOf     Position // every event at or before it is in it
	Degraded bool     // the lists could not be read, because a shard is stopped, or the answer can be old: Stale
	Missing  []uint64 // the user, where they could not be read
	// Stale is how old the answer can be, where it can be older than the nodes' freshness
	// (2 s): Degraded then, with nothing missing perhaps. 0: it is not.
	Stale time.Duration
}

// InboxItem is something that happened to a user.
type InboxItem struct {
	Position Position  // of its event; ReadRequest.Items takes it
	Time     time.Time // to the second
	Kind     string    // the column of unread that counts it
	Actor    uint64    // whoever did it
	Post     uint64    // what it is about; 0: no post
	Read     bool
}

// Inbox reads a page of what is new for a user. An answer that is not whole is no error:
// look at Degraded. Errors of the node are *Error.
func (c *Client) Inbox(ctx context.Context, r InboxRequest) (InboxReply, error) {
	body, err := r.appendJSON(nil)
	if err != nil {
		return InboxReply{}, err
	}
	answer, err := c.ask(ctx, "tidemark.inbox", body, wait{r.MinPosition, r.Timeout})
	if err != nil {
		return InboxReply{}, err
	}
	var reply InboxReply
	if err := reply.decode(answer); err != nil {
		return InboxReply{}, unreadable("inbox", err)
	}
	return reply, nil
}

func (r *InboxRequest) appendJSON(body []byte) ([]byte, error) {
	body = strconv.AppendUint(append(body, `{"user":`...), r.User, 10)
	if len(r.Kinds) > 0 {
		for i, kind := range r.Kinds {
			if i == 0 {
				body = append(body, `,"kinds":[`...)
			} else {
				body = append(body, ',')
			}
			var err error
			if body, err = jsontext.AppendQuote(body, kind); err != nil {
				return nil, fmt.Errorf("client: kind %q: %w", kind, err)
			}
		}
		body = append(body, ']')
	}
	if r.Limit != 0 {
		body = strconv.AppendInt(append(body, `,"limit":`...), int64(r.Limit), 10)
	}
	if r.Before != 0 {
		body = append(strconv.AppendUint(append(body, `,"before":"`...), uint64(r.Before), 10), '"')
	}
	if r.Unread {
		body = append(body, `,"unread":true`...)
	}
	return append(wait{r.MinPosition, r.Timeout}.appendTo(body), '}'), nil
}

// AllInbox goes through the items that r asks for, newest first, page by page; r.Limit is
// that of a page. It ends after the first error, also where a page is not whole (an *Error
// with code 503).
func (c *Client) AllInbox(ctx context.Context, r InboxRequest) iter.Seq2[InboxItem, error] {
	return func(yield func(InboxItem, error) bool) {
		for {
			reply, err := c.Inbox(ctx, r)
			if err == nil && reply.Degraded {
				err = notWhole(fmt.Sprintf("all of the inbox of user %d", r.User), reply.Stale)
			}
			if err != nil {
				yield(InboxItem{}, err)
				return
			}
			for _, item := range reply.Items {
				if !yield(item, nil) {
					return
				}
			}
			if reply.Next == 0 {
				return
			}
			r.Before, r.MinPosition = reply.Next, 0
		}
	}
}

func (r *InboxReply) decode(body []byte) error {
	var s jsonscan.Scanner
	s.Reset(body)
	var end ending
	var err error
	for s.Object(); s.Member() && err == nil; {
		switch key := s.Key(); string(key) {
		case "items":
			for s.Array(); s.Element() && err == nil; {
				var item InboxItem
				err = item.decode(&s)
				r.Items = append(r.Items, item)
			}
		default:
			err = end.member(&s, key)
		}
	}
	if err != nil {
		return err
	}
	r.Next, r.AsOf, r.Degraded, r.Missing, r.Stale = Position(end.next), end.asOf, end.degraded, end.missing, end.stale
	return s.End()
}

func (i *InboxItem) decode(s *jsonscan.Scanner) (err error) {
	for s.Object(); s.Member() && err == nil; {
		switch key := string(s.Key()); key {
		case "position":
			var at uint64
			at, err = decodeCount(s, key)
			i.Position = Position(at)
		case "time":
			text, _, _ := s.String()
			i.Time, err = time.Parse(time.RFC3339, string(text))
		case "kind":
			text, _, _ := s.String()
			i.Kind = string(text)
		case "actor":
			i.Actor, err = decodeID(s)
		case "post":
			i.Post, err = decodeID(s)
		case "read":
			i.Read = string(s.Value()) == "true"
		default:
			s.Value()
		}
	}
	return err
}
