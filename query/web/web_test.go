package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// recorder answers all with one reply, and remembers what was asked.
type recorder struct {
	endpoint, body string
	reply          query.Reply
}

func (r *recorder) ask(_ context.Context, endpoint string, body []byte) query.Reply {
	r.endpoint, r.body = endpoint, string(body)
	return r.reply
}

// log is Packs: it keeps packs, and refuses all after some.
type log struct {
	packs [][]byte
	ids   map[string]int
	takes int
	err   error
}

func (l *log) PublishPack(_ context.Context, lines []byte, id string) (pipeline.Position, error) {
	if at, twice := l.ids[id]; twice {
		return pipeline.EndOf(uint64(at)), nil
	}
	if len(l.packs) == l.takes && l.err != nil {
		return 0, l.err
	}
	l.packs = append(l.packs, slices.Clone(lines))
	l.ids[id] = len(l.packs)
	return pipeline.EndOf(uint64(len(l.packs))), nil
}

// even refuses lines that hold "bad"; the type of the others is their first word.
type even struct{}

func (even) Check(line []byte) (kind string, reason pipeline.Reason, detail string) {
	if strings.Contains(string(line), "bad") {
		return "", pipeline.ReasonField, "it is bad"
	}
	kind, _, _ = strings.Cut(string(line), " ")
	return kind, "", ""
}

// one is a Role that may ask, and send, one thing.
type one struct{ ask, send string }

func (o one) MayAsk(endpoint string) bool { return endpoint == o.ask }
func (o one) MaySend(kind string) bool    { return o.send != "" && (kind == o.send || kind == "") }

