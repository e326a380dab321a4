package service_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/service"
)

// "`{"users":["7"]}` → `{"users":[{"user":"7","feed":12,"counts":{"comment":3,"mention":0,…},"channels":{"system":2},"dots":{"games":true}}],"as_of":"…"}`"
func TestUnread(t *testing.T) {
	r := start(t)
	r.reader.Channels([]string{"system"}, []string{"games"})
	r.reader.SetUnread(7, query.UserUnread{Feed: 12, Counts: []int64{3, 0}, Notices: []uint64{2}, Dots: []bool{true}})
	r.reader.Apply(2047)
	seven := `{"user":"7","feed":12,"counts":{"comment":3,"mention":0},"channels":{"system":2},"dots":{"games":true}}`
	nobody := `{"user":"18446744073709551615","feed":0,"counts":{"comment":0,"mention":0},"channels":{"system":0},"dots":{"games":false}}`

	r.answers("unread", `{"users":["7"]}`, `{"users":[`+seven+`],"as_of":"2047"}`)
	// In the order asked, numbers or strings, the same user as often as asked.
	r.answers("unread", `{"x":{"users":[0]},"users":[7,18446744073709551615,"007"],"min_position":"2047"}`,
		`{"users":[`+seven+`,`+nobody+`,`+seven+`],"as_of":"2047"}`)
	r.answers("unread", `{"users":[]}`, `{"users":[],"as_of":"2047"}`)
}

// A configuration without the counter unread still has feeds and channels.
func TestUnreadWithoutCounter(t *testing.T) {
	r := start(t, func(o *service.Options, _ *server.Options) {
		var err error
		o.Schema, err = pipeline.NewSchema([]string{"post", "unread"}, []pipeline.ColumnSpec{
			{Counter: 0, Name: "like", Bits: 8, Max: 63}, {Counter: 1, Name: "old", Bits: 8, Max: 63, Hidden: true},
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	r.answers("unread", `{"users":[7]}`, `{"users":[{"user":"7","feed":0,"counts":{},"channels":{},"dots":{}}],"as_of":"0"}`)
	r.answers("read", `{"user":7,"what":["feed"]}`, `{"position":"1024"}`)
	r.refuses("read", `{"user":7,"what":["old"]}`, "404", `what[0]: "old" is not something unread; there are: feed, channel:<name>, all`)
}

// docs/contract.md: "At most 10,000 ids (or users) a request." "400 with what is wrong
// and where" "413 too many"
func TestUnreadRefusals(t *testing.T) {
	r := start(t)
	r.refuses("unread", `{}`, "400", "users is missing")
	r.refuses("unread", ``, "400", "not the JSON object")
	r.refuses("unread", `{"users":null}`, "400", "users is missing")
	r.refuses("unread", `{"users":"7"}`, "400", `users: "7" is not a list`)
	r.refuses("unread", `{"users":[7],"users":[8]}`, "400", `users is given twice`)
	r.refuses("unread", `{"users":[7,0]}`, "400", "users[1]: 0 is not an id")
	r.refuses("unread", `{"users":[7,-1]}`, "400", "users[1]: -1 is not an id")
	r.refuses("unread", `{"users":[7,]}`, "400", "not the JSON object")
	r.refuses("unread", `{"users":[7],"min_position":"9","timeout_ms":1}`, "504", "min_position 9")
	r.refuses("unread", `{"users":[`+strings.Repeat("1,", 10_000)+`1]}`, "413", "users: more than 10000")
}

// docs/contract.md: "`tidemark.unread` takes `"channels": ["system"]`: these alone are
// answered."
func TestUnreadOfAskedChannels(t *testing.T) {
	r := start(t)
	r.reader.Channels([]string{"a-1", "b_2", "system"}, []string{"games", "shop"})
	r.reader.SetUnread(7, query.UserUnread{Feed: 12, Counts: []int64{3, 0}, Notices: []uint64{1, 0, 10}, Dots: []bool{false, true}})
	for channels, want := range map[string]string{
		`["system"]`:                           `"channels":{"system":10},"dots":{}`,
		`["shop","\u0073ystem","games","a-1"]`: `"channels":{"system":10,"a-1":1},"dots":{"shop":true,"games":false}`,
		`["nobody-ever"]`:                      `"channels":{"nobody-ever":0},"dots":{}`,
		`[]`:                                   `"channels":{},"dots":{}`,
		`null`:                                 `"channels":{"a-1":1,"b_2":0,"system":10},"dots":{"games":false,"shop":true}`,
	} {
		r.answers("unread", `{"channels":`+channels+`,"users":[7]}`, `{"users":[{"user":"7","feed":12,"counts":{"comment":3,"mention":0},`+want+`}],"as_of":"0"}`)
	}

	longest := strings.Repeat("a", 64)
	many := make([]string, 128)
	for i := range many {
		many[i] = fmt.Sprintf(`"c%d"`, i)
	}
	for channels, words := range map[string][]string{
		`"system"`:                        {"400", `channels: "system" is not a list`},
		`["system",7]`:                    {"400", "channels[1]: 7 is not a channel's name: 1 to 64 of a-z 0-9 _ -"},
		`["system","System"]`:             {"400", `channels[1]: "System" is not a channel's name`},
		`[""]`:                            {"400", `channels[0]: "" is not a channel's name`},
		`["` + longest + `a"]`:            {"400", "channels[0]: "},
		`["system","games","system"]`:     {"400", `channels[2]: "system" is given twice`},
		`["system"],"channels":["games"]`: {"400", "channels is given twice"},
		`[],"channels":["games"]`:         {"400", "channels is given twice"},
		`["system",]`:                     {"400", "not the JSON object"},
		`[` + strings.Join(many, ",") + `,"one-more"]`: {"413", "channels[128]: more than 128 channels in one request"},
	} {
		r.refuses("unread", `{"users":[7],"channels":`+channels+`}`, words[0], words[1])
	}
	for _, channels := range []string{`["` + longest + `"]`, `[` + strings.Join(many, ",") + `]`} {
		if got := r.ask("tidemark.unread", `{"users":[7],"channels":`+channels+`}`); !strings.HasPrefix(got, `{"users":[{"user":"7",`) {
			t.Errorf("%.100s", got)
		}
	}
}
