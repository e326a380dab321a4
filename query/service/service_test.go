package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
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

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
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
	r := &room{t: t, reader: querytest.NewReader(), events: new(querytest.Log), metrics: prometheus.NewRegistry(), log: new(bytes.Buffer)}
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

// docs/contract.md: "Requests accept them as JSON numbers or as decimal strings; replies
// always give them as strings"
func TestIDs(t *testing.T) {
	r := start(t)
	r.reader.Set(1, userPost, 1<<64-1, 7)
	r.get(`{"counter":"user","ids":[18446744073709551615,"18446744073709551615",9007199254740993],"columns":["post"]}`,
		`{"rows":[{"id":"18446744073709551615","post":7},{"id":"18446744073709551615","post":7},{"id":"9007199254740993","post":0}],"as_of":"0"}`)
	r.get(`{"counter":"user","ids":["007","\u0037"],"columns":["post"]}`,
		`{"rows":[{"id":"7","post":0},{"id":"7","post":0}],"as_of":"0"}`)
}

// docs/contract.md: "0 is not an id." "400 with what is wrong and where"
func TestRefusedIDs(t *testing.T) {
	r := start(t)
	for _, id := range []string{
		`0`, `"0"`, `-1`, `"-1"`, `1.0`, `1e3`, `"1e3"`, `18446744073709551616`, `"18446744073709551616"`,
		`99999999999999999999999`, `""`, `" 1"`, `"+1"`, `"a"`, `null`, `true`, `{}`, `[1]`, `"` + strings.Repeat("9", 500) + `"`,
	} {
		shown := id
		if len(shown) > 48 {
			shown = shown[:48] + "…"
		}
		r.refused(`{"counter":"post","ids":[1,"2",3,`+id+`]}`, "400", "ids[3]: "+shown+" is not an id")
	}
}

// docs/contract.md: "400 with what is wrong and where, 404 unknown counter or column, 413
// too many"
func TestRefusals(t *testing.T) {
	r := start(t)
	for _, body := range []string{
		``, `x`, `{`, `[1]`, `"ids"`, `null`, `{"counter":"post","ids":[10 2]}`, `{"counter":"post","ids":[1,]}`,
		`{"counter":"post","ids":[1]}x`, `{"counter":"post" "ids":[1]}`, "{\"counter\":\"\xff\",\"ids\":[1]}",
		`{"counter":"post","ids":[NaN]}`, `{"counter":"post","ids":[1],"x":{"a":}}`,
	} {
		r.refused(body, "400", "the body is not the JSON object it should be: ")
	}
	r.refused(`{}`, "400", "ids is missing")
	r.refused(`{"counter":"post"}`, "400", "ids is missing")
	r.refused(`{"counter":"post","ids":null}`, "400", "ids is missing")
	r.refused(`{"ids":[1]}`, "400", "counter is missing", "post, user")
	r.refused(`{"counter":7,"ids":[1]}`, "400", "counter: 7 is not a name")
	r.refused(`{"counter":"post","ids":5}`, "400", "ids: 5 is not a list")
	r.refused(`{"counter":"post","ids":[1],"ids":[2]}`, "400", "ids is given twice")
	r.refused(`{"counter":"post","ids":[1],"columns":"like"}`, "400", `columns: "like" is not a list`)
	r.refused(`{"counter":"post","ids":[1],"columns":["like",3]}`, "400", "columns[1]: 3 is not a name")
	r.refused(`{"counter":"post","ids":[1],"min_position":-1}`, "400", "min_position: -1 is not a position")
	r.refused(`{"counter":"post","ids":[1],"timeout_ms":"soon"}`, "400", `timeout_ms: "soon" is not`)
	r.refused(`{"ids":[1],"columns":["cntcm","cntup"]}`, "400", `columns[1]: "cntup" is of counter user, those before it of post`)

	r.refused(`{"counter":"posts","ids":[1]}`, "404", `counter "posts" is unknown`, "post, user")
	r.refused(`{"counter":"po\nst","ids":[1]}`, "404", `counter "po`)
	r.refused(`{"counter":"post","ids":[1],"columns":["like","likes"]}`, "404", `columns[1]: counter post has no column "likes"`, "repost (cntrn), comment (cntcm), like (cntan)")
	r.refused(`{"counter":"post","ids":[1],"columns":["cntup"]}`, "404", `no column "cntup"`)
	r.refused(`{"ids":[1],"columns":["like"]}`, "404", `suffix "like" is unknown`, "cntrn, cntcm, cntan, cntup")
	// A hidden column is none.
	r.refused(`{"counter":"post","ids":[1],"columns":["old"]}`, "404", `no column "old"`)
	r.refused(`{"ids":[1],"columns":["cntold"]}`, "404", `suffix "cntold" is unknown`)
	// Nor is a counter of which all columns are hidden.
	r.refused(`{"counter":"gone","ids":[1]}`, "404", `counter "gone" is unknown; there are: post, user, unread`)
	r.refused(`{"counter":"gone","ids":[1],"columns":["old"]}`, "404", `counter "gone" is unknown`)
	r.refused(`{"ids":[1],"columns":["cntgo"]}`, "404", `suffix "cntgo" is unknown`)
}

