package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tidemark-io/tidemark/query/internal/jsonscan"
)

// ReadRequest says that a user has looked at something.
type ReadRequest struct {
	User uint64
	// What: unread columns, "feed", "channel:<name>", "all".
	What []string
	// Seen has only so many of each unread column be read, the oldest unread items. Columns
	// that are not in it are read up to AsOf.
	Seen map[string]int64
	// Items has these items alone be read, by InboxItem.Position: of What, or where that is
	// empty, of all columns.
	Items []Position
	// AsOf is UnreadReply.AsOf of the answer that the user was shown: what came after it stays
	// unread. nil: all until now is read.
	AsOf *Position
	// Wait: return when the next query of anyone sees it.
	Wait bool

	MinPosition Position      // begin with at least this much applied
	Timeout     time.Duration // how long Wait and MinPosition may take; 0: the node's default, two seconds
}

// publishTimeout is how long a node waits for the log.
const publishTimeout = 5 * time.Second

// Read stores a read event and returns its position.
//
// When Wait was not reached in time, the position comes with an *Error of code
// 504: the read is stored, do not send it again. An error that is ErrUncertain
// may be sent again, which does no harm unless it has Seen without AsOf, or of plain columns. All other errors
// mean that nothing was stored.
func (c *Client) Read(ctx context.Context, r ReadRequest) (Position, error) {
	body, err := r.AppendJSON(nil)
	if err != nil {
		return 0, err
	}
	w := wait{r.MinPosition, r.Timeout}
	if _, has := ctx.Deadline(); !has { // it may wait for the log besides
		timeout := w.timeout
		if timeout == 0 {
			timeout = timeoutDefault
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout+publishTimeout+answerTimeout)
		defer cancel()
	}
	reply, err := c.ask(ctx, "tidemark.read", body, w)
	failed, told := errors.AsType[*Error](err)
	if err != nil && !told {
		return 0, fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	position, uncertain, decodeErr := decodeRead(reply)
	switch {
	case failed != nil && uncertain:
		failed.cause = ErrUncertain
		return 0, failed
	case failed != nil && decodeErr != nil: // mostly an error has no body
		return 0, failed
	case failed != nil:
		return position, failed
	case decodeErr != nil:
		return 0, fmt.Errorf("%w: the reply of tidemark.read: %w", ErrUncertain, decodeErr)
	}
	return position, nil
}

// AppendJSON appends the request as it goes over the wire.
func (r *ReadRequest) AppendJSON(body []byte) ([]byte, error) {
	var err error
	quote := func(text string) {
		var e error
		if body, e = jsontext.AppendQuote(body, text); e != nil && err == nil {
			err = fmt.Errorf("client: read: %q: %w", text, e)
		}
	}
	body = append(body, `{"user":`...)
	body = strconv.AppendUint(body, r.User, 10)
	if len(r.What) > 0 || len(r.Items) == 0 {
		body = append(body, `,"what":[`...)
		for i, name := range r.What {
			if i > 0 {
				body = append(body, ',')
			}
			quote(name)
		}
		body = append(body, ']')
	}
	if len(r.Items) > 0 {
		body = append(body, `,"items":[`...)
		for i, position := range r.Items {
			if i > 0 {
				body = append(body, ',')
			}
			body = append(strconv.AppendUint(append(body, '"'), uint64(position), 10), '"')
		}
		body = append(body, ']')
	}
	if len(r.Seen) > 0 {
		body = append(body, `,"seen":{`...)
		for i, name := range slices.Sorted(maps.Keys(r.Seen)) {
			if i > 0 {
				body = append(body, ',')
			}
			quote(name)
			body = append(body, ':')
			body = strconv.AppendInt(body, r.Seen[name], 10)
		}
		body = append(body, '}')
	}
	if r.AsOf != nil {
		body = append(body, `,"as_of":"`...)
		body = strconv.AppendUint(body, uint64(*r.AsOf), 10)
		body = append(body, '"')
	}
	if r.Wait {
		body = append(body, `,"wait":true`...)
	}
	body = wait{r.MinPosition, r.Timeout}.appendTo(body)
	return append(body, '}'), err
}

// decodeRead reads {"position":"…"} or, beside an error, {"uncertain":true}.
func decodeRead(body []byte) (position Position, uncertain bool, err error) {
	var s jsonscan.Scanner
	s.Reset(body)
	for s.Object(); s.Member() && err == nil; {
		switch string(s.Key()) {
		case "position":
			var u uint64
			u, err = decodeCount(&s, "position")
			position = Position(u)
		case "uncertain":
			uncertain, _ = s.Bool()
		default:
			s.Value()
		}
	}
	if err == nil {
		err = s.End()
	}
	if err == nil && position == 0 && !uncertain {
		err = errors.New("it has no position")
	}
	return position, uncertain, err
}
