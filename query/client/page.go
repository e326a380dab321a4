package client

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/tidemark-io/tidemark/query/internal/jsonscan"
)

// FeedRequest asks a page of a user's feed.
type FeedRequest struct {
	User        uint64
	Limit       int           // posts in the page; 0: 20; at most 1,000
	Before      Position      // FeedReply.Next of the page before; 0: from the newest
	MinPosition Position      // answer with at least this much applied
	Timeout     time.Duration // how long MinPosition may take; 0: the node's default, two seconds
}

// FeedReply is a page: listed posts of everyone the user follows now, newest
// first. Pages that follow one another have no gap and no repeat while new
// posts arrive.
type FeedReply struct {
	Posts    []FeedPost
	Next     Position // goes to FeedRequest.Before; 0 at the end
	AsOf     Position // every event at or before it is in it
	Degraded bool     // posts may be lacking, because a shard is stopped, or the answer can be old: Stale
	Missing  []uint64 // the user, where posts may be lacking
	// Stale is how old the answer can be, where it can be older than the nodes' freshness
	// (2 s): Degraded then, with nothing missing perhaps. 0: it is not.
	Stale time.Duration
}

// FeedPost is a post in a feed.
type FeedPost struct {
	Post, Author uint64
	Position     Position // of the event that published it
}

// UsersRequest asks a page of a list of users.
type UsersRequest struct {
	User        uint64
	Limit       int           // users in the page; 0: 100; at most 10,000
	After       uint64        // UsersReply.Next of the page before; 0: from the first
	MinPosition Position      // answer with at least this much applied
	Timeout     time.Duration // how long MinPosition may take; 0: the node's default, two seconds
}

// UsersReply is a page, ordered by id.
type UsersReply struct {
	Users    []uint64
	Next     uint64   // goes to UsersRequest.After; 0 at the end
	AsOf     Position // every event at or before it is in it
	Degraded bool     // the list could not be read, because a shard is stopped, or the answer can be old: Stale
	Missing  []uint64 // the user, where it could not be read
	// Stale is how old the answer can be, where it can be older than the nodes' freshness
	// (2 s): Degraded then, with nothing missing perhaps. 0: it is not.
	Stale time.Duration
}

// Feed reads a page of a user's feed. An answer that is not whole is no error:
// look at Degraded. Errors of the node are *Error.
func (c *Client) Feed(ctx context.Context, r FeedRequest) (FeedReply, error) {
	body, err := c.page(ctx, "tidemark.feed", r.User, r.Limit, "before", uint64(r.Before), wait{r.MinPosition, r.Timeout})
	if err != nil {
		return FeedReply{}, err
	}
	var reply FeedReply
	if err := reply.decode(body); err != nil {
		return FeedReply{}, unreadable("feed", err)
	}
	return reply, nil
}

// Following reads a page of the users that a user follows. An answer that is not whole
// is no error: look at Degraded. Errors of the node are *Error.
func (c *Client) Following(ctx context.Context, r UsersRequest) (UsersReply, error) {
	return c.users(ctx, "tidemark.following", r)
}

// Followers reads a page of a user's followers; all else is as in Following.
func (c *Client) Followers(ctx context.Context, r UsersRequest) (UsersReply, error) {
	return c.users(ctx, "tidemark.followers", r)
}

func (c *Client) users(ctx context.Context, subject string, r UsersRequest) (UsersReply, error) {
	body, err := c.page(ctx, subject, r.User, r.Limit, "after", r.After, wait{r.MinPosition, r.Timeout})
	if err != nil {
		return UsersReply{}, err
	}
	var reply UsersReply
	if err := reply.decode(body); err != nil {
		return UsersReply{}, fmt.Errorf("client: the reply of %s: %w", subject, err)
	}
	return reply, nil
}

func (c *Client) page(ctx context.Context, subject string, user uint64, limit int, place string, at uint64, w wait) ([]byte, error) {
	body := append(make([]byte, 0, 128), `{"user":`...)
	body = strconv.AppendUint(body, user, 10)
	if limit != 0 {
		body = append(body, `,"limit":`...)
		body = strconv.AppendInt(body, int64(limit), 10)
	}
	if at != 0 {
		body = append(body, `,"`...)
		body = append(body, place...)
		body = append(body, `":"`...)
		body = strconv.AppendUint(body, at, 10)
		body = append(body, '"')
	}
	return c.ask(ctx, subject, append(w.appendTo(body), '}'), w)
}

