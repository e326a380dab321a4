package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
	"github.com/tidemark-io/tidemark/query/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// room is a service on a server of its own, and a client without any of our
// packages: a bare connection.
type room struct {
	t       testing.TB
	reader  *querytest.Reader
	events  *querytest.Log
	service *service.Service
	serving *nats.Conn // the service's
	nc      *nats.Conn // the client's
	metrics *prometheus.Registry
	log     *bytes.Buffer
}

func start(t testing.TB, change ...func(*service.Options, *server.Options)) *room {
	t.Helper()
	r := &room{t: t, reader: querytest.NewReader(querytest.Schema(t)), events: new(querytest.Log), metrics: prometheus.NewRegistry(), log: new(bytes.Buffer)}
	o := service.Options{
		Schema:     querytest.Schema(t),
		Reader:     r.reader,
		Publisher:  r.events,
		Stats:      func() map[string]any { return map[string]any{"tidemark_events_total": 12} },
		Shards:     64,
		Version:    "v1.2.3-rc.1",
		Registerer: r.metrics,
		Logger:     slog.New(slog.NewTextHandler(r.log, nil)),
		Metadata:   map[string]string{"node": "a"},
	}
	var so server.Options
	for _, c := range change {
		c(&o, &so)
	}
	r.reader.Use(o.Schema)
	s := querytest.Server(t, &so)
	r.serving = querytest.Connect(t, s)
	var err error
	if r.service, err = service.New(r.serving, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := r.service.Stop(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stop: %v", err)
		}
	})
	r.nc = querytest.Connect(t, s)
	return r
}

// ask sends a body as it stands and gives the reply as it comes: a body, or
// "code text" of an error.
func (r *room) ask(subject, body string) string {
	r.t.Helper()
	reply, err := r.nc.Request(subject, []byte(body), time.Minute)
	if err != nil {
		r.t.Errorf("%s %.100s: %v", subject, body, err)
		return ""
	}
	if code := reply.Header.Get("Nats-Service-Error-Code"); code != "" {
		return code + " " + reply.Header.Get("Nats-Service-Error")
	}
	return string(reply.Data)
}

func (r *room) get(body, want string) {
	r.t.Helper()
	r.answers("get", body, want)
}

func (r *room) answers(endpoint, body, want string) {
	r.t.Helper()
	if got := r.ask("tidemark."+endpoint, body); got != want {
		r.t.Errorf("%s %.200s\ngot  %.1000s\nwant %.1000s", endpoint, body, got, want)
	}
}

func (r *room) refused(body, code string, words ...string) {
	r.t.Helper()
	r.refuses("get", body, code, words...)
}

// refuses: the error starts with the code and has all the words.
func (r *room) refuses(endpoint, body, code string, words ...string) {
	r.t.Helper()
	got := r.ask("tidemark."+endpoint, body)
	ok := strings.HasPrefix(got, code+" ")
	for _, word := range words {
		ok = ok && strings.Contains(got, word)
	}
	if !ok {
		r.t.Errorf("%s %.200s\ngot  %.1000s\nwant %s … %q", endpoint, body, got, code, words)
	}
}

const (
	repost pipeline.Column = iota
	comment
	like
	_
	userPost
)