// docs/contract.md: "At most 10,000 ids (or users) a request." "413 too many"
func TestTooManyIDs(t *testing.T) {
	r := start(t)
	ids := strings.TrimSuffix(strings.Repeat(`"18446744073709551615",`, 10_000), ",")
	if got := r.ask("tidemark.get", `{"counter":"post","ids":[`+ids+`]}`); strings.Count(got, `"id":`) != 10_000 {
		t.Errorf("10,000 ids: %.100s", got)
	}
	r.refused(`{"counter":"post","ids":[`+ids+`,1]}`, "413", "more than 10000")
}

func TestReplyLargerThanMaxPayload(t *testing.T) {
	r := start(t, func(_ *service.Options, so *server.Options) { so.MaxPayload = 4096 })
	ids := strings.TrimSuffix(strings.Repeat("1,", 1000), ",")
	r.refused(`{"counter":"post","ids":[`+ids+`]}`, "413", "max_payload is 4096", "ask for fewer ids or columns")
	r.get(`{"counter":"post","ids":[1],"columns":["like"]}`, `{"rows":[{"id":"1","like":0}],"as_of":"0"}`)
}

// docs/contract.md: "`default` (default 0) is answered for a row that does not exist.
// Values are integers, never negative in an answer"
func TestDefaultAndNegative(t *testing.T) {
	r := start(t)
	const score = userPost + 1
	r.reader.Set(1, score, 2, 0)
	r.reader.Set(1, score, 3, -4)
	r.get(`{"counter":"user","ids":[1,2,3],"columns":["score"]}`,
		`{"rows":[{"id":"1","score":100},{"id":"2","score":0},{"id":"3","score":0}],"as_of":"0"}`)
}

// docs/contract.md: "An answer that is not whole says so: `"degraded": true` and
// `"missing": ["43"]`; never a silent zero."
func TestDegraded(t *testing.T) {
	r := start(t)
	r.reader.Set(0, like, 42, 3)
	r.reader.StopShardOf(43)
	r.get(`{"counter":"post","ids":[42,43,44,43],"columns":["like"]}`,
		`{"rows":[{"id":"42","like":3},{"id":"43"},{"id":"44","like":0},{"id":"43"}],"as_of":"0","degraded":true,"missing":["43"]}`)
}

// docs/contract.md: "Requests may carry `"partial": false`: 503 rather than an answer
// with `missing`."
func TestPartialIsFalse(t *testing.T) {
	r := start(t)
	r.reader.Set(0, like, 42, 3)
	r.reader.StopShardOf(43)
	r.reader.Follow(7, 43)
	r.reader.Post(43, 101, 1024)
	r.get(`{"counter":"post","ids":[42],"columns":["like"],"partial":false}`, `{"rows":[{"id":"42","like":3}],"as_of":"0"}`)
	r.refused(`{"counter":"post","ids":[42,43],"partial":false}`, "503", "not whole, and partial is false: 1 of 2 cannot be read now, among them 43")
	r.refused(`{"counter":"post","ids":[43],"partial":false}`, "503", "partial is false: 43, or a part of it, cannot be read now")
	r.refuses("unread", `{"partial":false,"users":[42,43]}`, "503", "1 of 2", "43")
	r.refuses("feed", `{"user":7,"partial":false}`, "503", "not whole", "7")
	r.refuses("following", `{"user":43,"partial":false}`, "503", "not whole", "43")
	r.refuses("followers", `{"user":43,"partial":false}`, "503", "not whole", "43")
	r.refused(`{"counter":"post","ids":[43],"partial":0}`, "400", "partial: 0 is not true or false")
	for _, more := range []string{`true`, `null`} {
		r.get(`{"counter":"post","ids":[43],"partial":`+more+`}`, `{"rows":[{"id":"43"}],"as_of":"0","degraded":true,"missing":["43"]}`)
	}
	// Those that cannot be partial take it too.
	r.answers("read", `{"user":7,"what":["feed"],"partial":false}`, `{"position":"1024"}`)
	if got := r.ask("tidemark.stats", `{"partial":false}`); !strings.HasPrefix(got, "{") {
		t.Error(got)
	}
}

