package service_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
	"github.com/tidemark-io/tidemark/query/service"
)

const item = 4 // the counter of querytest.SetsSchema that has all kinds of sets

const (
	fan pipeline.Column = 10 + iota
	liked
	viewed
)

func startSets(t testing.TB, change ...func(*service.Options, *server.Options)) *room {
	return start(t, append(change, func(o *service.Options, _ *server.Options) { o.Schema = querytest.SetsSchema(t) })...)
}

func id(a uint64) pipeline.Member { return pipeline.Member{A: a} }

// docs/contract.md: "each row has `"has":{"like":true}` for the columns that are sets of that shape"
func TestGetMember(t *testing.T) {
	r := startSets(t)
	r.reader.Set(0, like, 42, 3)
	r.reader.AddMembers(like, 42, id(7), id(1<<64-1))
	r.reader.Set(item, fan, 5, 1)
	r.reader.AddMembers(fan, 5, id(7))
	r.reader.AddMembers(liked, 5, pipeline.Member{A: 50, B: 7})
	r.reader.AddMembers(viewed, 5, pipeline.TokenMember([]byte("s-1")), id(7), pipeline.TokenMember([]byte("007")))
	r.reader.Apply(5000)

	r.get(`{"counter":"post","ids":["42",43],"columns":["like","comment"],"member":"7"}`,
		`{"rows":[{"id":"42","like":3,"comment":0,"has":{"like":true}},{"id":"43","like":0,"comment":0,"has":{"like":false}}],"as_of":"5000"}`)
	r.get(`{"ids":[42],"columns":["cntan"],"member":18446744073709551615}`, `{"rows":[{"id":"42","cntan":3,"has":{"cntan":true}}],"as_of":"5000"}`)
	r.get(`{"counter":"post","ids":[42],"columns":["like"],"member":null}`, `{"rows":[{"id":"42","like":3}],"as_of":"5000"}`)
	r.get(`{"counter":"post","ids":[],"columns":["like"],"member":7}`, `{"rows":[],"as_of":"5000"}`)

	has := func(member, want string) {
		t.Helper()
		r.get(`{"counter":"item","ids":[5],"columns":["fan","liked","view","plain"],"member":`+member+`}`,
			`{"rows":[{"id":"5","fan":1,"liked":0,"view":0,"plain":0,"has":{`+want+`}}],"as_of":"5000"}`)
	}
	has(`"7"`, `"fan":true,"view":true`) // an id, or a token
	has(`7`, `"fan":true,"view":true`)
	has(`8`, `"fan":false,"view":false`)
	has(`["50","7"]`, `"liked":true`)
	has(`[7,50]`, `"liked":false`)
	has(`"s-1"`, `"view":true`)
	has(`"s-2"`, `"view":false`)
	has(`"0"`, `"view":false`)
	has(`"007"`, `"fan":true,"view":true`) // the id 7, and a token that is not 7's
	has(`"18446744073709551616"`, `"view":false`)
	has(`"`+strings.Repeat("é", 64)+`"`, `"view":false`)

	const no = "is not an id"
	for member, words := range map[string]string{
		`0`: no, `-1`: no, `1.5`: no, `true`: no, `{}`: no, `""`: no, `18446744073709551616`: no, `+7`: "not the JSON object",
		`[]`: "a pair has two ids", `[7]`: "a pair has two ids", `[7,8,9]`: "a pair has two ids", `[7,0]`: `member[1]: 0 is not an id`, `[7,"x"]`: `member[1]: "x" is not an id`,
		`"` + strings.Repeat("x", 129) + `"`: "longer than a token may be, 128 bytes", `"x`: "not the JSON object", `[7,8`: "not the JSON object",
	} {
		r.refused(`{"counter":"item","ids":[5],"member":`+member+`}`, "400", words)
	}
	// Which columns have what is said.
	r.refused(`{"counter":"post","ids":[42],"member":["50","7"]}`, "400", `member: ["50","7"] is a pair of ids, and no column asked has a set of such; sets have: like of ids`)
	r.refused(`{"counter":"item","ids":[42],"columns":["liked","cntfan","plain"],"member":"s-1"}`, "400", `member: "s-1" is a token, and no column asked has a set of such; sets have: liked of pairs, cntfan of ids`)
	r.refused(`{"counter":"item","ids":[42],"columns":["liked"],"member":"7"}`, "400", `"7" is an id or a token`, "liked of pairs")
	r.refused(`{"counter":"post","ids":[42],"columns":["comment"],"member":7}`, "400", "member: no column asked of counter post has a set")
}

