package service

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/packed"
)

func testSchema(t testing.TB) *pipeline.Schema {
	t.Helper()
	schema, err := pipeline.NewSchema([]string{"post", "user", "unread"}, []pipeline.ColumnSpec{
		{Counter: 0, Name: "repost", Suffix: "cntrn", Bits: 16, Max: 63},
		{Counter: 0, Name: "comment", Suffix: "cntcm", Bits: 16, Max: 63},
		{Counter: 0, Name: "like", Suffix: "cntan", Bits: 8, Max: 63, Default: 5},
		{Counter: 0, Name: "old", Bits: 8, Max: 63, Hidden: true},
		{Counter: 1, Name: "post", Suffix: "cntup", Bits: 16, Max: 63},
		{Counter: 2, Name: "comment", Bits: 8, Max: 63},
		{Counter: 2, Name: `o"d`, Bits: 8, Max: 63},
		{Counter: 2, Name: "old", Bits: 8, Max: 63, Hidden: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// parser is a Service as far as parsing needs one.
func parser(t testing.TB) *Service {
	t.Helper()
	s := &Service{catalog: newCatalog(testSchema(t)), limits: Limits{}.withDefaults(), publisher: nowhere{}}
	s.lanes = newLanes(s.limits)
	var err error
	if s.metrics, err = newMetrics(nil, nil, s.lanes); err != nil {
		t.Fatal(err)
	}
	return s
}

// aged says of every answer that it is so old.
type aged time.Duration

func (a aged) Age(pipeline.Position) (time.Duration, bool) { return time.Duration(a), a == 0 }

func (a aged) Reaches(pipeline.Position) bool { return a == 0 }

func (a aged) Least() (pipeline.Position, bool) { return 0, a == 0 }

type nowhere struct{ query.Publisher }

func parsed(s *Service, body string) (*call, *failure) {
	c := &call{body: []byte(body), wait: wait{timeout: -1}}
	return c, s.parseGet(c)
}

func FuzzGetRequest(f *testing.F) {
	for _, seed := range []string{
		`{"counter":"post","ids":["42",43],"columns":["like"]}`,
		`{"ids":[18446744073709551615,"18446744073709551616"],"columns":["cntcm"]}`,
		` { "ids" : [ 1 , "\u0032" , 0003 ] , "counter" : "us\u0065r" , "x" : {"y":[1,{}]} } `,
		`{"counter":"post","ids":[1e3]}`, `{"counter":"post","ids":[-1,0.5]}`, `{"ids":null}`, `[]`, ``, "\x00",
		`{"counter":"post","ids":[1],"min_position":"1024","timeout_ms":5,"columns":[]}`,
	} {
		f.Add([]byte(seed))
	}
	s := parser(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		c := &call{body: body, wait: wait{timeout: -1}}
		if c.get.parse(c, s.limits.IDs) != nil {
			return
		}
		if !json.Valid(body) {
			t.Fatalf("%q was accepted and is not JSON", body)
		}
		if slices.Contains(c.get.ids, 0) {
			t.Fatalf("%q gave the id 0", body)
		}
		// What was accepted, written again, is the same request.
		var again strings.Builder
		fmt.Fprintf(&again, `{"counter":%q,"min_position":"%d","ids":[`, "post", c.wait.position)
		for i, id := range c.get.ids {
			if i > 0 {
				again.WriteByte(',')
			}
			if i%2 == 0 {
				again.WriteString(strconv.FormatUint(id, 10))
			} else {
				again.WriteString(strconv.Quote(strconv.FormatUint(id, 10)))
			}
		}
		again.WriteString(`]}`)
		c2, f := parsed(s, again.String())
		if f != nil {
			t.Fatalf("%s: %s", again.String(), f.message)
		}
		if !slices.Equal(c.get.ids, c2.get.ids) || c.wait.position != c2.wait.position {
			t.Fatalf("%q gave ids %v, written again %v", body, c.get.ids, c2.get.ids)
		}
	})
}

func FuzzUnreadRequest(f *testing.F) {
	for _, seed := range []string{
		`{"users":["7",8]}`, ` { "x" : {"users":[0]} , "users" : [ "\u0037" ] , "min_position" : "5" } `, `{"users":[0]}`, `{"users":null}`, `[]`, ``,
	} {
		f.Add([]byte(seed))
	}
	s := parser(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		c := &call{body: body, wait: wait{timeout: -1}}
		if s.parseUnread(c) != nil {
			return
		}
		u := &c.unread
		if !json.Valid(body) || slices.Contains(u.ids, 0) {
			t.Fatalf("%q was accepted: %v", body, u.ids)
		}
		u.unreads.Reset(len(u.ids), len(s.catalog.unread), []string{"system"}, nil)
		var reply struct {
			Users []struct{ User string }
		}
		if err := json.Unmarshal(append(u.appendReply(nil, body, s.catalog.unread, 1<<30), '}'), &reply); err != nil {
			t.Fatal(err)
		}
		for i, id := range u.ids {
			if reply.Users[i].User != strconv.FormatUint(id, 10) {
				t.Fatalf("%q: user %d is answered as %s", body, id, reply.Users[i].User)
			}
		}
	})
}

// An accepted read is an event on one line that is accepted as the same again.
func FuzzReadRequest(f *testing.F) {
	for _, seed := range []string{
		`{"user":"7","what":["comment"],"seen":{"comment":3},"as_of":"2048","wait":true}`,
		` { "what" : [ "\u0061ll" , "channel:a-_9" , "feed" , "o\"d" ] , "seen" : { "o\u0022d" : "007" , "comment" : 0 } , "user" : 18446744073709551615 , "as_of" : 0 } `,
		`{"user":7,"what":["old"]}`, `{"user":7,"what":["channel:A"]}`, `{"user":7,"what":[],"seen":{"comment":-1}}`, `{"user":0,"what":["all"]}`,
		`{"user":7,"what":["all"],"seen":{"comment":1,"comment":2}}`, `{"user":7,"what":["all","all"],"what":null,"seen":{},"delete":true}`, ``,
	} {
		f.Add([]byte(seed))
	}
	s := parser(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		c := &call{body: body, endpoint: s.readEndpoint(), wait: wait{timeout: -1}}
		if s.parseRead(c) != nil {
			return
		}
		event := c.read.event
		if !json.Valid(body) || !jsontext.Value(event).IsValid() || bytes.ContainsAny(event, "\n\r") { // no name twice
			t.Fatalf("%q was accepted as %q", body, event)
		}
		var plain struct {
			Type  string
			Actor uint64
			What  []string
			Seen  map[string]int64
		}
		if err := json.Unmarshal(event, &plain); err != nil || plain.Type != "read" || plain.Actor == 0 || len(plain.What) < 1 || len(plain.What) > whatMax {
			t.Fatalf("%q became %s: %v", body, event, err)
		}
		for name, n := range plain.Seen {
			if name != "comment" && name != `o"d` || n < 0 || n > pipeline.Limit {
				t.Fatalf("%q became %s", body, event)
			}
		}
		again := &call{body: bytes.Replace(event, []byte(`"actor"`), []byte(`"user"`), 1), endpoint: c.endpoint, wait: wait{timeout: -1}}
		if f := s.parseRead(again); f != nil || !bytes.Equal(again.read.event, event) {
			t.Fatalf("%q became %s, and that %s (%v)", body, event, again.read.event, f)
		}
	})
}

func FuzzPageRequest(f *testing.F) {
	for _, seed := range []string{
		`{"user":"7","limit":20,"before":"5"}`, `{"user":7,"limit":"1000","x":{"limit":[]},"before":null}`, `{"user":7,"limit":0}`,
		`{"user":7,"limit":99999999999999999999}`, `{"user":7,"limit":"\u0031"}`, `{"limit":1}`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c := &call{body: body, wait: wait{timeout: -1}}
		p := &c.page
		if p.parse(c, "before", "a position", feedLimit, feedLimitMax) != nil {
			return
		}
		if !json.Valid(body) || p.user == 0 || p.limit < 1 || p.limit > feedLimitMax {
			t.Fatalf("%q was accepted as %+v", body, p.pageRequest)
		}
		again := &call{body: fmt.Appendf(nil, `{"before":"%d","limit":"%d","user":%d}`, p.place, p.limit, p.user), wait: wait{timeout: -1}}
		if f := again.page.parse(again, "before", "a position", feedLimit, feedLimitMax); f != nil || again.page.pageRequest != p.pageRequest {
			t.Fatalf("%q is %+v, written again %+v", body, p.pageRequest, again.page.pageRequest)
		}
	})
}