// docs/contract.md: "Any request may carry `"min_position":"…"`: answer only with that
// much of the log applied, or fail after `timeout_ms` (default 2,000)." "504
// `min_position` not reached"
func TestMinPosition(t *testing.T) {
	r := start(t, func(o *service.Options, _ *server.Options) { o.Limits.TimeoutMax = 3 * time.Second })
	r.reader.Apply(1000)
	r.get(`{"counter":"post","ids":[1],"columns":["like"],"min_position":"1000"}`, `{"rows":[{"id":"1","like":0}],"as_of":"1000"}`)
	r.get(`{"counter":"post","ids":[1],"columns":["like"],"min_position":999}`, `{"rows":[{"id":"1","like":0}],"as_of":"1000"}`)

	since := time.Now()
	r.refused(`{"counter":"post","ids":[1],"min_position":"1001","timeout_ms":50}`, "504", "min_position 1001", "within 50 ms", "applied is 1000")
	r.refused(`{"counter":"post","ids":[1],"min_position":"1001","timeout_ms":0}`, "504", "within 0 ms")
	if d := time.Since(since); d < 50*time.Millisecond || d >= 2*time.Second { // the default
		t.Errorf("50 ms took %v", d)
	}
	since = time.Now()
	r.refused(`{"counter":"post","ids":[1],"min_position":"18446744073709551615"}`, "504", "within 2000 ms")
	if d := time.Since(since); d < 2*time.Second {
		t.Errorf("the default of 2,000 ms took %v", d)
	}

	// One that waits holds up nobody, and is answered once its position is there.
	inbox := r.nc.NewInbox()
	sub, err := r.nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	late := `{"counter":"post","ids":[1],"columns":["like"],"min_position":"2000"}`
	if err := r.nc.PublishRequest("tidemark.get", inbox, []byte(late)); err != nil {
		t.Fatal(err)
	}
	r.get(`{"counter":"post","ids":[1],"columns":["like"]}`, `{"rows":[{"id":"1","like":0}],"as_of":"1000"}`)
	r.reader.Set(0, like, 1, 8)
	r.reader.Apply(2047)
	m, err := sub.NextMsg(time.Minute)
	if err != nil || string(m.Data) != `{"rows":[{"id":"1","like":8}],"as_of":"2047"}` {
		t.Errorf("the one that waited: %v %v", m, err)
	}
	// The other endpoints wait, too.
	if got := r.ask("tidemark.stats", `{"min_position":"9999","timeout_ms":1}`); !strings.HasPrefix(got, "504 ") {
		t.Error(got)
	}
}

func TestTimeoutIsBounded(t *testing.T) {
	r := start(t, func(o *service.Options, _ *server.Options) { o.Limits.TimeoutMax = 20 * time.Millisecond })
	r.refused(`{"counter":"post","ids":[1],"min_position":"1","timeout_ms":18446744073709551615}`, "504", "within 20 ms")
	r.refused(`{"counter":"post","ids":[1],"min_position":"1"}`, "504", "within 20 ms")
}

