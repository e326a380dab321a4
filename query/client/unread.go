package client

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/query/internal/jsonscan"
)

// UnreadRequest asks what users have not looked at yet.
type UnreadRequest struct {
	Users       []uint64      // answered in this order, each as often as it is asked
	Channels    []string      // these alone are answered, at most 128; nil: every one, empty: none
	MinPosition Position      // answer with at least this much applied
	Timeout     time.Duration // how long MinPosition may take; 0: the node's default, two seconds
}

// UnreadReply is the answer: one for every user, in the order asked.
type UnreadReply struct {
	Users    []UserUnread
	AsOf     Position // every event at or before it is counted; see ReadRequest.AsOf
	Degraded bool     // some users could not be read, or the answer can be old: Stale
	Missing  []uint64 // those users
	// Stale is how old the answer can be, where it can be older than the nodes' freshness
	// (2 s): Degraded then, with nothing missing perhaps. 0: it is not.
	Stale time.Duration
}

// UserUnread is what one user has not looked at yet.
type UserUnread struct {
	User     uint64
	Missing  bool              // nothing is known of this user now: all else is empty
	Feed     uint64            // posts of those they follow
	Counts   map[string]int64  // 1:1 counters, every column
	Channels map[string]uint64 // notice channels, every one or those asked
	Dots     map[string]bool   // dot channels, the same: is it lit?
}

const (
	unreadUsers    = 2_000 // in one request: some 20 channels fit into NATS's usual 1 MB
	unreadParallel = 4
)

// Unread asks what users have not looked at yet, as of now. An answer that is
// not whole is no error: look at Degraded. Errors of the node are *Error.
func (c *Client) Unread(ctx context.Context, users ...uint64) (UnreadReply, error) {
	return c.UnreadMany(ctx, UnreadRequest{Users: users})
}