// Every reply, read by encoding/json, is what the plain rules give.
func TestReplyAgainstPlainRules(t *testing.T) {
	s := parser(t)
	rapid.Check(t, func(t *rapid.T) {
		var body strings.Builder
		for _, id := range rapid.SliceOfN(rapid.Uint64Min(1), 0, 20).Draw(t, "ids") {
			form := rapid.SampledFrom([]string{`,%d`, `,"%d"`, ` , "00%d"`, `,"\u0030%d"`}).Draw(t, "form")
			fmt.Fprintf(&body, form, id)
		}
		c, f := parsed(s, `{"counter":"post","ids":[`+strings.Replace(body.String(), ",", "", 1)+`]}`)
		if f != nil {
			t.Fatal(f.message)
		}
		g := &c.get
		g.rows.Reset(len(g.ids), len(g.words))
		g.rows.AsOf = pipeline.Position(rapid.Uint64().Draw(t, "as_of"))
		for i := range g.rows.Values {
			g.rows.Values[i] = rapid.Int64().Draw(t, "value")
		}
		missing := map[string]bool{}
		for i, id := range g.ids {
			g.rows.Exist[i] = rapid.Bool().Draw(t, "exists")
			if rapid.IntRange(0, 5).Draw(t, "missing") == 0 {
				g.rows.Missing = append(g.rows.Missing, i)
				missing[strconv.FormatUint(id, 10)] = true
			}
		}
		var reply struct {
			Rows     []map[string]any `json:"rows"`
			AsOf     string           `json:"as_of"`
			Degraded bool             `json:"degraded"`
			StaleMS  int64            `json:"stale_ms"`
			Missing  []string         `json:"missing"`
		}
		stale := aged(rapid.SampledFrom([]time.Duration{0, time.Millisecond, 4321 * time.Millisecond}).Draw(t, "age"))
		s.fresh = stale
		c.out = g.appendReply(nil, c.body)
		if f := s.conclude(c, g.rows.AsOf, g.missingOf(g.rows.Missing)); f != nil {
			t.Fatal(f.message)
		}
		d := json.NewDecoder(strings.NewReader(string(c.out)))
		d.UseNumber()
		if err := d.Decode(&reply); err != nil {
			t.Fatal(err)
		}
		if len(reply.Rows) != len(g.ids) || reply.AsOf != g.rows.AsOf.String() {
			t.Fatalf("%d rows as of %s", len(reply.Rows), reply.AsOf)
		}
		if reply.Degraded != (len(missing) > 0 || stale > 0) || len(reply.Missing) != len(missing) {
			t.Fatalf("degraded %v, missing %v, want %v", reply.Degraded, reply.Missing, missing)
		}
		if reply.StaleMS != time.Duration(stale).Milliseconds() {
			t.Fatalf("stale_ms %d, its age is %v", reply.StaleMS, time.Duration(stale))
		}
		for i, row := range reply.Rows {
			want := map[string]any{"id": strconv.FormatUint(g.ids[i], 10)}
			if !slices.Contains(g.rows.Missing, i) {
				for j, name := range []string{"repost", "comment", "like"} {
					value := max(g.rows.Values[i*3+j], 0)
					if !g.rows.Exist[i] {
						value = []int64{0, 0, 5}[j]
					}
					want[name] = json.Number(strconv.FormatInt(value, 10))
				}
			}
			if fmt.Sprint(row) != fmt.Sprint(want) {
				t.Fatalf("row %d is %v, want %v", i, row, want)
			}
		}
	})
}