// What a member is asked of may be a column whose name the answer has for itself.
func TestGetMemberOfHas(t *testing.T) {
	r := start(t, func(o *service.Options, _ *server.Options) {
		var err error
		o.Schema, err = pipeline.NewSchema([]string{"post"}, []pipeline.ColumnSpec{
			{Name: "has", Bits: 8, Max: 63}, {Name: "like", Bits: 8, Max: 63, Set: pipeline.SetSpec{Members: pipeline.MembersIDs}},
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	r.refused(`{"counter":"post","ids":[42],"member":7}`, "400", `two things named "has"`)
	r.refuses("page", `{"ids":[42],"viewer":7}`, "400", `two things named "has"`)
	r.get(`{"counter":"post","ids":[42],"columns":["like"],"member":7}`, `{"rows":[{"id":"42","like":0,"has":{"like":false}}],"as_of":"0"}`)
	r.get(`{"counter":"post","ids":[42]}`, `{"rows":[{"id":"42","has":0,"like":0}],"as_of":"0"}`)
}

// docs/contract.md: "`{"column":"post.like","id":"42","limit":100,"after":"…"}` |
// `{"members":["7","9"],"next":"…","as_of":"…"}` by id"
func TestMembers(t *testing.T) {
	r := startSets(t)
	r.reader.AddMembers(like, 42, id(200), id(9), id(1<<64-1), id(7))
	r.reader.AddMembers(liked, 5, pipeline.Member{A: 50, B: 8}, pipeline.Member{A: 50, B: 7}, pipeline.Member{A: 9, B: 70})
	r.reader.Apply(5000)
	is := func(body, want string) {
		t.Helper()
		r.answers("members", body, want)
	}
	whole := `{"members":["7","9","200","18446744073709551615"],"as_of":"5000"}`
	is(`{"column":"post.like","id":"42"}`, whole)
	is(`{"column":"cntan","id":42,"limit":"4","after":0,"newest":false,"min_position":1,"x":[]}`, whole)
	is(`{"column":"post.cntan","id":42,"after":null,"newest":null}`, whole)
	is(`{"column":"post.like","id":42,"limit":2}`, `{"members":["7","9"],"next":"9","as_of":"5000"}`)
	is(`{"column":"post.like","id":42,"limit":2,"after":"9"}`, `{"members":["200","18446744073709551615"],"as_of":"5000"}`)
	is(`{"column":"post.like","id":42,"limit":1,"after":8}`, `{"members":["9"],"next":"9","as_of":"5000"}`)
	is(`{"column":"post.like","id":43}`, `{"members":[],"as_of":"5000"}`)
	// docs/queries.md: "Pairs are lists of two, and `next` of pairs is "50,7""
	is(`{"column":"item.liked","id":5}`, `{"members":[["9","70"],["50","7"],["50","8"]],"as_of":"5000"}`)
	is(`{"column":"item.liked","id":5,"limit":2,"after":"0"}`, `{"members":[["9","70"],["50","7"]],"next":"50,7","as_of":"5000"}`)
	is(`{"column":"item.liked","id":5,"limit":2,"after":"50,7"}`, `{"members":[["50","8"]],"as_of":"5000"}`)

	for body, words := range map[string]string{
		`{}`:                                           "column is missing",
		`{"column":"post.like"}`:                       "id is missing",
		`{"column":7,"id":42}`:                         "column: 7 is not a name",
		`{"column":"post.like","id":0}`:                "id: 0 is not an id",
		`{"column":"post.comment","id":42}`:            "column: post.comment has no set to list: its rules have no `once`",
		`{"column":"item.view","id":42}`:               "is of tokens, of which digests are kept: they cannot be listed",
		`{"column":"post.like","id":42,"newest":true}`: "newest: which members are the newest is not kept yet",
		`{"column":"post.like","id":42,"limit":0}`:     "limit: 0 is not a number from 1 to 10000",
		`{"column":"post.like","id":42,"after":"x"}`:   `after: x is not an id`,
		`{"column":"post.like","id":42,"after":"5,7"}`: `after: 5,7 is not an id`,
		`{"column":"item.liked","id":5,"after":"50"}`:  `after: 50 is not a pair of ids as in "50,7"`,
		`{"column":"item.liked","id":5,"after":[50]}`:  `after: [50] is not a pair of ids`,
		``: "not the JSON object",
	} {
		r.refuses("members", body, "400", words)
	}
	for body, words := range map[string]string{
		`{"column":"post.smile","id":42}`: `counter post has no column "smile"; there are: repost (cntrn)`,
		`{"column":"pots.like","id":42}`:  `counter "pots" is unknown; there are: post, user, unread, item`,
		`{"column":"like","id":42}`:       `suffix "like" is unknown (a name needs its counter, as post.like); there are: cntrn`,
		`{"column":"post.old","id":42}`:   `counter post has no column "old"`,
	} {
		r.refuses("members", body, "404", words)
	}
	r.refuses("members", `{"column":"post.like","id":42,"limit":10001}`, "413", "limit: 10001 is more than 10000")
}

// docs/contract.md: "of up to 500 posts, at one position"
func TestPage(t *testing.T) {
	r := startSets(t)
	r.reader.Set(0, like, 42, 3)
	r.reader.Set(0, comment, 42, 1)
	r.reader.AddMembers(like, 42, id(7))
	r.reader.Apply(5000)
	is := func(body, want string) {
		t.Helper()
		r.answers("page", body, want)
	}
	is(`{"ids":["42",43],"viewer":"7"}`, `{"rows":[{"id":"42","repost":0,"comment":1,"like":3,"has":{"like":true}},{"id":"43","repost":0,"comment":0,"like":0,"has":{"like":false}}],"as_of":"5000"}`)
	is(`{"ids":[42],"viewer":8,"newest":0}`, `{"rows":[{"id":"42","repost":0,"comment":1,"like":3,"has":{"like":false}}],"as_of":"5000"}`)
	is(`{"ids":[42],"viewer":null,"min_position":"5000"}`, `{"rows":[{"id":"42","repost":0,"comment":1,"like":3}],"as_of":"5000"}`)
	is(`{"ids":[]}`, `{"rows":[],"as_of":"5000"}`)

	many := strings.TrimSuffix(strings.Repeat("18446744073709551615,", 501), ",")
	r.refuses("page", `{"ids":[`+many+`]}`, "413", "ids: more than 500 in one request; ask in parts")
	if got := r.ask("tidemark.page", `{"viewer":7,"ids":[`+many[21:]+`]}`); strings.Count(got, `"has":{"like":false}`) != 500 {
		t.Errorf("%.300s", got)
	}
	r.refuses("page", `{}`, "400", "ids is missing")
	r.refuses("page", `{"ids":[0]}`, "400", "ids[0]: 0 is not an id")
	r.refuses("page", `{"ids":[42],"viewer":"x"}`, "400", `viewer: "x" is not an id`)
	r.refuses("page", `{"ids":[42],"viewer":7,"newest":3}`, "400", "newest: which members are the newest is not kept yet")
}

// Without a counter post there are none to show; one without sets is shown all the same.
func TestPageWithout(t *testing.T) {
	r := start(t)
	r.answers("page", `{"ids":[42],"viewer":7}`, `{"rows":[{"id":"42","repost":0,"comment":0,"like":0}],"as_of":"0"}`)
	r = start(t, func(o *service.Options, _ *server.Options) {
		var err error
		if o.Schema, err = pipeline.NewSchema([]string{"user"}, []pipeline.ColumnSpec{{Name: "post", Bits: 8, Max: 63}}); err != nil {
			t.Fatal(err)
		}
	})
	r.refuses("page", `{"ids":[42]}`, "404", `counter "post" is unknown; there are: user`)
}

func FuzzMemberRequest(f *testing.F) {
	r := startSets(f)
	for _, body := range []string{
		`{"counter":"item","ids":[5],"member":"7"}`, `{"counter":"item","ids":[5],"member":["50",7]}`, `{"ids":[5],"member":"s\u00e9","counter":"item"}`,
		`{"column":"item.liked","id":5,"after":"50,7","limit":1}`, `{"ids":[5],"viewer":"7","newest":0}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, name := range []string{"get", "members", "page"} {
			reply, err := r.nc.Request("tidemark."+name, body, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if code := reply.Header.Get("Nats-Service-Error-Code"); code == "500" {
				t.Fatalf("%s: %s", name, reply.Header.Get("Nats-Service-Error"))
			} else if code == "" {
				decode(t, string(reply.Data), &struct{}{})
			}
		}
	})
}
