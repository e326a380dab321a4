package service_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/query/internal/packed"
	"github.com/tidemark-io/tidemark/query/service"
)

// no waits for nothing.
var no = packed.Wait{Timeout: -1}

// send gives the reply as it comes, headers too.
func (r *room) send(subject string, body []byte, header nats.Header) *nats.Msg {
	r.t.Helper()
	reply, err := r.nc.RequestMsg(&nats.Msg{Subject: "tidemark." + subject, Data: body, Header: header}, time.Minute)
	if err != nil {
		r.t.Fatalf("%s %.100q: %v", subject, body, err)
	}
	return reply
}

// JSON stays what it is: the offer is for those who ask for it, in replies of all kinds;
// others get no header.
func TestTheOffer(t *testing.T) {
	r := start(t)
	r.reader.Cool(9)
	asks := nats.Header{packed.Header: {"1"}}
	for _, c := range []struct{ subject, body, code string }{
		{"get", `{"counter":"post","ids":[42]}`, ""},
		{"get", `{"counter":"post","ids":[9]}`, ""}, // answered late
		{"get", `{"counter":"pots","ids":[42]}`, "404"},
		{"get", `{"counter":"post","ids":[42],"min_position":"5","timeout_ms":1}`, "504"}, // refused late
		{"unread", `{"users":["7"]}`, ""},
		{"unread", `{"users":["0"]}`, "400"},
	} {
		plain, offered := r.send(c.subject, []byte(c.body), nil), r.send(c.subject, []byte(c.body), asks)
		if string(plain.Data) != string(offered.Data) || plain.Header.Get("Nats-Service-Error-Code") != c.code {
			t.Errorf("%s: %s %v, with the header %s", c.body, plain.Data, plain.Header, offered.Data)
		}
		if plain.Header.Get(packed.Header) != "" || c.code == "" && plain.Header != nil || offered.Header.Get(packed.Header) != "1" {
			t.Errorf("%s: %v, with the header %v", c.body, plain.Header, offered.Header)
		}
	}
	// Others have no binary form, and say so in their way.
	if reply := r.send("feed", []byte(`{"user":"7"}`), asks); len(reply.Header) > 0 {
		t.Error(reply.Header)
	}
	reply := r.send("feed", packed.AppendGet(nil, &no, "post", nil, []uint64{42}), asks)
	if reply.Header.Get("Nats-Service-Error-Code") != "400" || reply.Header.Get(packed.Header) != "" {
		t.Error(reply.Header)
	}
}

// An answer of more cells than a client takes is refused like one that is too long:
// zeros take no room in it.
func TestTooManyCells(t *testing.T) {
	channels := make([]string, packed.CellsMax/10_000)
	for i := range channels {
		channels[i] = fmt.Sprint("c", i+10_000) // in order
	}
	r := start(t)
	r.reader.Channels(channels, nil)
	users := make([]uint64, 10_000)
	for i := range users {
		users[i] = uint64(i) + 1
	}
	m := r.send("unread", packed.AppendUnread(nil, &no, users, nil), nil)
	if m.Header.Get("Nats-Service-Error-Code") != "413" || !strings.Contains(m.Header.Get("Nats-Service-Error"), "ask for fewer users at once") {
		t.Error(m.Header)
	}
	m = r.send("unread", packed.AppendUnread(nil, &no, users[:9_000], nil), nil)
	var reply packed.UnreadReply
	if err := reply.Read(m.Data, 9_000); err != nil || !slices.Equal(reply.Notices, channels) || len(m.Data) > 5_000 {
		t.Error(err, m.Header)
	}
}

// A request names so many columns or channels at most, in both forms: a name may take
// one byte of it, and takes 24 of memory.
func TestTooManyNames(t *testing.T) {
	r := start(t)
	r.reader.Apply(2048)
	names := func(n int, name string) []string { return slices.Repeat([]string{name}, n) }
	list := func(n int, name string) string { return `["` + strings.Join(names(n, name), `","`) + `"]` }
	distinct := func(n int) (names []string) {
		for i := range n {
			names = append(names, fmt.Sprint("c", i))
		}
		return names
	}
	for _, c := range []struct {
		subject, body, want string
	}{
		{"get", string(packed.AppendGet(nil, &no, "post", names(packed.ColumnsMax, "like"), []uint64{42})), ""},
		{"get", string(packed.AppendGet(nil, &no, "post", names(packed.ColumnsMax+1, "like"), []uint64{42})), "413 columns[1024]: more than 1024 columns in one request"},
		{"get", string(packed.AppendGet(nil, &no, "post", names(500_000, ""), []uint64{42})), "413 columns[1024]: more than 1024 columns in one request"},
		{"get", `{"counter":"post","ids":[42],"columns":` + list(packed.ColumnsMax, "like") + `}`, ""},
		{"get", `{"counter":"post","ids":[42],"columns":` + list(packed.ColumnsMax+1, "like") + `}`, "413 columns[1024]: more than 1024 columns in one request"},
		{"unread", string(packed.AppendUnread(nil, &no, []uint64{7}, distinct(packed.ChannelsMax))), ""},
		{"unread", string(packed.AppendUnread(nil, &no, []uint64{7}, distinct(packed.ChannelsMax+1))), "413 channels[128]: more than 128 channels in one request"},
		{"unread", string(packed.AppendUnread(nil, &no, []uint64{7}, names(500_000, ""))), "413 channels[128]: more than 128 channels in one request"},
	} {
		m := r.send(c.subject, []byte(c.body), nil)
		if got := strings.TrimSpace(m.Header.Get("Nats-Service-Error-Code") + " " + m.Header.Get("Nats-Service-Error")); got != c.want {
			t.Errorf("%s %.60q: %.200s, want %q", c.subject, c.body, got, c.want)
		}
	}
}

