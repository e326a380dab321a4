package service

import (
	"context"
	"errors"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// A page of one user's: what tidemark.feed, tidemark.following and
// tidemark.followers have in common.
const (
	feedLimit     = 20 // posts in a page that does not say how many
	feedLimitMax  = 1000
	usersLimit    = 100
	usersLimitMax = 10_000
)

// pageRequest is {"user":"7","limit":20,"before":"…"}, or "after" in the
// place of "before".
type pageRequest struct {
	user  uint64
	limit int
	place uint64 // before or after; 0: from the start
}

// pageCall is a page in work; an endpoint uses one of the two.
type pageCall struct {
	pageRequest
	feed  query.FeedPage
	users query.UserPage
}

// parse reads the body. place is the name of the member that says where the
// page starts, kind what it must be.
func (p *pageRequest) parse(c *call, place, kind string, limit, most int) *failure {
	*p = pageRequest{limit: limit}
	s := &c.scanner
	s.Reset(c.body)
	for s.Object(); s.Member(); {
		var f *failure
		switch key := s.Key(); string(key) {
		case "user":
			f = parseUser(s, &p.user)
		case "limit":
			f = parseLimit(s, &p.limit, most)
		case place:
			_, f = parsePlace(s, place, kind, &p.place)
		default:
			f = c.wait.orPass(s, key)
		}
		if f != nil {
			return f
		}
	}
	if f := notJSON(s.End()); f != nil {
		return f
	}
	if p.user == 0 {
		return fail(codeBadRequest, `user is missing; a request is {"user":"7"}`)
	}
	return nil
}

func (s *Service) feedEndpoint() *endpoint {
	return &endpoint{
		name:        "feed",
		description: "listed posts of everyone a user follows now, newest first, page by page",
		request:     `{"user":"7","limit":20,"before":"…","min_position":"…","timeout_ms":2000}; all but user are optional; min_seq instead of min_position; before is the next of the page before; limit is 1000 at most`,
		reply:       `{"posts":[{"post":"…","author":"…","position":"…"}],"next":"…","as_of":"…"}, without next at the end; with "degraded":true and "missing":["7"] when a part cannot be read`,
		advice:      "pass a lower limit",
		gated:       true,
		spreads:     true,
		parse: func(c *call) *failure {
			c.wants = s.pages
			return c.page.parse(c, "before", "a position", feedLimit, feedLimitMax)
		},
		answer: s.answerFeed,
	}
}

func (s *Service) answerFeed(ctx context.Context, c *call) *failure {
	p := &c.page
	applied := s.reader.Applied()
	p.feed.Cost = query.Cost{}
	err := c.reader.Feed(ctx, p.user, pipeline.Position(p.place), p.limit, &p.feed, c.disk)
	c.took(p.feed.Cost)
	if errors.Is(err, query.ErrStopped) {
		p.feed.Reset()
		p.feed.Missing, p.feed.AsOf, err = true, applied, nil
	}
	if err != nil {
		return s.unreadable(c, err)
	}
	if p.feed.Missing {
		if f := c.notWhole(1, 1, p.user); f != nil {
			return f
		}
	}
	c.out = p.appendFeed(c.out)
	return s.conclude(c, p.feed.AsOf, p.missing(p.feed.Missing))
}

// missing writes the user of a page that is not whole; nil: it is.
func (p *pageCall) missing(is bool) func(out []byte) []byte {
	if !is {
		return nil
	}
	return func(out []byte) []byte { return appendQuoted(out, p.user) }
}

func (p *pageCall) appendFeed(out []byte) []byte {
	out = append(out, `{"posts":[`...)
	posts := p.feed.Posts
	for i := range posts {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, `{"post":`...)
		out = appendQuoted(out, posts[i].Post)
		out = append(out, `,"author":`...)
		out = appendQuoted(out, posts[i].Author)
		out = append(out, `,"position":`...)
		out = appendQuoted(out, uint64(posts[i].Position))
		out = append(out, '}')
	}
	var next uint64
	if n := len(posts); n > 0 && p.feed.More {
		next = uint64(posts[n-1].Position)
	}
	return appendEnd(out, next, p.feed.AsOf)
}

func (s *Service) followingEndpoint() *endpoint {
	return s.usersEndpoint("following", "whom a user follows, by id, page by page", query.Reader.Following)
}

func (s *Service) followersEndpoint() *endpoint {
	return s.usersEndpoint("followers", "who follows a user, by id, page by page", query.Reader.Followers)
}

// readUsers is [query.Reader.Following] or [query.Reader.Followers].
type readUsers func(r query.Reader, ctx context.Context, user, after uint64, limit int, out *query.UserPage, disk bool) error

func (s *Service) usersEndpoint(name, description string, read readUsers) *endpoint {
	return &endpoint{
		name:        name,
		description: description,
		request:     `{"user":"7","limit":100,"after":"…","min_position":"…","timeout_ms":2000}; all but user are optional; min_seq instead of min_position; after is the next of the page before; limit is 10000 at most`,
		reply:       `{"users":["…"],"next":"…","as_of":"…"}, without next at the end; with "degraded":true and "missing":["7"] when a part cannot be read`,
		advice:      "pass a lower limit",
		gated:       true,
		spreads:     true,
		parse: func(c *call) *failure {
			c.wants = s.pages
			return c.page.parse(c, "after", "an id", usersLimit, usersLimitMax)
		},
		answer: func(ctx context.Context, c *call) *failure { return s.answerUsers(ctx, c, read) },
	}
}

func (s *Service) answerUsers(ctx context.Context, c *call, read readUsers) *failure {
	p := &c.page
	applied := s.reader.Applied()
	p.users.Cost = query.Cost{}
	err := read(c.reader, ctx, p.user, p.place, p.limit, &p.users, c.disk)
	c.took(p.users.Cost)
	stopped := errors.Is(err, query.ErrStopped)
	if stopped {
		p.users.Reset()
		p.users.AsOf, err = applied, nil
	}
	if err != nil {
		return s.unreadable(c, err)
	}
	if stopped {
		if f := c.notWhole(1, 1, p.user); f != nil {
			return f
		}
	}
	c.out = p.appendUsers(c.out)
	return s.conclude(c, p.users.AsOf, p.missing(stopped))
}

func (p *pageCall) appendUsers(out []byte) []byte {
	out = append(out, `{"users":[`...)
	for i, user := range p.users.Users {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendQuoted(out, user)
	}
	var next uint64
	if n := len(p.users.Users); n > 0 && p.users.More {
		next = p.users.Users[n-1]
	}
	return appendEnd(out, next, p.users.AsOf)
}

// appendEnd writes what comes after a page's list.
func appendEnd(out []byte, next uint64, asOf pipeline.Position) []byte {
	out = append(out, ']')
	if next > 0 {
		out = append(out, `,"next":`...)
		out = appendQuoted(out, next)
	}
	return appendAsOf(out, asOf)
}