func handler(t *testing.T, o Options) http.Handler {
	t.Helper()
	o.NewChecker, o.Bodies = func() Checker { return even{} }, 64<<20
	h, err := Handler(o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func send(h http.Handler, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// docs/contract.md: "Bodies and replies as over NATS".
func TestTranslation(t *testing.T) {
	r := &recorder{reply: query.Reply{Code: 200, Data: []byte(`{"a":1}`)}}
	h := handler(t, Options{Ask: r.ask})
	for _, c := range []struct{ method, target, body, endpoint, asked string }{
		{"GET", "/v1/get/post/42,43?columns=like,comment", "", "get", `{"counter":"post","ids":["42","43"],"columns":["like","comment"]}`},
		{"GET", "/v1/get/post/42?member=7", "", "get", `{"counter":"post","ids":["42"],"member":"7"}`},
		{"GET", "/v1/get/user/42?member=50,7&min_position=9&partial=false", "", "get", `{"counter":"user","ids":["42"],"member":["50","7"],"min_position":"9","partial":false}`},
		{"GET", "/v1/unread/7,8?channels=system&timeout_ms=50", "", "unread", `{"users":["7","8"],"channels":["system"],"timeout_ms":50}`},
		{"POST", "/v1/read", `{"user":"7","what":["all"]}`, "read", `{"user":"7","what":["all"]}`},
		{"GET", "/v1/feed/7?limit=20&before=12", "", "feed", `{"user":"7","limit":20,"before":"12"}`},
		{"GET", "/v1/following/7?after=9", "", "following", `{"user":"7","after":"9"}`},
		{"GET", "/v1/followers/7", "", "followers", `{"user":"7"}`},
		{"GET", "/v1/members/post.like/42?limit=2", "", "members", `{"column":"post.like","id":"42","limit":2}`},
		{"GET", "/v1/page/42,43?viewer=7", "", "page", `{"ids":["42","43"],"viewer":"7"}`},
		{"GET", "/v1/explain/unread.channel:system/7?min_seq=4", "", "explain", `{"number":"unread.channel:system","id":"7","min_seq":"4"}`},
		{"GET", "/v1/nodes", "", "nodes", `{}`},
		{"GET", "/v1/get/%22%5C/%00,%C3%A9", "", "get", `{"counter":"\"\\","ids":["\u0000","é"]}`},
	} {
		if w := send(h, c.method, c.target, c.body); w.Code != 200 || w.Body.String() != `{"a":1}` || r.endpoint != c.endpoint || r.body != c.asked {
			t.Errorf("%s %s: %d %s, asked %s %s, want %s %s", c.method, c.target, w.Code, w.Body, r.endpoint, r.body, c.endpoint, c.asked)
		}
	}
}

// docs/contract.md: "errors are `application/problem+json` with `status`, `title`, `detail`, `type`".
func TestProblems(t *testing.T) {
	r := &recorder{}
	h := handler(t, Options{Ask: r.ask, Packs: &log{}})
	for code := range titles {
		r.reply = query.Reply{Code: code, Message: "so it is", Data: []byte(`{"uncertain":true}`)}
		w := send(h, "GET", "/v1/nodes", "")
		var p problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != code || p.Status != code || p.Detail != "so it is" || p.Title == "" || !strings.HasPrefix(p.Type, page) ||
			w.Header().Get("Content-Type") != "application/problem+json" || string(p.More) != `{"uncertain":true}` {
			t.Errorf("%d: %d %s (%v)", code, w.Code, w.Body, err)
		}
	}
	for target, want := range map[string]string{
		"GET /v1/get/post/42?nope=1":            `400 "nope" is not a parameter of /v1/get/{counter}/{ids}`,
		"GET /v1/get/post/42?columns=a&columns": "400 columns is given 2 times",
		"GET /v1/feed/7?limit=x":                `400 limit: "x" is not a whole number`,
		"GET /v1/feed/7?limit=-1":               `400 limit: "-1" is not a whole number`,
		"GET /v1/feed/7?partial=maybe":          `400 partial: "maybe" is not true or false`,
		"GET /v1/feed/7?a=%zz":                  "400 the query cannot be read",
		"POST /v1/feed/7":                       "405 /v1/feed/7 takes GET",
		"DELETE /v1/events":                     "405 /v1/events takes POST",
		"GET /v1/nope":                          `404 there is no "/v1/nope" here`,
	} {
		method, path, _ := strings.Cut(target, " ")
		w := send(h, method, path, "")
		var p problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || !strings.HasPrefix(fmt.Sprint(w.Code, " ", p.Detail), want) {
			t.Errorf("%s: %d %s, want %s", target, w.Code, w.Body, want)
		}
	}
}

// docs/contract.md: "`ETag` is the position and `If-None-Match` answers 304 when nothing asked has changed".
// The twin of given is a list of all answers: nothing that has changed is ever 304.
func TestETag(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	r := &recorder{}
	h := handler(t, Options{Ask: r.ask})
	value := map[string]int{}
	type was struct {
		tag  string
		said int
	}
	given := map[string][]was{}
	said := map[string]int{}     // by target and tag
	changed := map[string]bool{} // the same, where a tag stands for two answers
	unchanged := 0
	for step := range 5000 {
		position := step / 2 // a rebuild or a repair changes an answer, and the log has not gone on
		target := "/v1/get/post/" + strconv.Itoa(random.IntN(20))
		if random.IntN(3) == 0 {
			value[target] = random.IntN(3)
		}
		r.reply = query.Reply{Code: 200, Data: fmt.Appendf(nil, `{"rows":[%d],"as_of":"%d"}`, value[target], position)}
		var has was
		if before := given[target]; len(before) > 0 {
			has = before[random.IntN(len(before))]
		}
		w := send(h, "GET", target, "", "If-None-Match", `"x", W/`+has.tag)
		switch {
		case w.Code == 304 && (has.tag == "" || has.said != value[target] || w.Header().Get("ETag") != has.tag || w.Body.Len() > 0):
			t.Fatalf("at %d: 304 of %+v, it is %d", position, has, value[target])
		case w.Code == 304:
			unchanged++
		case has.tag != "" && has.said == value[target] && !changed[target+has.tag]:
			t.Fatalf("at %d: a whole answer, and it is what %s said", position, has.tag)
		case w.Header().Get("ETag") != `"`+strconv.Itoa(position)+`"`:
			t.Fatalf("at %d: ETag %s", position, w.Header().Get("ETag"))
		default:
			tag := w.Header().Get("ETag")
			given[target] = append(given[target], was{tag, value[target]})
			before, known := said[target+tag]
			if known && before != value[target] {
				changed[target+tag] = true
			}
			said[target+tag] = value[target]
		}
	}
	if unchanged < 500 || len(changed) == 0 {
		t.Errorf("%d answers were unchanged, %d changed at their position: nothing was tested", unchanged, len(changed))
	}
	if w := send(handler(t, Options{Ask: r.ask}), "GET", "/v1/get/post/1", "", "If-None-Match", `"2499"`); w.Code != 200 {
		t.Error("a node that gave no answer of that position says that it is the same")
	}
	r.reply.Data = []byte(`{"rows":[1],"as_of":"7","degraded":true,"missing":["1"]}`)
	if w := send(h, "GET", "/v1/get/post/1", ""); w.Header().Get("ETag") != "" {
		t.Error("a degraded answer has an ETag")
	}
}

func TestGivenIsBounded(t *testing.T) {
	g := newGiven()
	r := httptest.NewRequest("GET", "/v1/get/post/1", http.NoBody)
	for i := range 3 * givenMax {
		g.since(r, strconv.Itoa(i), []byte(`{"as_of":"1"}`))
	}
	if n := len(g.now) + len(g.before); n > 2*givenMax {
		t.Errorf("%d answers are remembered", n)
	}
}

// docs/contract.md: "`POST /v1/events` (NDJSON; `Idempotency-Key`; answer
// `{"stored":n,"position":"…","refused":[{"line":3,"reason":"…"}]}` after the acknowledgement)".
func TestEvents(t *testing.T) {
	l := &log{ids: map[string]int{}}
	h := handler(t, Options{Ask: (&recorder{}).ask, Packs: l})
	body := "{\"n\":1}\r\n\nbad\n{\"n\":2}"
	for range 2 { // the same again is stored once
		w := send(h, "POST", "/v1/events", body, "Idempotency-Key", "k")
		want := `{"stored":2,"position":"` + pipeline.EndOf(1).String() + `","refused":[{"line":3,"reason":"field","detail":"it is bad"}]}` + "\n"
		if w.Code != 200 || w.Body.String() != want {
			t.Errorf("%d %s, want %s", w.Code, w.Body, want)
		}
	}
	if len(l.packs) != 1 || string(l.packs[0]) != "{\"n\":1}\n{\"n\":2}\n" {
		t.Errorf("stored %q", l.packs)
	}
	send(h, "POST", "/v1/events", `{"n":3}`, "Idempotency-Key", "k")
	send(h, "POST", "/v1/events", `{"n":3}`)
	send(h, "POST", "/v1/events", `{"n":3}`)
	if len(l.packs) != 4 {
		t.Errorf("%d packs: other lines with the same key, and lines without one, are others", len(l.packs))
	}
}

// Nothing is lost between packs, and a failure says how far it came.
func TestManyEvents(t *testing.T) {
	const many = 3*pipeline.PackMax + 5
	body := strings.Repeat("{}\n", many) + strings.Repeat("bad\n", refusedMax+7)
	l := &log{ids: map[string]int{}}
	h := handler(t, Options{Ask: (&recorder{}).ask, Packs: l})
	var answer taken
	w := send(h, "POST", "/v1/events", body)
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Stored != many || len(answer.Refused) != refusedMax || answer.More != 7 {
		t.Errorf("stored %d, refused %d and %d (%v)", answer.Stored, len(answer.Refused), answer.More, err)
	}
	lines := 0
	for _, pack := range l.packs {
		n := strings.Count(string(pack), "\n")
		if lines += n; n > pipeline.PackMax {
			t.Errorf("a pack of %d lines", n)
		}
	}
	if lines != many {
		t.Errorf("%d lines of %d are stored", lines, many)
	}
	for err, says := range map[error]string{
		pipeline.ErrFull: "takes no events", pipeline.ErrNoLog: "no log", errors.New("cut off"): "same Idempotency-Key",
	} {
		l = &log{ids: map[string]int{}, takes: 1, err: err}
		w = send(handler(t, Options{Ask: (&recorder{}).ask, Packs: l}), "POST", "/v1/events", body)
		var p problem
		if e := json.Unmarshal(w.Body.Bytes(), &p); e != nil || w.Code != 503 || !strings.Contains(p.Detail, says) || !strings.Contains(string(p.More), `"stored":1024`) {
			t.Errorf("%v: %d %s (%v)", err, w.Code, w.Body, e)
		}
	}
	if w := send(h, "POST", "/v1/events", strings.Repeat("x", eventsMax+1)); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a body above the bound: %d", w.Code)
	}
	if w := send(h, "POST", "/v1/events", "{}", "Idempotency-Key", strings.Repeat("k", keyMax+1)); w.Code != 400 {
		t.Errorf("a key above the bound: %d", w.Code)
	}
}

// docs/http.md: "Which lines it may send": none of another type is stored.
func TestTokens(t *testing.T) {
	roles := map[string]Role{"sends": one{send: "like"}, "asks": one{ask: "get"}, "reads": one{ask: "read"}}
	l := &log{ids: map[string]int{}}
	h := handler(t, Options{Ask: (&recorder{reply: query.Reply{Code: 200}}).ask, Packs: l, Role: func(token string) Role { return roles[token] }})
	for _, c := range []struct {
		token                           string
		get, read, events, explain, nil int
	}{
		{"sends", 403, 403, 200, 403, 404},
		{"asks", 200, 403, 403, 403, 404},
		{"reads", 403, 200, 403, 403, 404},
		{"another", 401, 401, 401, 401, 401},
		{"", 401, 401, 401, 401, 401},
	} {
		for target, want := range map[string]int{
			"GET /v1/get/post/1": c.get, "POST /v1/read": c.read, "POST /v1/events": c.events, "GET /v1/explain/post.like/1": c.explain,
			"GET /v1/gte/post/1": c.nil, "GET /v1/openapi.json": 200,
		} {
			method, path, _ := strings.Cut(target, " ")
			if w := send(h, method, path, "like 1", "Authorization", "Bearer "+c.token); w.Code != want {
				t.Errorf("%q: %s is %d, want %d", c.token, target, w.Code, want)
			}
		}
	}
	w := send(h, "POST", "/v1/events", "like 1\nadjust 2\nlike 3\n", "Authorization", "Bearer sends")
	if !strings.Contains(w.Body.String(), `"stored":2,`) || !strings.Contains(w.Body.String(), `[{"line":2,"reason":"role","detail":"this token may not send adjust"}]`) ||
		string(l.packs[len(l.packs)-1]) != "like 1\nlike 3\n" {
		t.Errorf("%s, stored %q", w.Body, l.packs)
	}
}

// docs/http.md: "422", "gzip", "a byte order mark". A body that is no event stores nothing.
func TestBodies(t *testing.T) {
	packed := func(text string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write([]byte(text))
		_ = w.Close()
		return b.String()
	}
	const good, none = `{"stored":2,`, `{"stored":0,"refused":[`
	for _, c := range []struct {
		body, encoding string
		code           int
		says           string
	}{
		{"like 1\nlike 2", "", 200, good},
		{"\ufefflike 1\nlike 2", "identity", 200, good},
		{packed("like 1\nlike 2"), "gzip", 200, good},
		{packed("\ufefflike 1\n") + packed("like 2\n"), "GZip", 200, good},
		{"bad\nbad", "", 422, none},
		{"\n \t\r\n", "", 422, none},
		{"\v\n", "", 200, `{"stored":1,`}, // no blank to operators: the line is theirs to judge
		{packed("bad"), "gzip", 422, none},
		{"like 1", "gzip", 400, "the body is not gzip"},
		{packed("like 1")[:20], "gzip", 400, "the body cannot be read"},
		{"like 1", "br", 415, "gzip is"},
		{strings.Repeat(packed(""), eventsMax/20), "gzip", 413, ""},
		{packed(strings.Repeat("x", eventsMax+1)), "gzip", 413, ""},
	} {
		l := &log{ids: map[string]int{}}
		w := send(handler(t, Options{Ask: (&recorder{}).ask, Packs: l}), "POST", "/v1/events", c.body, "Content-Encoding", c.encoding)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.says) || (len(l.packs) > 0) != (c.code == 200) {
			t.Errorf("%.20q, %q: %d %s, stored %q", c.body, c.encoding, w.Code, w.Body, l.packs)
		}
		if len(l.packs) > 0 && c.says == good && string(l.packs[0]) != "like 1\nlike 2\n" {
			t.Errorf("%.20q: stored %q", c.body, l.packs)
		}
	}
}

// A page from elsewhere, in a browser that can reach the door, must not change anything.
func TestCrossOrigin(t *testing.T) {
	h := handler(t, Options{Ask: (&recorder{reply: query.Reply{Code: 200}}).ask, Packs: &log{ids: map[string]int{}}})
	for _, target := range []string{"/v1/events", "/v1/read"} {
		if w := send(h, "POST", target, "{}", "Sec-Fetch-Site", "cross-site"); w.Code != 403 || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
	if w := send(h, "GET", "/v1/nodes", "", "Origin", "https://elsewhere.example"); w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Error("a page from elsewhere may read answers")
	}
}

// The document has every route, and an example of each reply that its schema allows.
func TestOpenAPI(t *testing.T) {
	h := handler(t, Options{Ask: (&recorder{}).ask, Version: "1.2.3"})
	var document struct {
		OpenAPI string `json:"openapi"`
		Paths   map[string]map[string]struct {
			Parameters []struct {
				Name, In string
				Required bool
			}
			Responses map[string]any
		}
	}
	if err := json.NewDecoder(send(h, "GET", "/v1/openapi.json", "").Body).Decode(&document); err != nil || document.OpenAPI != "3.1.0" {
		t.Fatal(document.OpenAPI, err)
	}
	if len(document.Paths) != len(routes)+1 {
		t.Errorf("%d paths of %d", len(document.Paths), len(routes)+1)
	}
	for _, r := range routes {
		operation := document.Paths[r.pattern][strings.ToLower(r.method)]
		for _, part := range strings.Split(r.pattern, "{")[1:] {
			name, _, _ := strings.Cut(part, "}")
			if !slices.ContainsFunc(operation.Parameters, func(p struct {
				Name, In string
				Required bool
			},
			) bool {
				return p.Name == name && p.In == "path" && p.Required
			}) {
				t.Errorf("%s: %s is not described", r.pattern, name)
			}
		}
		if operation.Responses["200"] == nil || operation.Responses["503"] == nil {
			t.Errorf("%s: %v", r.pattern, operation.Responses)
		}
	}
}

// Whatever stands in a path or a query, the request is JSON and says the same.
func FuzzTranslation(f *testing.F) {
	f.Add("/v1/get/post/42,43", "columns=like&member=a,b")
	f.Add("/v1/feed/%22", "limit=5&before=%00")
	f.Add("/v1/explain/a%2Fb/\\", "partial=true")
	r := &recorder{reply: query.Reply{Code: 200}}
	h, err := Handler(Options{Ask: r.ask})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, path, query string) {
		u, err := url.Parse("http://h" + path)
		if err != nil || !strings.HasPrefix(path, "/v1/") {
			return
		}
		u.RawQuery = query
		r.body = ""
		w := httptest.NewRecorder()
		h.ServeHTTP(w, (&http.Request{Method: "GET", URL: u, Header: http.Header{}, Host: "h", Body: http.NoBody}).WithContext(t.Context()))
		if r.body == "" {
			return
		}
		var fields map[string]any
		decoder := json.NewDecoder(strings.NewReader(r.body))
		decoder.UseNumber()
		if err := decoder.Decode(&fields); err != nil {
			t.Fatalf("%s?%s: %s: %v", path, query, r.body, err)
		}
		given, _ := url.ParseQuery(query)
		for name, values := range given {
			if strings.TrimLeft(values[0], "0") != strings.TrimLeft(said(fields[name]), "0") && !strings.ContainsRune(values[0], '\uFFFD') && strings.ToValidUTF8(values[0], "") == values[0] {
				t.Errorf("%s?%s: %s, %s is %q", path, query, r.body, name, said(fields[name]))
			}
		}
	})
}

// said is a field as a query has it.
func said(field any) string {
	switch field := field.(type) {
	case []any:
		var all []string
		for _, one := range field {
			all = append(all, said(one))
		}
		return strings.Join(all, ",")
	}
	return fmt.Sprint(field)
}
