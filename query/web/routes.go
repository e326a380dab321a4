package web

import (
	"net/http"

	"github.com/tidemark-io/tidemark/query"
)

// kind is what a parameter becomes in the request.
type kind int

const (
	text    kind = iota // "7": ids, names and positions
	list                // ["7","8"], of values between commas
	number              // 7
	boolean             // true
	either              // a text, or a list where there is a comma: member
)

// parameter is a part of the path or of the query, and a field of the request.
type parameter struct {
	name  string
	field string // "": the same as name
	kind  kind
	about string
}

func (p *parameter) key() string {
	if p.field != "" {
		return p.field
	}
	return p.name
}

// route is one line of the door's table.
type route struct {
	method, pattern string
	endpoint        string // of the query service
	about           string
	path, query     []parameter
	body            bool   // the request's body is the service's request, a readRequest
	answer          any    // of the type of the answer
	reply           string // an example
	plain           bool   // it takes none of what any request may carry
	tagged          bool   // the answer's as_of is its ETag
}

// Of any request: an answer of a node that is far enough, and what is done else.
var anyRequest = []parameter{
	{name: "min_position", kind: text, about: "answer only with that much of the log applied: a position of an answer before"},
	{name: "min_seq", kind: text, about: "the same, by the sequence of JetStream's acknowledgement"},
	{name: "timeout_ms", kind: number, about: "how long to wait for min_position, in milliseconds; default 2000"},
	{name: "partial", kind: boolean, about: "false: 503 rather than an answer that lacks a part"},
}

var (
	user   = parameter{name: "user", kind: text, about: "the user's id"}
	limit  = parameter{name: "limit", kind: number, about: "how many at most"}
	after  = parameter{name: "after", kind: text, about: "the next of the page before"}
	before = parameter{name: "before", kind: text, about: "the next of the page before"}
)

var routes = []route{
	{
		method: http.MethodGet, pattern: "/v1/get/{counter}/{ids}", endpoint: "get", tagged: true,
		about: "Columns of one counter, for up to 10,000 ids.",
		path: []parameter{
			{name: "counter", kind: text, about: "the counter's name, as post"},
			{name: "ids", kind: list, about: "ids between commas"},
		},
		query: []parameter{
			{name: "columns", kind: list, about: "names or suffixes of columns between commas; default: all"},
			{name: "member", kind: either, about: "whether it is in the sets of the columns: an id, a token, or a pair with a comma"},
			{name: "raw", kind: boolean, about: "true: sums as they are, also those below zero that are answered as 0"},
		},
		answer: getAnswer{}, reply: `{"rows":[{"id":"42","like":3},{"id":"43","like":0}],"as_of":"7341"}`,
	},
	{
		method: http.MethodGet, pattern: "/v1/unread/{users}", endpoint: "unread", tagged: true,
		about:  "What is new for users.",
		path:   []parameter{{name: "users", kind: list, about: "users' ids between commas"}},
		query:  []parameter{{name: "channels", kind: list, about: "these channels alone, between commas"}},
		answer: unreadAnswer{}, reply: `{"users":[{"user":"7","feed":12,"counts":{"comment":3},"channels":{"system":2},"dots":{"games":true}}],"as_of":"7341"}`,
	},
	{
		method: http.MethodPost, pattern: "/v1/read", endpoint: "read", body: true,
		about:  "Marks as read what a user has looked at. The body is that of tidemark.read.",
		answer: readAnswer{}, reply: `{"position":"7342"}`,
	},
	{
		method: http.MethodGet, pattern: "/v1/feed/{user}", endpoint: "feed", tagged: true,
		about: "A page of the posts of all that a user follows, the newest first.",
		path:  []parameter{user}, query: []parameter{limit, before},
		answer: feedAnswer{}, reply: `{"posts":[{"post":"42","author":"9","position":"7340"}],"next":"7340","as_of":"7341"}`,
	},
	{
		method: http.MethodGet, pattern: "/v1/following/{user}", endpoint: "following", tagged: true,
		about: "A page of the users that a user follows, by id.",
		path:  []parameter{user}, query: []parameter{limit, after},
		answer: usersAnswer{}, reply: `{"users":["9","11"],"next":"11","as_of":"7341"}`,
	},
	{
		method: http.MethodGet, pattern: "/v1/followers/{user}", endpoint: "followers", tagged: true,
		about: "A page of a user's followers, by id.",
		path:  []parameter{user}, query: []parameter{limit, after},
		answer: usersAnswer{}, reply: `{"users":["9","11"],"next":"11","as_of":"7341"}`,
	},
	{
		method: http.MethodGet, pattern: "/v1/members/{column}/{id}", endpoint: "members", tagged: true,
		about: "A page of a set by id, as all users who like a post.",
		path: []parameter{
			{name: "column", kind: text, about: "COUNTER.COLUMN, as post.like"},
			{name: "id", kind: text, about: "the row's id"},
		},
		query:  []parameter{limit, after},
		answer: membersAnswer{}, reply: `{"members":["7","9"],"next":"9","as_of":"7341"}`,
	},
	{
		method: http.MethodGet, pattern: "/v1/inbox/{user}", endpoint: "inbox", tagged: true,
		about: "A page of what is new for a user, the newest first: what is behind the numbers of unread.",
		path:  []parameter{user},
		query: []parameter{
			{name: "kinds", kind: list, about: "these kinds of unread alone, between commas"},
			limit, before,
			{name: "unread", kind: boolean, about: "true: unread items alone"},
		},
		answer: inboxAnswer{}, reply: `{"items":[{"position":"7340","time":"2026-11-29T12:00:00Z","kind":"like","actor":"11","post":"42","read":false}],"next":"7340","as_of":"7341"}`,
	},
	{
		method: http.MethodGet, pattern: "/v1/page/{ids}", endpoint: "page", tagged: true,
		about:  "All counts of up to 500 posts, and what the viewer is a member of.",
		path:   []parameter{{name: "ids", kind: list, about: "posts' ids between commas"}},
		query:  []parameter{{name: "viewer", kind: text, about: "the user who looks at them"}},
		answer: getAnswer{}, reply: `{"rows":[{"id":"42","like":3,"comment":1,"has":{"like":true}}],"as_of":"7341"}`,
	},
	{
		method: http.MethodGet, pattern: "/v1/explain/{number}/{id}", endpoint: "explain",
		about: "The events behind a number, the newest first.",
		path: []parameter{
			{name: "number", kind: text, about: "COUNTER.COLUMN, unread.feed, unread.channel:NAME, or unread"},
			{name: "id", kind: text, about: "the row's id"},
		},
		query:  []parameter{limit, before},
		answer: explainAnswer{}, reply: `{"id":"42","value":3,"as_of":"7341","events":[],"base":{"position":"0","value":0}}`,
	},
	{
		method: http.MethodGet, pattern: "/v1/nodes", endpoint: "nodes", plain: true,
		about:  "The nodes and their states.",
		answer: query.Nodes{}, reply: `{"epoch":12,"nodes":[{"node":"a","state":"up"}]}`,
	},
}