// docs/contract.md: "`{"counter":"post","ids":["42",43],"columns":["like"]}` …
// `{"rows":[{"id":"42","like":3}],"as_of":"…"}`, rows in the order asked, one for every
// id"
func TestGet(t *testing.T) {
	r := start(t)
	r.reader.Set(0, like, 42, 3)
	r.reader.Set(0, comment, 42, 1<<40)
	r.reader.Set(0, like, 43, 12)
	r.reader.Apply(9<<10 | 1023)

	r.get(`{"counter":"post","ids":["42",43],"columns":["like"]}`,
		`{"rows":[{"id":"42","like":3},{"id":"43","like":12}],"as_of":"10239"}`)
	r.get(`{"ids":[43,"42",43],"columns":["like"],"counter":"post"}`,
		`{"rows":[{"id":"43","like":12},{"id":"42","like":3},{"id":"43","like":12}],"as_of":"10239"}`)
	r.get(`{"counter":"post","ids":[]}`, `{"rows":[],"as_of":"10239"}`)
	r.get(`{"counter":"post","ids":[18446744073709551615,9007199254740993,"007","\u0037"],"columns":["cntan"]}`,
		`{"rows":[{"id":"18446744073709551615","cntan":0},{"id":"9007199254740993","cntan":0},`+
			`{"id":"7","cntan":0},{"id":"7","cntan":0}],"as_of":"10239"}`)

	// "`columns` optional": all that are shown, by name.
	all := `{"rows":[{"id":"42","repost":0,"comment":1099511627776,"like":3}],"as_of":"10239"}`
	r.get(`{"counter":"post","ids":[42]}`, all)
	r.get(`{"counter":"post","ids":[42],"columns":null,"min_position":null,"timeout_ms":null}`, all)
	r.get(`{"counter":"post","ids":[42],"columns":[]}`, all)

	// A name or a suffix: the reply's key is the word that was asked.
	r.get(`{"counter":"post","ids":[42],"columns":["cntan","comment","like","like"]}`,
		`{"rows":[{"id":"42","cntan":3,"comment":1099511627776,"like":3}],"as_of":"10239"}`)

	// `42.cntcm`: a suffix says which counter.
	r.get(`{"ids":[42],"columns":["cntcm"]}`, `{"rows":[{"id":"42","cntcm":1099511627776}],"as_of":"10239"}`)
	r.get(`{"counter":"","ids":[42],"columns":["cntcm","cntan"]}`,
		`{"rows":[{"id":"42","cntcm":1099511627776,"cntan":3}],"as_of":"10239"}`)

	// Unknown fields are ignored, whatever they hold.
	r.get(`{"x":{"ids":[0],"y":["}",{}]},"counter":"post","ids":[42],"columns":["like"],"z":1.5e-3,"é":"\ud83d\ude00"}`,
		`{"rows":[{"id":"42","like":3}],"as_of":"10239"}`)
}

func TestPanicIsAnAnswer(t *testing.T) {
	r := start(t)
	r.reader.Before = func() { panic("a bug") }
	r.refused(`{"counter":"post","ids":[1]}`, "500", "internal error")
	r.reader.Before = nil
	r.get(`{"counter":"post","ids":[1],"columns":["like"]}`, `{"rows":[{"id":"1","like":0}],"as_of":"0"}`)
	r.reader.Fail(errors.New("disk on fire"))
	r.refused(`{"counter":"post","ids":[1]}`, "500", "disk on fire")
	if log := r.log.String(); !strings.Contains(log, "a bug") || !strings.Contains(log, "querytest") {
		t.Errorf("no stack in the log: %s", log)
	}
}