// Nothing is allocated for an id, a user, a channel, a post or a read.
func TestNothingIsAllocated(t *testing.T) {
	s := parser(t)
	ids := make([]uint64, 500)
	for i := range ids {
		ids[i] = 1e15 + uint64(i)*7919
	}
	quoted := strings.ReplaceAll(strings.Trim(fmt.Sprint(ids), "[]"), " ", `","`)
	no := packed.Wait{Timeout: -1}
	call := func(body string) *call { return &call{body: []byte(body), wait: wait{timeout: -1}} }
	get := call(`{"counter":"post","ids":["` + quoted + `"],"columns":["like"]}`)
	binary := call(string(packed.AppendGet(nil, &no, "post", []string{"like"}, ids)))
	binary.packed = true
	users := call(`{"users":["` + quoted + `"]}`)
	page := call(`{"user":"7","limit":500,"before":"9"}`)
	read := call(`{"user":"7","what":["comment","feed"],"seen":{"comment":3},"as_of":"2048"}`)
	notices, dots := []string{"news", "system"}, []string{"games"}
	for name, work := range map[string]func() *failure{
		"get": func() *failure {
			f := s.parseGet(get)
			get.get.rows.Reset(len(get.get.ids), len(get.get.words))
			get.out = get.get.appendReply(get.out[:0], get.body)
			return f
		},
		"get in binary form": func() *failure {
			f := s.parseGet(binary)
			binary.get.rows.Reset(len(binary.get.ids), len(binary.get.words))
			binary.out = binary.get.pack(binary.out[:0])
			return f
		},
		"unread": func() *failure {
			f := s.parseUnread(users)
			users.unread.unreads.Reset(len(users.unread.ids), len(s.catalog.unread), notices, dots)
			users.out = users.unread.appendReply(users.out[:0], users.body, s.catalog.unread, 1<<30)
			return f
		},
		"feed": func() *failure {
			f := page.page.parse(page, "before", "a position", feedLimit, feedLimitMax)
			page.page.feed.Reset()
			for i := range uint64(500) {
				page.page.feed.Posts = append(page.page.feed.Posts, query.FeedPost{Post: i, Author: i, Position: pipeline.Position(i)})
			}
			page.out = page.page.appendFeed(page.out[:0])
			return f
		},
		"read": func() *failure { return s.parseRead(read) },
	} {
		if f := work(); f != nil {
			t.Fatal(f.message)
		}
		if n := testing.AllocsPerRun(100, func() { work() }); n > 0 {
			t.Errorf("%s: %v allocations a request", name, n)
		}
	}
	if got := s.timeout(get); got != 2*time.Second { // docs/contract.md: "`timeout_ms` (default 2,000)"
		t.Errorf("a request waits for %v", got)
	}
}

