package client

import (
	"fmt"
	"testing"
)

// A reply of another form than expected is an error or read rightly, never a
// wrong value.
func TestDecodeReply(t *testing.T) {
	for body, want := range map[string]string{
		` { "as_of" : "7" , "rows" : [ { "like" : 3 , "id" : 42 } , {"id":"43","like":-4} ] , "new" : {"a":[]} } `: `{[like] [] [{42 [3] []} {43 [-4] []}] 7 false [] 0s}`,
		`{"rows":[],"as_of":"7"}`: `{[] [] [] 7 false [] 0s}`,
		`{"rows":[{"id":"1"},{"id":"2","a":1,"b":2}],"as_of":"7","degraded":true,"missing":["1"]}`:                    `{[a b] [] [{1 [] []} {2 [1 2] []}] 7 true [1] 0s}`,
		`{"rows":[{"id":"1","a":1},{"id":"2","b":2}]}`:                                                                `id 2 has a column b where others have not`,
		`{"rows":[{"id":"1","a":1,"b":1},{"id":"2","a":2}]}`:                                                          `id 2 has 1 columns, others have 2`,
		`{"rows":[{"id":"1","a":1},{"id":"2","a":2},{"a":3,"id":"3"},{"id":"4"},{"id":5,"a":5 } , {"id":"6","a":6}]}`: `{[a] [] [{1 [1] []} {2 [2] []} {3 [3] []} {4 [] []} {5 [5] []} {6 [6] []}] 0 false [] 0s}`,
		`{"rows":[{"id":"1","a":1},{"id":"2","a":2]}`:                                                                 `byte 41 is ']' where a comma or } was expected`,
		`{"rows":[{"id":"1","a":1.5}]}`:                                                                               `id 1: a is 1.5`,
		`{"rows":[{"id":"x","a":1}]}`:                                                                                 `an id is "x"`,
		`{"rows":[{"id":"1","a":1}`:                                                                                   `it ends after 25 bytes where a comma or ] was expected`,
		`{"as_of":"soon"}`:                                                                                            `as_of is "soon"`,
		`{"rows":[{"id":"1","has":1}]}`:                                                                               `{[has] [] [{1 [1] []}] 0 false [] 0s}`, // a column of that name
		`{"rows":[{"id":"0"},{"has":{"a":true},"id":"1","a":1},{"id":"2","a":2,"has":{"a":false}}]}`:                  `{[a] [a] [{0 [] []} {1 [1] [true]} {2 [2] [false]}] 0 false [] 0s}`,
		`{"rows":[{"id":"1","a":1,"has":{"a":1}}]}`:                                                                   `id 1: has of a is neither true nor false`,
		`{"rows":[{"id":"1","a":1,"has":{"a":true}},{"id":"2","a":1,"has":{"b":true}}]}`:                              `id 2 has a set b where others have not`,
		`{"rows":[{"id":"1","a":1,"has":{"a":true}},{"id":"2","a":1,"has":{}}]}`:                                      `id 2 has 0 sets, others have 1`,
		`{"rows":[{"id":"1","a":1,"has":{"a":true}},{"id":"2","a":1,"has":{"a":true,"b":true}}]}`:                     `id 2 has a set b where others have not`,
	} {
		var reply GetReply
		err := reply.decode([]byte(body), 1)
		got := fmt.Sprint(reply)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s\ngot  %s\nwant %s", body, got, want)
		}
	}
}

func TestDecodeMembers(t *testing.T) {
	for body, want := range map[string]string{
		`{"members":["7",9],"next":"9","as_of":"5","x":{}}`:                                               `{[{7 0} {9 0}] {9 0} 5 false [] 0s}`,
		`{"members":[["50","7"]],"next":"50,7","as_of":"5","degraded":true,"stale_ms":7,"missing":["1"]}`: `{[{50 7}] {50 7} 5 true [1] 7ms}`,
		`{"members":[["1"]]}`:         `a member is of 1 ids`,
		`{"members":[["1","2","3"]]}`: `a member is of 3 ids`,
		`{"members":[{}]}`:            `an id is {}`,
		`{"next":7}`:                  `next is 7`,
		`{"next":"1,"}`:               `next is 1,: strconv.ParseUint: parsing "": invalid syntax`,
		`{"members":["1"`:             `it ends after 15 bytes where a comma or ] was expected`,
	} {
		var reply MembersReply
		err := reply.decode([]byte(body))
		got := fmt.Sprint(reply)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s\ngot  %s\nwant %s", body, got, want)
		}
	}
}

// The same for the other replies.
func TestDecodeOtherReplies(t *testing.T) {
	type decoder interface{ decode(body []byte) error }
	for _, c := range []struct {
		reply decoder
		body  string
		want  string
	}{
		{new(unreadOfTwo), ` { "as_of" : "7" , "users" : [ { "dots" : { "a" : false } , "feed" : "3" , "x" : [ { } ] , "user" : 42 } , {"user":"43"} ] } `, `&{{[{42 false 3 map[] map[] map[a:false]} {43 true 0 map[] map[] map[]}] 7 false [] 0s}}`},
		{new(unreadOfTwo), `{"users":[{"user":"1","feed":-1}]}`, `feed is -1`},
		{new(unreadOfTwo), `{"users":[{"user":"1","counts":{"a":1.5}}]}`, `user 1: a is 1.5`},
		{new(unreadOfTwo), `{"users":[{"user":"1","channels":{"a":null}}]}`, `a is null`},
		{new(unreadOfTwo), `{"users":[{"user":"1","dots":{"a":1}}]}`, `user 1: a is neither true nor false`},
		{new(unreadOfTwo), `{"users":[{"user":"1"`, `it ends after 21 bytes where a comma or } was expected`},
		{new(FeedReply), `{"next":5,"posts":[{"position":"5","author":"6","post":"7","x":{}}],"as_of":"9","x":1}`, `&{[{7 6 5}] 5 9 false [] 0s}`},
		{new(FeedReply), `{"posts":[{"post":"x"}]}`, `an id is "x"`},
		{new(FeedReply), `{"posts":[`, `it ends after 10 bytes where a comma or ] was expected`},
		{new(UsersReply), `{"users":["5"],"as_of":"9","degraded":true,"stale_ms":2500}`, `&{[5] 0 9 true [] 2.5s}`},
		{new(UsersReply), `{"missing":["1"],"degraded":true,"users":[],"as_of":"9"}`, `&{[] 0 9 true [1] 0s}`},
		{new(UsersReply), `{"users":[1.5]}`, `an id is 1.5`},
		{new(UsersReply), `{"next":"x"}`, `next is "x"`},
	} {
		err := c.reply.decode([]byte(c.body))
		got := fmt.Sprint(c.reply)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.body, got, c.want)
		}
	}
}

type unreadOfTwo struct{ UnreadReply }

func (u *unreadOfTwo) decode(body []byte) error { return u.UnreadReply.decode(body, 2) }
