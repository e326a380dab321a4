package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/internal/jsonscan"
)

// Member is a member of a column's set: an id (B is 0), or a pair of ids.
type Member = pipeline.Member

// PageRequest asks what a viewer is shown of posts.
type PageRequest struct {
	IDs         []uint64      // posts, at most 500; answered in this order
	Viewer      uint64        // whether this user is in the posts' sets of ids; 0: not asked
	MinPosition Position      // answer with at least this much applied
	Timeout     time.Duration // how long MinPosition may take; 0: the node's default, two seconds
}

// MembersRequest asks a page of the set of one row.
type MembersRequest struct {
	Column      string // "post.like", or a suffix; its set is of ids or of pairs
	ID          uint64
	Limit       int           // members in the page; 0: 100; at most 10,000
	After       Member        // MembersReply.Next of the page before; zero: from the first
	MinPosition Position      // answer with at least this much applied
	Timeout     time.Duration // how long MinPosition may take; 0: the node's default, two seconds
}

// MembersReply is a page, in order.
type MembersReply struct {
	Members  []Member
	Next     Member   // goes to MembersRequest.After; zero at the end
	AsOf     Position // every event at or before it is in it
	Degraded bool     // the set could not be read, because a shard is stopped, or the answer can be old: Stale
	Missing  []uint64 // the row's id, where it could not be read
	// Stale is how old the answer can be, where it can be older than the nodes' freshness
	// (2 s): Degraded then, with nothing missing perhaps. 0: it is not.
	Stale time.Duration
}

// Has says whether what was asked (GetRequest.Member, Token, PageRequest.Viewer) is in the
// set of one column of the i-th row; ok is false for a missing id, and for a column of
// which that was not answered.
func (r *GetReply) Has(i int, column string) (has, ok bool) {
	j := slices.Index(r.Sets, column)
	if j < 0 || r.Rows[i].Has == nil {
		return false, false
	}
	return r.Rows[i].Has[j], true
}

// Page reads all counts of posts, and whether a viewer is in their sets: likes them, for
// example. An answer that is not whole is no error: look at Degraded. Errors of the node are
// *Error.
func (c *Client) Page(ctx context.Context, r PageRequest) (GetReply, error) {
	body := appendIDs(nil, r.IDs)
	if r.Viewer != 0 {
		body = strconv.AppendUint(append(body, `,"viewer":`...), r.Viewer, 10)
	}
	w := r.wait()
	answer, err := c.ask(ctx, "tidemark.page", append(w.appendTo(body), '}'), w)
	if err != nil {
		return GetReply{}, err
	}
	var reply GetReply
	if err := reply.decode(answer, len(r.IDs)); err != nil {
		return GetReply{}, unreadable("page", err)
	}
	return reply, nil
}

func (r *PageRequest) wait() wait { return wait{r.MinPosition, r.Timeout} }

// Members reads a page of the set of one row. An answer that is not whole is no error:
// look at Degraded. Errors of the node are *Error.
func (c *Client) Members(ctx context.Context, r MembersRequest) (MembersReply, error) {
	body, err := r.appendJSON(nil)
	if err != nil {
		return MembersReply{}, err
	}
	answer, err := c.ask(ctx, "tidemark.members", body, r.wait())
	if err != nil {
		return MembersReply{}, err
	}
	var reply MembersReply
	if err := reply.decode(answer); err != nil {
		return MembersReply{}, unreadable("members", err)
	}
	return reply, nil
}

func (r *MembersRequest) wait() wait { return wait{r.MinPosition, r.Timeout} }

func (r *MembersRequest) appendJSON(body []byte) ([]byte, error) {
	body, err := jsontext.AppendQuote(append(body, `{"column":`...), r.Column)
	if err != nil {
		return nil, fmt.Errorf("client: column %q: %w", r.Column, err)
	}
	body = strconv.AppendUint(append(body, `,"id":`...), r.ID, 10)
	if r.Limit != 0 {
		body = strconv.AppendInt(append(body, `,"limit":`...), int64(r.Limit), 10)
	}
	if r.After != (Member{}) {
		body = append(appendPlace(append(body, `,"after":"`...), r.After), '"')
	}
	return append(r.wait().appendTo(body), '}'), nil
}

// AllMembers goes through the set of one row, in order, page by page. It ends after the
// first error, also where the set cannot be read (an *Error with code 503). Options count
// for the first page. What comes while it goes may be in it or not.
func (c *Client) AllMembers(ctx context.Context, column string, id uint64, options ...Option) iter.Seq2[Member, error] {
	return func(yield func(Member, error) bool) {
		w := waitOf(options)
		r := MembersRequest{Column: column, ID: id, Limit: allUsers, MinPosition: w.position, Timeout: w.timeout}
		for {
			reply, err := c.Members(ctx, r)
			if err = cmp.Or(err, reply.whole(&r)); err != nil {
				yield(Member{}, err)
				return
			}
			for _, m := range reply.Members {
				if !yield(m, nil) {
					return
				}
			}
			if reply.Next == (Member{}) {
				return
			}
			r = MembersRequest{Column: column, ID: id, Limit: allUsers, After: reply.Next}
		}
	}
}