// In one request of those that go through all pages.
const (
	allPosts = 500
	allUsers = 5_000
)

// AllFeed goes through a user's whole feed, newest first, page by page. It
// ends after the first error, also where a page is not whole (an *Error with
// code 503). Options count for the first page.
func (c *Client) AllFeed(ctx context.Context, user uint64, options ...Option) iter.Seq2[FeedPost, error] {
	return func(yield func(FeedPost, error) bool) {
		w := waitOf(options)
		r := FeedRequest{User: user, Limit: allPosts, MinPosition: w.position, Timeout: w.timeout}
		for {
			reply, err := c.Feed(ctx, r)
			if err == nil && reply.Degraded {
				err = notWhole(fmt.Sprintf("all of the feed of user %d", user), reply.Stale)
			}
			if err != nil {
				yield(FeedPost{}, err)
				return
			}
			for _, post := range reply.Posts {
				if !yield(post, nil) {
					return
				}
			}
			if reply.Next == 0 {
				return
			}
			r = FeedRequest{User: user, Limit: allPosts, Before: reply.Next}
		}
	}
}

// AllFollowing goes through all users that a user follows, by id, page by page.
// It ends after the first error, also where the list cannot be read (an *Error
// with code 503). Options count for the first page. Follows that come while it
// goes may be in it or not.
func (c *Client) AllFollowing(ctx context.Context, user uint64, options ...Option) iter.Seq2[uint64, error] {
	return c.allUsers(ctx, "tidemark.following", user, options)
}

// AllFollowers goes through all followers of a user; all else is as in AllFollowing.
func (c *Client) AllFollowers(ctx context.Context, user uint64, options ...Option) iter.Seq2[uint64, error] {
	return c.allUsers(ctx, "tidemark.followers", user, options)
}

func (c *Client) allUsers(ctx context.Context, subject string, user uint64, options []Option) iter.Seq2[uint64, error] {
	return func(yield func(uint64, error) bool) {
		w := waitOf(options)
		r := UsersRequest{User: user, Limit: allUsers, MinPosition: w.position, Timeout: w.timeout}
		for {
			reply, err := c.users(ctx, subject, r)
			if err == nil && reply.Degraded {
				err = notWhole(fmt.Sprintf("%s of user %d", subject, user), reply.Stale)
			}
			if err != nil {
				yield(0, err)
				return
			}
			for _, id := range reply.Users {
				if !yield(id, nil) {
					return
				}
			}
			if reply.Next == 0 {
				return
			}
			r = UsersRequest{User: user, Limit: allUsers, After: reply.Next}
		}
	}
}

func waitOf(options []Option) (w wait) {
	for _, o := range options {
		o(&w)
	}
	return w
}

func (r *FeedReply) decode(body []byte) error {
	var s jsonscan.Scanner
	s.Reset(body)
	var end ending
	var err error
	for s.Object(); s.Member() && err == nil; {
		if key := s.Key(); string(key) != "posts" {
			err = end.member(&s, key)
			continue
		}
		for s.Array(); s.Element() && err == nil; {
			var post FeedPost
			if post, err = decodePost(&s); err == nil {
				r.Posts = append(r.Posts, post)
			}
		}
	}
	if err != nil {
		return err
	}
	r.Next, r.AsOf, r.Degraded, r.Missing, r.Stale = Position(end.next), end.asOf, end.degraded, end.missing, end.stale
	return s.End()
}

func decodePost(s *jsonscan.Scanner) (p FeedPost, err error) {
	for s.Object(); s.Member() && err == nil; {
		switch key := string(s.Key()); key {
		case "post":
			p.Post, err = decodeID(s)
		case "author":
			p.Author, err = decodeID(s)
		case "position":
			var at uint64
			at, err = decodeCount(s, key)
			p.Position = Position(at)
		default:
			s.Value()
		}
	}
	return p, err
}

func (r *UsersReply) decode(body []byte) error {
	var s jsonscan.Scanner
	s.Reset(body)
	var end ending
	var err error
	for s.Object(); s.Member() && err == nil; {
		if key := s.Key(); string(key) != "users" {
			err = end.member(&s, key)
			continue
		}
		for s.Array(); s.Element() && err == nil; {
			var id uint64
			if id, err = decodeID(&s); err == nil {
				r.Users = append(r.Users, id)
			}
		}
	}
	if err != nil {
		return err
	}
	r.Next, r.AsOf, r.Degraded, r.Missing, r.Stale = end.next, end.asOf, end.degraded, end.missing, end.stale
	return s.End()
}