// The scanner's verdict on JSON is encoding/json's, on requests and on ruins
// of requests.
func TestParseAcceptsJSONOnly(t *testing.T) {
	s := parser(t)
	whole := `{"counter":"post","a":[1,{"b":null}],"ids":["42",43, 44],"c":-1.5e+3,"d":true,"e":"\u00e9é","columns":["like"]}`
	rapid.Check(t, func(t *rapid.T) {
		body := []byte(whole)
		for range rapid.IntRange(0, 3).Draw(t, "cuts") {
			i := rapid.IntRange(0, len(body)-1).Draw(t, "at")
			switch rapid.IntRange(0, 2).Draw(t, "how") {
			case 0:
				body = slices.Delete(body, i, i+1)
			case 1:
				body[i] = rapid.SampledFrom([]byte("{}[],:\"\\ 019-+.eEnulltruef\x00\xff\n")).Draw(t, "byte")
			case 2:
				body = slices.Insert(body, i, rapid.SampledFrom([]byte("{}[],:\"\\ 019-.e")).Draw(t, "byte"))
			}
		}
		_, f := parsed(s, string(body))
		if f == nil && !json.Valid(body) {
			t.Fatalf("%q was accepted", body)
		}
		if f != nil && strings.Contains(f.message, "is not the JSON object") {
			var object map[string]json.RawMessage
			if json.Unmarshal(body, &object) == nil && strings.ToValidUTF8(string(body), "") == string(body) {
				t.Fatalf("%q was refused: %s", body, f.message)
			}
		}
	})
}