func decode(t *testing.T, text string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// docs/contract.md: "400 with what is wrong and where, 404 unknown counter or column, 413
// too many", "0 is not an id", "At most 10,000 ids (or users) a request."
func TestRefusals(t *testing.T) {
	r := start(t)
	for _, body := range []string{
		``, `x`, `[1]`, `null`, `{"counter":"post","ids":[1,]}`, `{"counter":"post","ids":[1]}x`,
		`{"counter":"post" "ids":[1]}`, "{\"counter\":\"\xff\",\"ids\":[1]}", `{"counter":"post","ids":[1],"x":{"a":}}`,
	} {
		r.refused(body, "400", "the body is not the JSON object it should be: ")
	}
	for _, id := range []string{`0`, `"0"`, `-1`, `1.0`, `"1e3"`, `18446744073709551616`, `""`, `" 1"`, `"a"`, `null`, `[1]`} {
		r.refused(`{"counter":"post","ids":[1,"2",3,`+id+`]}`, "400", "ids[3]: "+id+" is not an id")
	}
	long := strings.Repeat("9", 500)
	r.refused(`{"counter":"post","ids":["`+long+`"]}`, "400", `ids[0]: "`+long[:47]+"… is not an id")
	for _, test := range []struct {
		body, code string
		words      []string
	}{
		{`{}`, "400", []string{"ids is missing"}},
		{`{"counter":"post","ids":null}`, "400", []string{"ids is missing"}},
		{`{"ids":[1]}`, "400", []string{"counter is missing", "post, user"}},
		{`{"counter":7,"ids":[1]}`, "400", []string{"counter: 7 is not a name"}},
		{`{"counter":"post","ids":5}`, "400", []string{"ids: 5 is not a list"}},
		{`{"counter":"post","ids":[1],"ids":[2]}`, "400", []string{"ids is given twice"}},
		{`{"counter":"post","ids":[1],"columns":"like"}`, "400", []string{`columns: "like" is not a list`}},
		{`{"counter":"post","ids":[1],"columns":["like",3]}`, "400", []string{"columns[1]: 3 is not a name"}},
		{`{"counter":"post","ids":[1],"min_position":-1}`, "400", []string{"min_position: -1 is not a position"}},
		{`{"counter":"post","ids":[1],"timeout_ms":"soon"}`, "400", []string{`timeout_ms: "soon" is not`}},
		{`{"counter":"post","ids":[1],"partial":0}`, "400", []string{"partial: 0 is not true or false"}},
		{`{"ids":[1],"columns":["cntcm","cntup"]}`, "400", []string{`columns[1]: "cntup" is of counter user, those before it of post`}},
		{`{"counter":"po\nst","ids":[1]}`, "404", []string{`counter "po`}},
		{
			`{"counter":"post","ids":[1],"columns":["like","likes"]}`, "404",
			[]string{`columns[1]: counter post has no column "likes"`, "repost (cntrn), comment (cntcm), like (cntan)"},
		},
		{`{"counter":"post","ids":[1],"columns":["cntup"]}`, "404", []string{`no column "cntup"`}},
		{`{"ids":[1],"columns":["like"]}`, "404", []string{`suffix "like" is unknown`, "cntrn, cntcm, cntan, cntup"}},
		// A hidden column is none, nor is a counter of which all columns are hidden.
		{`{"counter":"post","ids":[1],"columns":["old"]}`, "404", []string{`no column "old"`}},
		{`{"ids":[1],"columns":["cntold"]}`, "404", []string{`suffix "cntold" is unknown`}},
		{`{"counter":"gone","ids":[1]}`, "404", []string{`counter "gone" is unknown; there are: post, user, unread`}},
		{`{"ids":[1],"columns":["cntgo"]}`, "404", []string{`suffix "cntgo" is unknown`}},
		{`{"counter":"post","ids":[` + strings.Repeat(`1,`, 10_000) + `1]}`, "413", []string{"more than 10000"}},
	} {
		r.refused(test.body, test.code, test.words...)
	}
	if got := r.ask("tidemark.get", `{"counter":"post","ids":[`+strings.Repeat(`1,`, 9_999)+`1]}`); strings.Count(got, `"id":`) != 10_000 {
		t.Errorf("10,000 ids: %.100s", got)
	}
}

// An answer that does not fit into a message says what to ask for instead.
func TestAnswersThatDoNotFit(t *testing.T) {
	r := start(t, func(_ *service.Options, so *server.Options) { so.MaxPayload = 4096 })
	for i := range uint64(500) {
		r.reader.Follow(7, i+1_000_000_000)
	}
	ids := strings.Repeat("1,", 999) + "1"
	r.refused(`{"counter":"post","ids":[`+ids+`]}`, "413", "max_payload is 4096", "ask for fewer ids or columns")
	r.refuses("unread", `{"users":[`+ids+`]}`, "413", "max_payload is 4096", "ask for fewer users at once")
	r.refuses("following", `{"user":7,"limit":500}`, "413", "max_payload is 4096; pass a lower limit")
	if got := r.ask("tidemark.following", `{"user":7,"limit":200}`); !strings.Contains(got, `"next"`) {
		t.Errorf("%.100s", got)
	}
}

// docs/contract.md: "An answer that is not whole says so: `"degraded": true` and
// `"missing": ["43"]`; never a silent zero." "Requests may carry `"partial": false`: 503
// rather than an answer with `missing`."
func TestDegraded(t *testing.T) {
	r := startSets(t)
	r.reader.Set(0, like, 42, 3)
	r.reader.AddMembers(like, 42, id(7))
	r.reader.Cool(42)
	for _, stopped := range []uint64{43, 7} {
		r.reader.StopShardOf(stopped)
	}
	r.reader.Follow(8, 43)
	r.reader.Follow(8, 9)
	r.reader.Post(43, 101, 1024)
	r.reader.Post(9, 102, 2048)
	r.reader.Apply(5000)
	const missing = `"as_of":"5000","degraded":true,"missing":["43"]}`
	user := `{"user":"42","feed":0,"counts":{"comment":0,"mention":0},"channels":{},"dots":{}}`
	for _, test := range []struct{ endpoint, body, answer, refused string }{
		{
			"get", `{"counter":"post","ids":[42,43,44,43],"columns":["like"]`,
			`{"rows":[{"id":"42","like":3},{"id":"43"},{"id":"44","like":0},{"id":"43"}],` + missing, "2 of 4 cannot be read now, among them 43",
		},
		{
			"get", `{"counter":"post","ids":[43,42],"columns":["like"],"member":7`,
			`{"rows":[{"id":"43"},{"id":"42","like":3,"has":{"like":true}}],` + missing, "1 of 2 cannot be read now, among them 43",
		},
		{"get", `{"counter":"post","ids":[43]`, `{"rows":[{"id":"43"}],` + missing, "43, or a part of it, cannot be read now"},
		{"unread", `{"users":[42,43]`, `{"users":[` + user + `,{"user":"43"}],` + missing, "1 of 2"},
		{"following", `{"user":43`, `{"users":[],` + missing, "43"},
		{"followers", `{"user":43`, `{"users":[],` + missing, "43"},
		{"members", `{"column":"post.like","id":"43"`, `{"members":[],` + missing, "43"},
		{"inbox", `{"user":"43"`, `{"items":[],` + missing, "43"},
		{"feed", `{"user":8`, `{"posts":[{"post":"102","author":"9","position":"2048"}],` + strings.Replace(missing, "43", "8", 1), "8"},
		{"feed", `{"user":7`, `{"posts":[],` + strings.Replace(missing, "43", "7", 1), "7"},
	} {
		r.answers(test.endpoint, test.body+`,"partial":true}`, test.answer)
		r.answers(test.endpoint, test.body+`}`, test.answer)
		r.refuses(test.endpoint, test.body+`,"partial":false}`, "503", "not whole, and partial is false: ", test.refused)
	}
	r.get(`{"counter":"post","ids":[42],"columns":["like"],"partial":false}`, `{"rows":[{"id":"42","like":3}],"as_of":"5000"}`)
	r.answers("read", `{"user":7,"what":["feed"],"partial":false}`, `{"position":"1024"}`) // cannot be partial
	r.reader.StopAll()
	r.answers("unread", `{"users":[42,44]}`, `{"users":[{"user":"42"},{"user":"44"}],"as_of":"5000","degraded":true,"missing":["42","44"]}`)
	r.get(`{"counter":"post","ids":[42,44]}`, `{"rows":[{"id":"42"},{"id":"44"}],"as_of":"5000","degraded":true,"missing":["42","44"]}`)
}

// everywhere has a body, but for its end, for each endpoint.
var everywhere = map[string]string{
	"get": `{"counter":"post","ids":[42]`, "unread": `{"users":[7]`, "read": `{"user":7,"what":["feed"]`, "feed": `{"user":7`,
	"following": `{"user":7`, "followers": `{"user":7`, "members": `{"column":"post.like","id":42`, "inbox": `{"user":7`, "page": `{"ids":[42],"viewer":7`,
	"stats": `{"x":1`, "schema": `{"x":1`, "slowlog": `{"x":1`, "nodes": `{"x":1`, "shards": `{"x":1`,
}

// docs/contract.md: "Any request may carry `"min_position":"…"`: answer only with that
// much of the log applied, or fail after `timeout_ms` (default 2,000)." "504
// `min_position` not reached". "… or `"min_seq": 6` instead of `min_position`: the
// sequence that JetStream's acknowledgement gave (of a pack: all of it)."
func TestMinPosition(t *testing.T) {
	r := startSets(t, withCluster(&view{}), func(o *service.Options, _ *server.Options) { o.Limits.TimeoutMax = 20 * time.Millisecond })
	r.reader.Apply(pipeline.EndOf(6))
	r.reader.Cool(42)
	const get = `{"counter":"post","ids":[42],"columns":["like"],`
	for _, reached := range []string{
		`"min_position":"7167"`, `"min_position":7166`, `"min_seq":6`, `"min_seq":"006"`, `"min_seq":1`, `"min_seq":null`, `"min_seq":6,"min_position":null`,
	} {
		r.get(get+reached+`,"timeout_ms":0}`, `{"rows":[{"id":"42","like":0}],"as_of":"7167"}`)
	}
	r.refused(get+`"min_position":"7168","timeout_ms":5}`, "504", "min_position 7168", "within 5 ms", "applied is 7167")
	r.refused(get+`"min_position":"7168","timeout_ms":0}`, "504", "within 0 ms")
	r.refused(get+`"min_position":"7168"}`, "504", "within 20 ms") // no more than TimeoutMax
	r.refused(get+`"min_position":"7168","timeout_ms":18446744073709551615}`, "504", "within 20 ms")
	for name, body := range everywhere {
		r.refuses(name, body+`,"min_seq":7,"timeout_ms":1}`, "504", "min_seq 7 was not reached within 1 ms, applied is 7167")
		r.refuses(name, body+`,"min_seq":6,"min_position":6}`, "400", "min_position and min_seq are both given; give one of them")
	}
	for _, seq := range []string{`0`, `"0"`, `-1`, `1.5`, `1e3`, `"x"`, `true`, `[6]`, `9007199254740992`, `18446744073709551616`} {
		r.refused(get+`"min_seq":`+seq+`}`, "400", "min_seq: "+seq+" is not a sequence of the log")
	}
	for _, within := range []int{0, 1022} { // a part of a pack is not all of it
		r.reader.Apply(pipeline.At(7, within))
		r.refused(get+`"min_seq":7,"timeout_ms":1}`, "504", fmt.Sprint("applied is ", pipeline.At(7, within)))
	}
}

// "503 not ready", and "reads off": what is answered from counters is 503 with words; what
// tells how the node is goes on, and so does tidemark.read. docs/degradation.md:
// "producers: an error instead of the acknowledgement": the other way round.
func TestNotReadyAndRefused(t *testing.T) {
	var loading, reads, writes atomic.Bool
	r := startSets(t, withCluster(&view{}), func(o *service.Options, _ *server.Options) {
		o.Ready = func() error {
			if loading.Load() {
				return errors.New("still loading:\nshard 7 of 64")
			}
			return nil
		}
		o.Refuses = func(write bool) error {
			switch {
			case write && writes.Load():
				return errors.New("writes are refused")
			case !write && reads.Load():
				return errors.New("reads are off")
			}
			return nil
		}
	})
	check := func(query, write string) {
		t.Helper()
		for name, body := range everywhere {
			want := query
			switch name {
			case "read":
				want = write
			case "stats", "slowlog", "nodes", "shards":
				want = ""
			case "schema": // tells nothing of counters
				if !loading.Load() {
					want = ""
				}
			}
			if got := r.ask("tidemark."+name, body+"}"); want == "" && !strings.HasPrefix(got, "{") || want != "" && got != "503 "+want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
	}
	check("", "")
	reads.Store(true)
	check("reads are off", "")
	reads.Store(false)
	writes.Store(true)
	check("", "writes are refused; nothing was stored")
	loading.Store(true)
	check("not ready: still loading: shard 7 of 64", "not ready: still loading: shard 7 of 64; nothing was stored")
	// The log is first to know.
	loading.Store(false)
	writes.Store(false)
	r.events.Before = func(context.Context) error {
		writes.Store(true)
		return fmt.Errorf("no room: %w", pipeline.ErrFull)
	}
	r.refuses("read", `{"user":"7","what":["feed"]}`, "503", "writes are refused; nothing was stored")
}

// Those who wait for a position shut out others who would have to, and nobody
// else: large requests, pages and reads find their lanes empty, however many
// of the same kind wait.
func TestBusy(t *testing.T) {
	const requests = 8
	r := start(t, func(o *service.Options, _ *server.Options) { o.Limits.Requests = requests })
	var waiting sync.WaitGroup
	wait := func(n int, endpoint, body, position, want string) {
		for range n {
			waiting.Go(func() {
				if got := r.ask("tidemark."+endpoint, body+`,"min_position":"`+position+`","timeout_ms":30000}`); !strings.HasPrefix(got, want) {
					t.Errorf("%s that waited: %.100s", endpoint, got)
				}
			})
		}
	}
	large := `{"counter":"post","columns":["like"],"ids":[` + strings.Repeat("1,", 1000) + `1]`
	padding := strings.Repeat(" ", 24_000)
	wait(2, "feed", `{"user":7`, "1", `{"posts":[],`)
	wait(2, "get", large, "1", `{"rows":[`)
	wait(1, "read", `{"user":7,"what":["feed"]`, "1", `{"position":`)
	wait(3, "stats", `{"x":1`, "1", `{"tidemark_`)
	wait(2, "get", `{"counter":"post","ids":[1]`+padding, "2", `{"rows":[`)
	e2e.Until(t, "all wait", func() bool { return r.reader.Waiting() == requests+2 })

	r.refused(`{"counter":"post","ids":[1],"min_position":"1"}`, "503", "busy: 8 requests that wait for their min_position are in flight")
	r.refuses("read", `{"user":7,"what":["feed"],"min_position":"1"}`, "503", "busy: 8 requests that wait", "nothing was stored")
	r.refused(`{"counter":"post","ids":[1],"min_position":"1"`+padding+`}`, "503", "busy: 2 large requests that wait")
	for endpoint, body := range map[string]string{"get": large, "feed": `{"user":7`, "following": `{"user":7`, "read": `{"user":7,"what":["feed"]`} {
		if got := r.ask("tidemark."+endpoint, body+`}`); !strings.HasPrefix(got, `{"`) {
			t.Errorf("%s: %.100s", endpoint, got)
		}
	}
	r.get(`{"counter":"post","ids":[1],"columns":["like"]`+padding+`}`, `{"rows":[{"id":"1","like":0}],"as_of":"0"}`)
	// The large ones and the long ones together are more than their lane has places
	// for: they do not come back to it at once, nor beside one that was answered just now.
	e2e.Until(t, "only those who wait are left", func() bool { return r.figure("tidemark_query_in_flight") == requests+2 })
	r.reader.Apply(1)
	e2e.Until(t, "only the long ones are left", func() bool { return r.figure("tidemark_query_in_flight") == 2 })
	r.reader.Apply(2)
	waiting.Wait()
}

// docs/contract.md: "NATS micro service `tidemark` (so `nats micro ls/info/stats` show
// it)". What it counts itself says the same.
func TestMicroVerbs(t *testing.T) {
	r := start(t)
	r.refused(`{"counter":"none","ids":[1]}`, "404")
	r.refused(`{"counter":"post","ids":[1],"min_position":"1","timeout_ms":1}`, "504")
	var ping micro.Ping
	decode(t, r.ask("$SRV.PING.tidemark", ""), &ping)
	if ping.Name != "tidemark" || ping.Version != "1.2.3-rc.1" || ping.Metadata["node"] != "a" {
		t.Errorf("ping: %+v", ping)
	}
	var info micro.Info
	decode(t, r.ask("$SRV.INFO.tidemark", ""), &info)
	var subjects []string
	for _, e := range info.Endpoints {
		subjects = append(subjects, strings.TrimPrefix(e.Subject, "tidemark."))
		if e.Metadata["description"] == "" || e.Metadata["request"] == "" || e.Metadata["reply"] == "" || e.QueueGroup != "q" {
			t.Errorf("info says too little: %+v", e)
		}
	}
	if fmt.Sprint(subjects) != "[get unread read feed following followers members inbox page stats slowlog schema nodes shards]" || info.Description == "" {
		t.Errorf("info: %v %q", subjects, info.Description)
	}
	// A request is counted once it is answered.
	e2e.Until(t, "both are in the statistics", func() bool {
		var stats micro.Stats
		decode(t, r.ask("$SRV.STATS.tidemark", ""), &stats)
		return stats.Endpoints[0].NumRequests == 2 && stats.Endpoints[0].NumErrors == 2 && stats.Endpoints[0].ProcessingTime > 0 && string(stats.Endpoints[0].Data) == `{"answers":{"404":1,"504":1}}`
	})
	e2e.Until(t, "both are counted", func() bool {
		return r.figure("tidemark_query_seconds") == 2 && r.figure("tidemark_query_in_flight") == 0
	})
}

// docs/queries.md: "Discovery has a bound of its own." Whoever floods it keeps nobody from
// being answered, also where the answers would go to a stream.
func TestDiscoveryFlood(t *testing.T) {
	r := start(t)
	for range 300_000 {
		if err := r.nc.PublishRequest("$SRV.STATS", "_INBOX.of.nobody", nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		r.get(`{"counter":"post","ids":[]}`, `{"rows":[],"as_of":"0"}`)
	}
	var ping micro.Ping
	decode(t, r.ask("$SRV.PING.tidemark", ""), &ping)
	e2e.Until(t, "one that names no inbox is counted", func() bool {
		if err := r.nc.PublishRequest("$SRV.STATS", "events.like", nil); err != nil { // lost while as many wait as may
			t.Fatal(err)
		}
		return r.figure("tidemark_query_misdirected_total") > 0
	})
}

// docs/contract.md: "`tidemark.stats` | `{}` | the node's figures, the same as /metrics
// holds". docs/queries.md: "`set`: what the column's set has: `ids`, `pairs` or `tokens`"
func TestStatsAndSchema(t *testing.T) {
	r := startSets(t)
	for _, body := range []string{``, `{}`, `{"x":[]}`} {
		r.answers("stats", body, `{"tidemark_events_total":12}`)
	}
	r.refuses("stats", `{`, "400")
	r.answers("schema", ``, `{"counters":{`+
		`"item":{"columns":[{"name":"fan","suffix":"cntfan","bits":8,"max":63,"default":0,"set":"ids"},`+
		`{"name":"liked","bits":8,"max":63,"default":0,"set":"pairs"},`+
		`{"name":"view","bits":8,"max":63,"default":0,"set":"tokens","keep_s":86400},`+
		`{"name":"plain","bits":8,"max":63,"default":0},{"name":"balance","bits":8,"max":8,"default":0,"signed":true}]},`+
		`"post":{"columns":[{"name":"repost","suffix":"cntrn","bits":16,"max":63,"default":0},`+
		`{"name":"comment","suffix":"cntcm","bits":16,"max":63,"default":0},`+
		`{"name":"like","suffix":"cntan","bits":8,"max":63,"default":0,"set":"ids"}]},`+
		`"unread":{"columns":[{"name":"comment","suffix":"cntuc","bits":8,"max":63,"default":0,"keep_s":7776000,"items":1000},`+
		`{"name":"mention","bits":8,"max":63,"default":0}]},`+
		`"user":{"columns":[{"name":"post","suffix":"cntup","bits":16,"max":63,"default":0},`+
		`{"name":"score","bits":16,"max":63,"default":100}]}},"shards":64,"version":"v1.2.3-rc.1"}`)
}

func TestNewRefusesAndLeavesNothing(t *testing.T) {
	nc := querytest.Connect(t, querytest.Server(t, &server.Options{}))
	if _, err := service.New(nc, service.Options{}); err == nil {
		t.Error("a service without a reader")
	}
	// Any version starts; the micro protocol sees a semantic one.
	for _, version := range []string{"", "dev", "v0.1.0", "1.0.0-rc.1+5", "(devel)", "1.0.0-01"} {
		s, err := service.New(nc, service.Options{Schema: querytest.Schema(t), Reader: querytest.NewReader(querytest.Schema(t)), Version: version})
		if err != nil {
			t.Fatalf("version %q: %v", version, err)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A node may publish anything; who may only ask must not have it store answers
// as events, or in the bucket.
func TestAnswersGoToNoStream(t *testing.T) {
	r := start(t)
	everything, err := r.nc.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	const request = `{"counter":"post","ids":[1]}`
	replies := []string{"$KV.TIDEMARK.router", "$JS.API.STREAM.DELETE.EVENTS", "events.like", "deadletter.json", "tidemark.read", "tidemark.internal.x"}
	for _, reply := range replies {
		for _, body := range []string{request, "", strings.Repeat(" ", 1_000) + request} { // errors, too, are answers
			if err := r.nc.PublishRequest("tidemark.get", reply, []byte(body)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := r.ask("tidemark.get", request); !strings.HasPrefix(got, "{") { // comes behind all of them
		t.Errorf("an honest request: %s", got)
	}
	for n, _, _ := everything.Pending(); n > 0; n-- {
		m, err := everything.NextMsg(time.Minute)
		if err != nil || !strings.HasPrefix(m.Subject, "_INBOX.") && m.Subject != "tidemark.get" {
			t.Errorf("%+v %v", m, err)
		}
	}
	if got := r.figure("tidemark_query_misdirected_total"); got != float64(3*len(replies)) {
		t.Errorf("%v are counted", got)
	}
	if lines := strings.Count(r.log.String(), "is dropped"); lines != 1 {
		t.Errorf("the log has %d lines of it", lines)
	}
}