// "503 not ready"
func TestNotReady(t *testing.T) {
	var loading atomic.Bool
	loading.Store(true)
	r := start(t, func(o *service.Options, _ *server.Options) {
		o.Ready = func() error {
			if loading.Load() {
				return errors.New("still loading:\nshard 7 of 64")
			}
			return nil
		}
	})
	r.refused(`{"counter":"post","ids":[1]}`, "503", "not ready: still loading: shard 7 of 64")
	r.refuses("read", `{"user":7,"what":["feed"]}`, "503", "not ready: still loading: shard 7 of 64; nothing was stored")
	if got := r.ask("tidemark.stats", `{}`); got != `{"tidemark_events_total":12}` {
		t.Errorf("stats while loading: %s", got)
	}
	loading.Store(false)
	r.get(`{"counter":"post","ids":[1],"columns":["like"]}`, `{"rows":[{"id":"1","like":0}],"as_of":"0"}`)
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
	until(t, "all wait", func() bool { return r.reader.Waiting() == requests+2 })

	r.refused(`{"counter":"post","ids":[1],"min_position":"1"}`, "503", "busy: 8 requests that wait for their min_position are in flight")
	r.refuses("read", `{"user":7,"what":["feed"],"min_position":"1"}`, "503", "busy: 8 requests that wait", "nothing was stored")
	r.refused(`{"counter":"post","ids":[1],"min_position":"1"`+padding+`}`, "503", "busy: 2 large requests that wait")
	r.get(`{"counter":"post","ids":[1],"columns":["like"]}`, `{"rows":[{"id":"1","like":0}],"as_of":"0"}`)
	r.answers("feed", `{"user":7}`, `{"posts":[],"as_of":"0"}`)
	r.answers("following", `{"user":7}`, `{"users":[],"as_of":"0"}`)
	r.answers("read", `{"user":7,"what":["feed"]}`, `{"position":"1024"}`)
	if got := r.ask("tidemark.get", large+`}`); !strings.HasPrefix(got, `{"rows":[`) {
		t.Errorf("a large request: %.100s", got)
	}
	if got := r.ask("tidemark.get", `{"counter":"post","ids":[1]`+padding+`}`); !strings.HasPrefix(got, `{"rows":[`) {
		t.Errorf("a long request: %.100s", got)
	}
	// The large ones and the long ones together are more than their lane has places
	// for: they do not come back to it at once, nor beside one that was answered just now.
	until(t, "only those who wait are left", func() bool { return r.figure("tidemark_query_in_flight") == requests+2 })
	r.reader.Apply(1)
	until(t, "only the long ones are left", func() bool { return r.figure("tidemark_query_in_flight") == 2 })
	r.reader.Apply(2)
	waiting.Wait()
	r.get(`{"counter":"post","ids":[1],"columns":["like"],"min_position":"1"}`, `{"rows":[{"id":"1","like":0}],"as_of":"2"}`)
}

func TestPanicIsAnAnswer(t *testing.T) {
	r := start(t)
	r.reader.Before = func() { panic("a bug") }
	r.refused(`{"counter":"post","ids":[1]}`, "500", "internal error")
	r.reader.Before = nil
	r.get(`{"counter":"post","ids":[1],"columns":["like"]}`, `{"rows":[{"id":"1","like":0}],"as_of":"0"}`)
	r.reader.Fail(errors.New("disk on fire"))
	r.refused(`{"counter":"post","ids":[1]}`, "500", "disk on fire")
	if log := r.log.String(); !strings.Contains(log, "a bug") || !strings.Contains(log, "querytest.go") {
		t.Errorf("no stack in the log: %s", log)
	}
}

// docs/contract.md: "NATS micro service `tidemark` (so `nats micro ls/info/stats` show
// it)"
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
		subjects = append(subjects, e.Subject)
		if e.Metadata["description"] == "" || e.Metadata["request"] == "" || e.Metadata["reply"] == "" || e.QueueGroup != "q" {
			t.Errorf("info says too little: %+v", e)
		}
	}
	if fmt.Sprint(subjects) != "[tidemark.get tidemark.unread tidemark.read tidemark.feed tidemark.following tidemark.followers tidemark.members tidemark.page tidemark.stats tidemark.slowlog tidemark.schema tidemark.nodes tidemark.shards]" || info.Description == "" {
		t.Errorf("info: %v %q", subjects, info.Description)
	}
	var stats micro.Stats
	decode(t, r.ask("$SRV.STATS.tidemark", ""), &stats)
	if stats.Endpoints[0].NumRequests != 2 || string(stats.Endpoints[0].Data) != `{"answers":{"404":1,"504":1}}` {
		t.Errorf("stats: %+v %s", stats.Endpoints[0], stats.Endpoints[0].Data)
	}
}