// UnreadMany is for any number of users: it asks in parts of 2,000, four at a
// time, and in halves where a reply would be too large. The parts may be as of
// different positions; AsOf is the lowest.
func (c *Client) UnreadMany(ctx context.Context, r UnreadRequest) (UnreadReply, error) {
	if len(r.Users) <= unreadUsers {
		return c.unreadHalved(ctx, r)
	}
	if i := slices.Index(r.Users, 0); i >= 0 { // a part would tell the wrong place
		return UnreadReply{}, &Error{Code: 400, Message: fmt.Sprintf("users[%d]: 0 is not an id", i)}
	}
	parts := make([]UnreadReply, (len(r.Users)+unreadUsers-1)/unreadUsers)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(unreadParallel)
	i := 0
	for users := range slices.Chunk(r.Users, unreadUsers) {
		part, to := r, &parts[i]
		part.Users = users
		i++
		g.Go(func() (err error) {
			*to, err = c.unreadHalved(ctx, part)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return UnreadReply{}, err
	}
	return joinUnread(parts), nil
}

func (c *Client) unreadHalved(ctx context.Context, r UnreadRequest) (UnreadReply, error) {
	reply, err := c.unread(ctx, r)
	if !isCode(err, codeTooMuch) || len(r.Users) < 2 {
		return reply, err
	}
	var halves [2]UnreadReply
	all := r.Users
	for i, users := range [][]uint64{all[:len(all)/2], all[len(all)/2:]} {
		r.Users = users
		if halves[i], err = c.unreadHalved(ctx, r); err != nil {
			return UnreadReply{}, err
		}
	}
	return joinUnread(halves[:]), nil
}

func joinUnread(parts []UnreadReply) UnreadReply {
	all := UnreadReply{AsOf: parts[0].AsOf}
	told := map[uint64]bool{}
	for _, part := range parts {
		all.Users = append(all.Users, part.Users...)
		all.AsOf = min(all.AsOf, part.AsOf)
		all.Degraded, all.Stale = all.Degraded || part.Degraded, max(all.Stale, part.Stale)
		for _, user := range part.Missing {
			if !told[user] {
				told[user] = true
				all.Missing = append(all.Missing, user)
			}
		}
	}
	return all
}

func (c *Client) unread(ctx context.Context, r UnreadRequest) (UnreadReply, error) {
	body, isPacked, err := c.either(ctx, &r)
	if err != nil {
		return UnreadReply{}, err
	}
	var reply UnreadReply
	if isPacked {
		err = reply.unpack(body, r.Users)
	} else {
		err = reply.decode(body, len(r.Users))
	}
	if err != nil {
		return UnreadReply{}, fmt.Errorf("client: the reply of tidemark.unread: %w", err)
	}
	return reply, nil
}

// AppendJSON appends the request as it goes over the wire in JSON.
func (r *UnreadRequest) AppendJSON(body []byte) ([]byte, error) {
	body = append(body, `{"users":[`...)
	for i, user := range r.Users {
		if i > 0 {
			body = append(body, ',')
		}
		body = strconv.AppendUint(body, user, 10)
	}
	body = append(body, ']')
	if r.Channels != nil {
		body = append(body, `,"channels":`...)
		var err error
		if body, err = appendNames(body, r.Channels); err != nil {
			return nil, fmt.Errorf("client: unread: %w", err)
		}
	}
	return append(r.wait().appendTo(body), '}'), nil
}

// appendNames writes a list of strings.
func appendNames(body []byte, names []string) ([]byte, error) {
	body = append(body, '[')
	for i, name := range names {
		if i > 0 {
			body = append(body, ',')
		}
		var err error
		if body, err = jsontext.AppendQuote(body, name); err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
	}
	return append(body, ']'), nil
}

// decode reads a reply of about that many users.
func (r *UnreadReply) decode(body []byte, users int) error {
	var s jsonscan.Scanner
	s.Reset(body)
	var end ending
	var err error
	for s.Object(); s.Member() && err == nil; {
		if key := s.Key(); string(key) != "users" {
			err = end.member(&s, key)
			continue
		}
		r.Users = make([]UserUnread, 0, users)
		for s.Array(); s.Element() && err == nil; {
			var user UserUnread
			if user, err = decodeUnread(&s); err == nil {
				r.Users = append(r.Users, user)
			}
		}
	}
	if err != nil {
		return err
	}
	r.AsOf, r.Degraded, r.Missing, r.Stale = end.asOf, end.degraded, end.missing, end.stale
	return s.End()
}

// decodeUnread reads {"user":"7","feed":12,"counts":{…},…}; a user without
// feed is missing.
func decodeUnread(s *jsonscan.Scanner) (UserUnread, error) {
	u := UserUnread{Missing: true}
	var err error
	for s.Object(); s.Member() && err == nil; {
		switch key := string(s.Key()); key {
		case "user":
			u.User, err = decodeID(s)
		case "feed":
			u.Missing = false
			u.Feed, err = decodeCount(s, key)
		case "counts":
			u.Counts = map[string]int64{}
			for s.Object(); s.Member() && err == nil; {
				name := string(s.Key())
				value, raw, ok := s.Int()
				if !ok && s.Err() == nil {
					err = fmt.Errorf("user %d: %s is %s", u.User, name, raw)
				}
				u.Counts[name] = value
			}
		case "channels":
			u.Channels = map[string]uint64{}
			for s.Object(); s.Member() && err == nil; {
				name := string(s.Key())
				u.Channels[name], err = decodeCount(s, name)
			}
		case "dots":
			u.Dots = map[string]bool{}
			for s.Object(); s.Member() && err == nil; {
				name := string(s.Key())
				lit, ok := s.Bool()
				if !ok && s.Err() == nil {
					err = fmt.Errorf("user %d: %s is neither true nor false", u.User, name)
				}
				u.Dots[name] = lit
			}
		default:
			s.Value()
		}
	}
	return u, err
}

func decodeCount(s *jsonscan.Scanner, name string) (uint64, error) {
	n, raw, ok := s.Uint()
	if !ok && s.Err() == nil {
		return 0, fmt.Errorf("%s is %s", name, raw)
	}
	return n, nil
}

// ending is what replies have besides their list.
type ending struct {
	asOf     Position
	next     uint64
	degraded bool
	missing  []uint64
	stale    time.Duration
}

// milliseconds keeps a time within time.Duration.
func milliseconds(ms uint64) time.Duration {
	const most = uint64(math.MaxInt64 / time.Millisecond)
	return time.Duration(min(ms, most)) * time.Millisecond
}

// member reads one member, or passes over one that it does not know.
func (e *ending) member(s *jsonscan.Scanner, key []byte) (err error) {
	switch string(key) {
	case "as_of":
		var asOf uint64
		asOf, err = decodeCount(s, "as_of")
		e.asOf = Position(asOf)
	case "next":
		e.next, err = decodeCount(s, "next")
	case "degraded":
		e.degraded, _ = s.Bool()
	case "stale_ms":
		var ms uint64
		ms, err = decodeCount(s, "stale_ms")
		e.stale = milliseconds(ms)
	case "missing":
		for s.Array(); s.Element() && err == nil; {
			var id uint64
			if id, err = decodeID(s); err == nil {
				e.missing = append(e.missing, id)
			}
		}
	default:
		s.Value()
	}
	return err
}
