package spread_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
	"github.com/tidemark-io/tidemark/query/service"
	"github.com/tidemark-io/tidemark/query/spread"
)

// serviceTimeout is long: what is answered in part because a slow machine had not
// answered the rest by then proves nothing.
const serviceTimeout = 30 * time.Second

// answering is a service that answers from a reader on a server of its own.
func answering(t *testing.T, w *querytest.World, reader query.Reader, log *querytest.Log) func(subject, body string) string {
	t.Helper()
	s := querytest.Server(t, &server.Options{})
	svc, err := service.New(querytest.Connect(t, s), service.Options{
		Schema: w.Schema, Shards: w.Shards, Reader: reader, Publisher: log, Logger: quiet,
		LogEnd: func(context.Context) (uint64, error) { return now.Sequence() + 10, nil },
		Limits: service.Limits{Timeout: serviceTimeout},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := svc.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	nc := querytest.Connect(t, s)
	return func(subject, body string) string {
		t.Helper()
		reply, err := nc.Request("tidemark."+subject, []byte(body), 2*serviceTimeout)
		if err != nil {
			t.Errorf("%s %.100s: %v", subject, body, err)
			return ""
		}
		return said(reply)
	}
}

func said(reply *nats.Msg) string {
	if code := reply.Header.Get("Nats-Service-Error-Code"); code != "" {
		return code + " " + reply.Header.Get("Nats-Service-Error")
	}
	return string(reply.Data)
}

// Whoever asks over NATS is told the same by a node that holds nothing, by one that
// holds a part, and by one that holds all.
func TestServiceOfNodes(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	w := community(t, r, 300)
	c := newCluster(t, w, &server.Options{})
	h := c.node("a", even)
	h.Cool(idIn(2, 0))
	c.node("b", odd)
	thin := c.open()
	part := &cluster{t: t, own: querytest.NewHolder(w, "own", even)}
	part.view.Store(c.View())
	partly, err := spread.New(querytest.Connect(t, c.server), spread.Options{Schema: w.Schema, Directory: part})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { partly.Close() })
	alone := &cluster{t: t, own: querytest.NewHolder(w, "own", all)}
	alone.view.Store(&spread.View{Holders: make([][]string, shards), Whole: true})
	lonely, err := spread.New(querytest.Connect(t, c.server), spread.Options{Schema: w.Schema, Directory: alone})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lonely.Close() })
	asks := map[string]func(string, string) string{
		"one": answering(t, w, w.Reader(), nil), "thin": answering(t, w, thin, new(querytest.Log)), "part": answering(t, w, partly, nil), "alone": answering(t, w, lonely, nil),
	}
	same := func(subject, body string) {
		t.Helper()
		want := asks["one"](subject, body)
		for name, ask := range asks {
			if got := ask(subject, body); !sameJSON(got, want) {
				t.Errorf("%s %s %.200s\ngot  %.600s\nwant %.600s", name, subject, body, got, want)
			}
		}
	}
	var many []string
	for range 3000 {
		many = append(many, fmt.Sprint(1+r.Uint64N(400)))
	}
	for range 20 {
		same("get", fmt.Sprintf(`{"counter":"user","ids":[%d,%d,%d]}`, 1+r.Uint64N(300), 1+r.Uint64N(300), 2*now))
		same("unread", fmt.Sprintf(`{"users":["%d",%d]}`, 1+r.Uint64N(300), 1+r.Uint64N(300)))
		same("unread", fmt.Sprintf(`{"users":["%d"],"channels":["zoo","red","new"],"partial":false}`, 1+r.Uint64N(300)))
		same("feed", fmt.Sprintf(`{"user":%d,"limit":9,"min_position":"%d"}`, 1+r.Uint64N(300), now))
		same("following", fmt.Sprintf(`{"user":%d,"limit":9}`, 1+r.Uint64N(300)))
		same("followers", fmt.Sprintf(`{"user":%d,"limit":9,"after":20}`, 1+r.Uint64N(300)))
	}
	same("get", fmt.Sprintf(`{"counter":"post","ids":[%d],"min_position":"%d"}`, idIn(2, 0), now))
	same("get", fmt.Sprintf(`{"counter":"post","ids":[%s]}`, strings.Join(many, ",")))
	same("unread", fmt.Sprintf(`{"users":[%s]}`, strings.Join(many, ",")))
	same("get", `{"counter":"pots","ids":[1]}`)

	// A position that the log has and no node, and one that is far past the log's end.
	for name, ask := range asks {
		var got string
		for ms := 100; ms <= 6400 && !strings.HasPrefix(got, "504 min_position"); ms *= 4 { // a slow machine needs longer to hear of them all
			got = ask("get", fmt.Sprintf(`{"counter":"post","ids":[1,2,3,4],"min_position":"%d","timeout_ms":%d}`, now+5, ms))
		}
		if !strings.HasPrefix(got, "504 min_position") {
			t.Errorf("%s: %s", name, got)
		}
		if got := ask("get", fmt.Sprintf(`{"counter":"post","ids":[1],"min_position":"%d"}`, now*100)); !strings.HasPrefix(got, "400 ") {
			t.Errorf("%s: %s", name, got)
		}
	}

	// One node goes away: its ids are missing, the others answered; with partial
	// false that is an error.
	c.stop("b")
	e, o := idIn(0, 0), idIn(1, 0)
	for _, name := range []string{"thin", "part"} {
		ask := asks[name]
		if got := ask("get", fmt.Sprintf(`{"counter":"post","ids":[%d,%d],"columns":["like"]}`, e, o)); !strings.Contains(got, fmt.Sprintf(`"degraded":true,"missing":["%d"]`, o)) || !strings.Contains(got, fmt.Sprintf(`{"id":"%d","like":`, e)) {
			t.Errorf("%s: %s", name, got)
		}
		for subject, body := range map[string]string{"get": `{"counter":"post","ids":[%d]`, "unread": `{"users":[%d]`, "feed": `{"user":%d`, "following": `{"user":%d`, "followers": `{"user":%d`} {
			if got := ask(subject, fmt.Sprintf(body, o)+`,"partial":false}`); !strings.HasPrefix(got, "503 not whole, and partial is false") || !strings.Contains(got, fmt.Sprint(o)) {
				t.Errorf("%s %s: %s", name, subject, got)
			}
			if got := ask(subject, fmt.Sprintf(body, o)+`}`); !strings.Contains(got, fmt.Sprintf(`"missing":["%d"]`, o)) {
				t.Errorf("%s %s: %s", name, subject, got)
			}
		}
	}
	// None is left.
	c.view.Store(&spread.View{Epoch: 99, Holders: make([][]string, shards)})
	// docs/queries.md: "504 with the body `{"position":"…"}`: stored, but not visible in
	// time", also where no node is left that could show it.
	if got := asks["thin"]("read", `{"user":7,"what":["feed"],"wait":true}`); !strings.HasPrefix(got, "504 the read is stored at position 1024, but cannot be seen now: no node that holds the user answers; do not send it again") {
		t.Error(got)
	}
	if got := asks["thin"]("get", `{"counter":"post","ids":[1]}`); got != "503 not ready: no node that holds counters is known; ask again later" {
		t.Error(got)
	}
}