func decode(t *testing.T, text string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// docs/contract.md: "`tidemark.stats` | `{}` | the node's figures, the same as /metrics
// holds"
func TestStatsAndSchema(t *testing.T) {
	r := start(t)
	for _, body := range []string{``, `{}`, `{"x":[]}`} {
		if got := r.ask("tidemark.stats", body); got != `{"tidemark_events_total":12}` {
			t.Errorf("stats: %s", got)
		}
	}
	if got := r.ask("tidemark.stats", `{`); !strings.HasPrefix(got, "400 ") {
		t.Error(got)
	}
	if got, want := r.ask("tidemark.schema", ``), `{"counters":{"post":{"columns":[`+
		`{"name":"repost","suffix":"cntrn","bits":16,"max":63,"default":0},`+
		`{"name":"comment","suffix":"cntcm","bits":16,"max":63,"default":0},`+
		`{"name":"like","suffix":"cntan","bits":8,"max":63,"default":0}]},`+
		`"unread":{"columns":[{"name":"comment","suffix":"cntuc","bits":8,"max":63,"default":0},`+
		`{"name":"mention","bits":8,"max":63,"default":0}]},`+
		`"user":{"columns":[{"name":"post","suffix":"cntup","bits":16,"max":63,"default":0},`+
		`{"name":"score","bits":16,"max":63,"default":100}]}},"shards":64,"version":"v1.2.3-rc.1"}`; got != want {
		t.Errorf("schema: %s", got)
	}
}

func TestMetrics(t *testing.T) {
	r := start(t)
	r.get(`{"counter":"post","ids":[1,2],"columns":["like"]}`, `{"rows":[{"id":"1","like":0},{"id":"2","like":0}],"as_of":"0"}`)
	r.refused(`x`, "400")
	// The client has its answer a moment before it is counted.
	found := map[string]uint64{}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		clear(found)
		families, err := r.metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				key := f.GetName()
				for _, l := range m.GetLabel() {
					key += " " + l.GetValue()
				}
				found[key] = m.GetHistogram().GetSampleCount()
			}
		}
		if found["tidemark_query_seconds 400 get"] == 1 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if found["tidemark_query_seconds 200 get"] != 1 || found["tidemark_query_seconds 400 get"] != 1 || found["tidemark_query_ids"] != 1 {
		t.Errorf("%v", found)
	}
	if _, ok := found["tidemark_query_in_flight"]; !ok {
		t.Error("no gauge of requests in flight")
	}
}

// Stop answers everything that has arrived.
func TestStopDrains(t *testing.T) {
	r := start(t)
	r.reader.Before = func() { time.Sleep(time.Millisecond) }
	inbox := r.nc.NewInbox()
	sub, err := r.nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	const n = 50
	for i := range n {
		body := `{"counter":"post","ids":[1]}`
		if i%10 == 0 {
			body = `{"counter":"post","ids":[1],"min_position":"5"}`
		}
		if err := r.nc.PublishRequest("tidemark.get", inbox, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.nc.Flush(); err != nil { // the server has them
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, func() { r.reader.Apply(5) })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := r.service.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		m, err := sub.NextMsg(time.Minute)
		if err != nil || len(m.Data) == 0 {
			t.Fatalf("answer %d of %d: %v %v", i, n, m, err)
		}
	}
	if _, err := r.nc.Request("tidemark.get", nil, time.Minute); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("after Stop: %v", err)
	}
	if err := r.service.Stop(ctx); err != nil {
		t.Errorf("a second Stop: %v", err)
	}
}

// A stop ends in order also while somebody waits for a position that is not
// reached: a node that mends a lost tail applies nothing meanwhile.
func TestStopEndsWaits(t *testing.T) {
	r := start(t)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		r.refused(`{"counter":"post","ids":[1],"min_position":"5","timeout_ms":15000}`, "503", "stopping", "min_position 5")
	})
	time.Sleep(50 * time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.service.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
	waiting.Wait()
}

// When Stop may take no longer, those that wait are told so.
func TestStopAtItsDeadline(t *testing.T) {
	r := start(t)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		r.refused(`{"counter":"post","ids":[1],"min_position":"5"}`, "503", "stopping", "min_position 5")
	})
	time.Sleep(50 * time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := r.service.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stop: %v", err)
	}
	waiting.Wait()
}