// whole is the error of a page that is not.
func (r *MembersReply) whole(of *MembersRequest) error {
	if !r.Degraded {
		return nil
	}
	return notWhole(fmt.Sprintf("the set %s of %d", of.Column, of.ID), r.Stale)
}

// appendPlace writes a member as `after` and `next` have it: an id, or "50,7".
func appendPlace(b []byte, m Member) []byte {
	b = strconv.AppendUint(b, m.A, 10)
	if m.B != 0 {
		b = strconv.AppendUint(append(b, ','), m.B, 10)
	}
	return b
}

var errTwo = errors.New("client: Member and Token are both given; give one of them")

// appendMember writes what is asked to be in sets.
func (r *GetRequest) appendMember(body []byte) ([]byte, error) {
	switch {
	case !r.asksSets():
		return body, nil
	case r.Token != "" && r.Member != (Member{}):
		return nil, errTwo
	case r.Token != "":
		body, err := jsontext.AppendQuote(append(body, `,"member":`...), r.Token)
		if err != nil {
			return nil, fmt.Errorf("client: token %q: %w", r.Token, err)
		}
		return body, nil
	case r.Member.B == 0:
		return strconv.AppendUint(append(body, `,"member":`...), r.Member.A, 10), nil
	}
	return append(appendPlace(append(body, `,"member":[`...), r.Member), ']'), nil
}

// asksSets says that the request is about sets too: it has no binary form.
func (r *GetRequest) asksSets() bool { return r.Token != "" || r.Member != (Member{}) }

// decodeHas reads {"like":true}: the same columns in every row.
func (r *GetReply) decodeHas(s *jsonscan.Scanner, id uint64) (has []bool, err error) {
	first := r.Sets == nil
	for s.Object(); s.Member(); {
		key := s.Key()
		if first {
			r.Sets = append(r.Sets, string(key))
		} else if len(has) >= len(r.Sets) || string(key) != r.Sets[len(has)] {
			return nil, fmt.Errorf("id %d has a set %s where others have not", id, key)
		}
		is, ok := s.Bool()
		if !ok && s.Err() == nil {
			return nil, fmt.Errorf("id %d: has of %s is neither true nor false", id, r.Sets[len(has)])
		}
		has = append(has, is)
	}
	if len(has) != len(r.Sets) && s.Err() == nil {
		return nil, fmt.Errorf("id %d has %d sets, others have %d", id, len(has), len(r.Sets))
	}
	return has, nil
}

func (r *MembersReply) decode(body []byte) error {
	var s jsonscan.Scanner
	s.Reset(body)
	var end ending
	var err error
	for s.Object(); s.Member() && err == nil; {
		switch key := s.Key(); string(key) {
		case "members":
			r.Members, err = decodeMembers(&s)
		case "next":
			r.Next, err = decodePlace(&s)
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

func decodeMembers(s *jsonscan.Scanner) (members []Member, err error) {
	for s.Array(); s.Element() && err == nil; {
		var m Member
		m, err = decodeMember(s)
		members = append(members, m)
	}
	return members, err
}

// decodeMember reads an id, or a list of two.
func decodeMember(s *jsonscan.Scanner) (m Member, err error) {
	if !s.IsArray() {
		m.A, err = decodeID(s)
		return m, err
	}
	ids := [2]uint64{}
	n := 0
	for s.Array(); s.Element() && err == nil; n++ {
		var id uint64
		if id, err = decodeID(s); n < len(ids) {
			ids[n] = id
		}
	}
	if err == nil && s.Err() == nil && n != 2 {
		err = fmt.Errorf("a member is of %d ids", n)
	}
	return Member{A: ids[0], B: ids[1]}, err
}

// decodePlace reads "7", or "50,7".
func decodePlace(s *jsonscan.Scanner) (m Member, err error) {
	text, raw, ok := s.String()
	if !ok {
		return m, fmt.Errorf("next is %s", raw)
	}
	first, second, isPair := strings.Cut(string(text), ",")
	if m.A, err = strconv.ParseUint(first, 10, 64); err == nil && isPair {
		m.B, err = strconv.ParseUint(second, 10, 64)
	}
	if err != nil {
		return Member{}, fmt.Errorf("next is %s: %w", text, err)
	}
	return m, nil
}
