package service_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
)

// docs/contract.md: `tidemark.inbox`, "newest first", "all kinds when `kinds` is left out",
// `"unread": true` "for unread ones alone"; pages have no gap and no repeat.
func TestInbox(t *testing.T) {
	r := start(t)
	comment, _ := querytest.Schema(t).Find("unread.comment")
	for i := range 5 {
		r.reader.AddItem(7, query.InboxItem{
			Position: pipeline.At(uint64(i+1), 0), Column: comment, Second: 1_700_000_000 + int64(i), Actor: uint64(10 + i), Post: uint64(i % 2), Read: i < 2,
		})
	}
	r.reader.Apply(pipeline.EndOf(9))
	item := func(i int) string {
		post := ""
		if i%2 == 1 {
			post = `,"post":"1"`
		}
		return fmt.Sprintf(`{"position":"%d","time":"2023-11-14T22:13:2%dZ","kind":"comment","actor":"%d"%s,"read":%v}`, pipeline.At(uint64(i+1), 0), i, 10+i, post, i < 2)
	}
	for body, want := range map[string]string{
		`{"user":"7"}`: `{"items":[` + strings.Join([]string{item(4), item(3), item(2), item(1), item(0)}, ",") + `],"as_of":"10239"}`,
		`{"user":7,"kinds":["comment","comment"],"limit":2}`:        `{"items":[` + item(4) + "," + item(3) + `],"next":"4096","as_of":"10239"}`,
		`{"user":7,"limit":2,"before":"4096"}`:                      `{"items":[` + item(2) + "," + item(1) + `],"next":"2048","as_of":"10239"}`,
		`{"user":7,"limit":2,"before":2048}`:                        `{"items":[` + item(0) + `],"as_of":"10239"}`,
		`{"user":7,"unread":true}`:                                  `{"items":[` + strings.Join([]string{item(4), item(3), item(2)}, ",") + `],"as_of":"10239"}`,
		`{"user":8,"kinds":null,"unread":false}`:                    `{"items":[],"as_of":"10239"}`,
		`{"user":7,"limit":1,"unread":true,"min_position":"10239"}`: `{"items":[` + item(4) + `],"next":"5120","as_of":"10239"}`,
	} {
		r.answers("inbox", body, want)
	}
	r.refuses("inbox", `{}`, "400", "user is missing")
	r.refuses("inbox", `{"user":0}`, "400", "user: 0 is not an id")
	r.refuses("inbox", `{"user":7,"kinds":"comment"}`, "400", "kinds", "a list")
	r.refuses("inbox", `{"user":7,"kinds":[]}`, "400", "kinds: want one at least of comment")
	r.refuses("inbox", `{"user":7,"kinds":["smile"]}`, "404", `kinds: "smile" is not a kind of unread; there are: comment`)
	r.refuses("inbox", `{"user":7,"kinds":["mention"]}`, "400", "kinds: unread.mention keeps no items")
	r.refuses("inbox", `{"user":7,"limit":1001}`, "413", "limit")
	r.refuses("inbox", `{"user":7,"unread":1}`, "400", "unread: 1 is not true or false")
	r.reader.StopShardOf(7)
	r.answers("inbox", `{"user":7}`, `{"items":[],"as_of":"10239","degraded":true,"missing":["7"]}`)
}

// docs/contract.md: "`items: [\"POSITION\", …]` marks these alone"; "`as_of` in a `read` of plain
// columns alone is refused (400 …)".
func TestReadOfItems(t *testing.T) {
	r := start(t)
	for body, event := range map[string]string{
		`{"user":7,"items":["1024",2048]}`:                    `{"type":"read","actor":7,"items":["1024","2048"]}`,
		`{"user":7,"items":[1024],"what":["comment","all"]}`:  `{"type":"read","actor":7,"what":["comment","all"],"items":["1024"]}`,
		`{"user":7,"what":["comment","mention"],"as_of":"5"}`: `{"type":"read","actor":7,"what":["comment","mention"],"as_of":"5"}`,
		`{"user":7,"what":["mention"],"as_of":"0"}`:           `{"type":"read","actor":7,"what":["mention"],"as_of":"0"}`,
	} {
		if got := r.ask("tidemark.read", body); !strings.HasPrefix(got, `{"position":`) {
			t.Errorf("%s: %s", body, got)
		}
		if events := r.events.Events(); events[len(events)-1] != event {
			t.Errorf("%s: %s", body, events[len(events)-1])
		}
	}
	r.refuses("read", `{"user":7,"items":[]}`, "400", "items: want 1 to 128 positions")
	r.refuses("read", `{"user":7,"items":["x"]}`, "400", `items[0]: "x" is not a position`)
	r.refuses("read", `{"user":7,"items":[0]}`, "400", "items[0]: 0 is not a position")
	r.refuses("read", `{"user":7,"items":["1"],"items":["2"]}`, "400", "items is given twice")
	r.refuses("read", `{"user":7,"items":[`+strings.TrimSuffix(strings.Repeat("1,", 129), ",")+`]}`, "413", "items: more than 128 positions")
	r.refuses("read", `{"user":7,"items":[1],"seen":{"comment":1}}`, "400", "seen: a read of items has none")
	r.refuses("read", `{"user":7,"items":[1],"what":["feed"]}`, "400", "what: a read of items")
	r.refuses("read", `{"user":7,"items":[1],"what":["mention"]}`, "400", "what: a read of items")
	r.refuses("read", `{"user":7,"what":["mention"],"as_of":"5"}`, "400", "as_of: what is read keeps no items")
}