func TestNewRefusesAndLeavesNothing(t *testing.T) {
	nc := querytest.Connect(t, querytest.Server(t, &server.Options{}))
	if _, err := service.New(nc, service.Options{}); err == nil {
		t.Error("a service without a reader")
	}
	// Any version starts; the micro protocol sees a semantic one.
	for _, version := range []string{"", "dev", "v0.1.0", "1.0.0-rc.1+5", "(devel)", "1.0.0-01"} {
		s, err := service.New(nc, service.Options{Schema: querytest.Schema(t), Reader: querytest.NewReader(), Version: version})
		if err != nil {
			t.Fatalf("version %q: %v", version, err)
		}
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkOverNATS(b *testing.B) {
	for _, n := range []int{1, 500} {
		b.Run(fmt.Sprintf("ids=%d", n), func(b *testing.B) {
			r := start(b, func(o *service.Options, _ *server.Options) { o.Reader = flat{} })
			var body strings.Builder
			body.WriteString(`{"counter":"post","columns":["like"],"ids":[`)
			for i := range n {
				if i > 0 {
					body.WriteByte(',')
				}
				body.WriteString(`"` + strconv.Itoa(1_000_000_000_000_000+i) + `"`)
			}
			body.WriteString(`]}`)
			request := []byte(body.String())
			b.SetParallelism(16)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := r.nc.Request("tidemark.get", request, time.Minute); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "ids/s")
		})
	}
}

// What an endpoint costs besides its Reader, in the subscription's goroutine
// (unread of one) and in one of its own.
func BenchmarkEndpointOverNATS(b *testing.B) {
	for _, c := range [][2]string{
		{"unread", `{"users":["1000000000000000"]}`},
		{"unread", `{"users":[` + strings.Repeat("1000000000000000,", 99) + `1]}`},
		{"feed", `{"user":"1000000000000000"}`},
		{"read", `{"user":"1000000000000000","what":["feed"],"wait":true}`},
	} {
		b.Run(fmt.Sprintf("%s/bytes=%d", c[0], len(c[1])), func(b *testing.B) {
			r := start(b, func(o *service.Options, _ *server.Options) {
				o.Reader = flat{}
				o.Publisher = querytest.Publish(func(context.Context, []byte) (pipeline.Position, error) { return 1, nil })
			})
			b.SetParallelism(16)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := r.nc.Request("tidemark."+c[0], []byte(c[1]), time.Minute); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// flat answers at once: what remains is the service and NATS.
type flat struct{ query.Reader }

func (flat) Applied() pipeline.Position                                 { return 1 }
func (flat) WaitApplied(ctx context.Context, _ pipeline.Position) error { return ctx.Err() }
func (flat) Rows(_ context.Context, _ int, columns []pipeline.Column, ids []uint64, rows *query.Rows, _ bool) error {
	rows.Reset(len(ids), len(columns))
	for i := range ids {
		rows.Exist[i] = true
		rows.Values[i] = int64(i)
	}
	return nil
}

func (flat) Unread(_ context.Context, users []uint64, _ []string, out *query.Unreads, _ bool) error {
	out.Reset(len(users), 2, nil, nil)
	return nil
}

func (flat) Feed(_ context.Context, _ uint64, _ pipeline.Position, limit int, out *query.FeedPage, _ bool) error {
	out.Reset()
	for i := range limit {
		out.Posts = append(out.Posts, query.FeedPost{Post: 1e15, Author: 1e15, Position: pipeline.Position(i + 1)})
	}
	return nil
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
	if got := r.ask("tidemark.get", request); !strings.HasPrefix(got, "{") { // behind all of them
		t.Errorf("an honest request: %s", got)
	}
	for {
		m, err := everything.NextMsg(200 * time.Millisecond)
		if err != nil {
			break
		}
		if !strings.HasPrefix(m.Subject, "_INBOX.") && m.Subject != "tidemark.get" {
			t.Errorf("%s: %s", m.Subject, m.Data)
		}
	}
	if got := r.figure("tidemark_query_misdirected_total"); got != float64(3*len(replies)) {
		t.Errorf("%v are counted", got)
	}
	if lines := strings.Count(r.log.String(), "is dropped"); lines != 1 {
		t.Errorf("the log has %d lines of it", lines)
	}
}