func sameJSON(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return a == b
	}
	return reflect.DeepEqual(x, y)
}

// Requests that wait for other nodes hold up nobody who needs none.
func TestFarHoldsUpNobody(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(5, 5)), 300)
	c := newCluster(t, w, &server.Options{})
	h := querytest.NewHolder(w, "a", odd)
	release := make(chan struct{})
	h.Before = func(context.Context) error {
		<-release
		return nil
	}
	c.serve("a", h)
	c.list("a", odd)
	c.own = querytest.NewHolder(w, "own", even)
	c.open()
	ask := answering(t, w, c.reader, nil)
	done := make(chan string, 1)
	go func() { done <- ask("get", fmt.Sprintf(`{"counter":"post","ids":[%d],"timeout_ms":9000}`, idIn(1, 0))) }()
	for range 50 {
		if got := ask("get", fmt.Sprintf(`{"counter":"post","ids":[%d]}`, idIn(0, 0))); !strings.HasPrefix(got, `{"rows"`) || strings.Contains(got, "missing") {
			t.Error(got)
		}
	}
	select {
	case got := <-done:
		t.Errorf("it is answered before its node answers: %s", got)
	default:
	}
	close(release)
	if got := <-done; strings.Contains(got, "missing") {
		t.Error(got)
	}
}

// "min_position": a process that has not come as far asks others that have, rather
// than have the client wait until it has itself.
func TestServiceThatIsBehind(t *testing.T) {
	t.Parallel()
	w := community(t, rand.New(rand.NewPCG(5, 5)), 30)
	c := newCluster(t, w, &server.Options{})
	c.node("a", all)
	own := querytest.NewHolder(w, "own", all)
	own.Lag(now - 1024)
	c.own = own
	lags := *c.View()
	lags.Epoch++
	lags.OwnBehind = slices.Repeat([]bool{true}, shards)
	c.view.Store(&lags)
	ask, one := answering(t, w, c.open(), new(querytest.Log)), answering(t, w, w.Reader(), nil)
	reached := fmt.Sprintf(`,"min_position":"%d"}`, now)
	for _, q := range [][2]string{
		{"get", `{"counter":"post","ids":[7,8,9]}`},
		{"get", `{"counter":"post","ids":[7,8,9]` + reached},
		{"unread", `{"users":[7]` + reached},
		{"feed", `{"user":7,"limit":3` + reached},
		{"following", `{"user":7` + reached},
	} {
		if got, want := ask(q[0], q[1]), one(q[0], q[1]); !sameJSON(got, want) {
			t.Errorf("%s %s: %s, want %s", q[0], q[1], got, want)
		}
	}
	if own.Reads() > 0 {
		t.Errorf("it was asked itself %d times", own.Reads())
	}
	// What the process answers itself waits until it has come there itself.
	for subject, body := range map[string]string{"schema": `{`, "stats": `{`, "nodes": `{`, "shards": `{`, "read": `{"user":7,"what":["feed"],`} {
		if got := ask(subject, fmt.Sprintf(body+`"min_position":"%d","timeout_ms":20}`, now)); !strings.HasPrefix(got, "504 min_position") {
			t.Errorf("%s: %s", subject, got)
		}
	}
}