// Who reads the slow log sees what was asked, in the words that ask it again.
func TestSlowLogSpellsBinaryRequests(t *testing.T) {
	r := start(t)
	r.reader.Apply(2048)
	w := packed.Wait{Position: 5, Timeout: 3 * time.Second, Whole: true}
	many := make([]uint64, 10_000)
	for i := range many {
		many[i] = uint64(i) + 1
	}
	for want, ask := range map[string]struct {
		subject string
		body    []byte
	}{
		`{\"counter\":\"post\",\"columns\":[\"like\"],\"min_position\":\"5\",\"timeout_ms\":3000,\"partial\":false,\"ids\":[\"42\",\"7\"]}"`: {"get", packed.AppendGet(nil, &w, "post", []string{"like"}, []uint64{42, 7})},
		`{\"channels\":[\"system\"],\"users\":[\"7\"]}"`: {"unread", packed.AppendUnread(nil, &no, []uint64{7}, []string{"system"})},
		`{\"min_seq\":1,\"users\":[]}"`:                  {"unread", packed.AppendUnread(nil, &packed.Wait{Timeout: -1, HasSeq: true, Sequence: 1}, nil, nil)},
		`{\"counter\":\"post\",\"ids\":[\"1\",\"2\",`:    {"get", packed.AppendGet(nil, &no, "post", nil, many)},
		`{\"counter\":\"post\",\"columns\":[\"xxx`:       {"get", packed.AppendGet(nil, &no, "post", slices.Repeat([]string{strings.Repeat("x", 900)}, packed.ColumnsMax), nil)},
		`binary form: \"TMQ\\x01\\x00`:                   {"get", packed.AppendGet(nil, &no, "post", nil, many)[:40]},
	} {
		r.send("slowlog", []byte(`{"reset":true}`), nil)
		r.send(ask.subject, ask.body, nil)
		// A request is remembered when its answer is on its way.
		got := r.ask("tidemark.slowlog", `{}`)
		for end := time.Now().Add(time.Minute); !strings.Contains(got, want) && time.Now().Before(end); {
			got = r.ask("tidemark.slowlog", `{}`)
		}
		if !strings.Contains(got, want) || len(got) > 100_000 {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// What a request in binary form may carry, and how it is refused: by somebody who knows
// the form. The client's TestBinaryTwin compares the rest with JSON.
func TestBinaryRequests(t *testing.T) {
	var ready error
	r := start(t, func(o *service.Options, _ *server.Options) { o.Ready = func() error { return ready } })
	r.reader.Set(0, like, 42, 3)
	r.reader.StopShardOf(43)
	r.reader.Apply(2048)
	get := func(w packed.Wait, ids ...uint64) []byte {
		return packed.AppendGet(nil, &w, "post", []string{"like"}, ids)
	}
	answer := func(body []byte) string {
		t.Helper()
		m := r.send("get", body, nil)
		if text := told(m); len(m.Data) == 0 {
			if m.Header.Get(packed.Header) != "1" {
				t.Errorf("%q does not say who says it: %v", text, m.Header)
			}
			return text
		}
		var reply packed.GetReply
		if err := reply.Read(m.Data, 1, nil); err != nil || len(m.Header) > 0 {
			t.Error(err, m.Header)
		}
		return fmt.Sprint(reply.Columns, reply.Values, reply.AsOf, reply.Missing)
	}
	newer, flags := get(no, 42), get(no, 42)
	newer[3] = 2
	flags[4] |= 0x80
	const damaged = "400 the body is not the request it should be: the binary form of a get: "
	for _, c := range []struct {
		body []byte
		want string
	}{
		{get(no, 43), "[like] [0] 2048 [0]"},
		{get(packed.Wait{Timeout: -1, Whole: true}, 43), "503 not whole, and partial is false: 43, or a part of it, cannot be read now"},
		{get(packed.Wait{Timeout: -1, HasSeq: true, Sequence: 1}, 42), "[like] [3] 2048 []"},
		{get(packed.Wait{HasSeq: true, Sequence: 2}, 42), "504 min_seq 2 was not reached within 0 ms"},
		{get(packed.Wait{Timeout: -1, HasSeq: true}, 42), "400 min_seq: 0 is not a sequence"},
		{get(packed.Wait{Timeout: -1, HasSeq: true, Sequence: 1, Position: 1}, 42), "400 min_position and min_seq are both given"},
		{newer, damaged + "it is of version 2, and this node understands version 1"},
		{flags, damaged + "flags 0x80"},
		{get(no, 42)[:9], "400 the body is not the request it should be"},
	} {
		if got := answer(c.body); !strings.HasPrefix(got, c.want) {
			t.Errorf("%q\ngot  %s\nwant %s", c.body, got, c.want)
		}
	}
	ready = errors.New("it is still loading")
	if got := answer(get(no, 42)); got != "503 not ready: it is still loading" {
		t.Error(got)
	}
}
