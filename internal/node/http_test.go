package node

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/nodetest"
)

// startWith starts a node with a server of its own and a page at /demo/, and stops it at the
// end.
func startWith(t *testing.T, change func(*config.Config)) *Node {
	t.Helper()
	c := nodetest.EachLikeCounts()
	c.DataDir, c.NATS.Listen, c.HTTP.Listen, c.Shards = t.TempDir(), "127.0.0.1:0", "127.0.0.1:0", 4
	change(c)
	page := func(*nats.Conn) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "a page") })
	}
	n, err := Start(t.Context(), c, Options{Logger: silent, Pages: map[string]func(*nats.Conn) http.Handler{"/demo/": page}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// call sends a request to an address, and returns code and body. A header Host is what a
// browser took the server for.
func call(t *testing.T, method, target, body string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	r.Host = r.Header.Get("Host")
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply.StatusCode, string(text)
}

// What one process says of itself, and what its doors answer.
func TestNodeOfItsOwn(t *testing.T) {
	t.Parallel()
	n := startWith(t, func(c *config.Config) {
		c.API.Listen, c.HTTP.Hosts = "127.0.0.1:0", []string{"tidemark", "Counts.Example.org"}
		c.Limits.Timeout = c.Limits.TimeoutMax // what was stored is waited for
	})
	nc, err := nats.Connect(n.URL(), e2e.Inside(t, n.KeyFile()))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, part := range []struct {
		name string
		of   func(*testing.T, *Node, *nats.Conn)
	}{
		{"each metric is documented, and each that is named exists", metricsAreDocumented},
		{"README's snippets come to what they say", readmeReadsYourWrites},
		{"HTTP answers as NATS does", answersAsNATSDoes},
		{"it answers by names of its own", answersByItsNames},
		{"one that nobody can ask is not ready", notReadyWithoutQueries}, // the last one
	} {
		t.Run(part.name, func(t *testing.T) { part.of(t, n, nc) })
	}
}

// docs/contract.md: "Doors translate; none of them holds state or knows rules": what HTTP
// answers is what NATS answers, of events that came in by HTTP.
func answersAsNATSDoes(t *testing.T, n *Node, nc *nats.Conn) {
	var events strings.Builder
	for i := 1; i <= 3000; i++ {
		fmt.Fprintf(&events, `{"type":"like","actor":%d,"post":%d,"author":9}`+"\n", i, i%7+1)
	}
	events.WriteString(`{"type":"like","actor":1}` + "\n" + `{"type":"follow","actor":7,"target":9}` + "\n")
	events.WriteString(`{"type":"post","actor":9,"post":1}` + "\n" + `{"type":"nope"}`)
	code, body := call(t, "POST", n.APIAddress()+"/v1/events", events.String(), "Idempotency-Key", "once")
	var stored struct {
		Stored   int
		Position string
		Refused  []struct {
			Line   int
			Reason string
		}
	}
	if err := json.Unmarshal([]byte(body), &stored); err != nil || code != 200 || stored.Stored != 3002 ||
		len(stored.Refused) != 2 || stored.Refused[0].Line != 3001 || stored.Refused[1].Reason != "type" {
		t.Fatalf("%d %s (%v)", code, body, err)
	}
	wait := `,"min_position":"` + stored.Position + `"}`
	for path, ask := range map[string][2]string{
		"/v1/get/post/1,2,3,8?columns=like": {"get", `{"counter":"post","ids":["1","2","3","8"],"columns":["like"]`},
		"/v1/get/nope/1?":                   {"get", `{"counter":"nope","ids":["1"]`},
		"/v1/unread/7,9?channels=system":    {"unread", `{"users":["7","9"],"channels":["system"]`},
		"/v1/explain/post.like/1?limit=2":   {"explain", `{"number":"post.like","id":"1","limit":2`},
		"/v1/members/post.repost/1?after=2": {"members", `{"column":"post.repost","id":"1","after":"2"`},
	} {
		want, err := nc.Request("tidemark."+ask[0], []byte(ask[1]+wait), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		wantCode, says := 200, string(want.Data)
		if text := want.Header.Get("Nats-Service-Error-Code"); text != "" {
			fmt.Sscan(text, &wantCode)
			says = want.Header.Get("Nats-Service-Error")
		}
		for _, address := range []string{n.APIAddress(), n.HTTPAddress()} {
			code, body := call(t, "GET", address+path+"&min_position="+stored.Position, "")
			if code != 200 {
				var p struct{ Detail string }
				if err := json.Unmarshal([]byte(body), &p); err != nil {
					t.Error(err)
				}
				body = p.Detail
			}
			if code != wantCode || body != says {
				t.Errorf("%s\nHTTP %d %.300s\nNATS %d %.300s", path, code, body, wantCode, says)
			}
		}
	}
	if code, body := call(t, "POST", n.APIAddress()+"/v1/events", events.String(), "Idempotency-Key", "once"); code != 200 || !strings.Contains(body, stored.Position) {
		t.Errorf("the same again: %d %.200s", code, body)
	}
	if code, _ := call(t, "GET", n.APIAddress()+"/metrics", ""); code != 404 {
		t.Errorf("api.listen has metrics: %d", code)
	}
}

// docs/run.md: "under a name of its own that resolves to this address (DNS rebinding)."
func answersByItsNames(t *testing.T, n *Node, _ *nats.Conn) {
	_, port, _ := strings.Cut(n.HTTPAddress(), ":")
	for _, host := range []string{"evil.example", "evil.example:" + port, "127.0.0.1.evil.example", "localhost.evil.example", "evil.example.", "127.1.x"} {
		for _, path := range []string{"/", "/metrics", "/debug/pprof/", "/debug/pprof/heap", "/demo/", "/demo/events", "/none"} {
			status, body := call(t, "GET", n.HTTPAddress()+path, "", "Host", host)
			name, _, _ := strings.Cut(strings.TrimSuffix(host, "."), ":")
			if status != http.StatusMisdirectedRequest || !strings.Contains(body, fmt.Sprintf(`\"%s\"`, name)) ||
				!strings.Contains(body, "http.hosts") {
				t.Errorf("%s for %s: %d %s", path, host, status, body)
			}
		}
		// Probes come under any name, and learn nothing but whether it is well.
		for _, path := range []string{"/healthz", "/readyz"} {
			if status, body := call(t, "GET", n.HTTPAddress()+path, "", "Host", host); status == http.StatusMisdirectedRequest {
				t.Errorf("%s for %s: %d %s", path, host, status, body)
			}
		}
	}
	for _, host := range []string{
		n.HTTPAddress(), "127.0.0.1", "10.1.2.3:80", "[::1]:" + port, "localhost", "LOCALHOST.", "tidemark:" + port, "counts.example.org",
	} {
		for _, path := range []string{"/", "/metrics", "/debug/pprof/", "/demo/"} {
			if status, body := call(t, "GET", n.HTTPAddress()+path, "", "Host", host); status != http.StatusOK {
				t.Errorf("%s for %s: %d %s", path, host, status, body)
			}
		}
	}
	// The index page lists /demo/ when it is there.
	if _, body := call(t, "GET", n.HTTPAddress()+"/", ""); body != "tidemark\n\n/metrics\n/healthz\n/readyz\n/debug/pprof/\n/v1/openapi.json\n/demo/\n" {
		t.Errorf("the index is %q", body)
	}
}

func notReadyWithoutQueries(t *testing.T, n *Node, _ *nats.Conn) {
	e2e.Until(t, "it is ready", func() bool { return n.Ready() == nil })
	if code, body := call(t, "GET", n.HTTPAddress()+"/readyz", ""); code != 200 || body != "ok\n" {
		t.Errorf("/readyz: %d %s", code, body)
	}
	n.queries.Close()
	const lost = "queries: their connection to the NATS server is lost"
	if code, body := call(t, "GET", n.HTTPAddress()+"/readyz", ""); code != 503 || !strings.Contains(body, lost) {
		t.Errorf("without the queries' connection: %d %s", code, body)
	}
}

// docs/run.md: "Beyond this machine profiles need an operator's token"; a link starts none.
func TestProfiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte("a-token-of-a-reader reader\nthe-operators-token operator\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	beyond := startWith(t, func(c *config.Config) { c.HTTP.Listen, c.API.Tokens = "0.0.0.0:0", path })
	here := startWith(t, func(c *config.Config) { c.API.Tokens = path })
	for _, c := range []struct {
		n                   *Node
		method, page, token string
		want                int
	}{
		{beyond, "GET", "/metrics", "", 200},
		{beyond, "GET", "/debug/pprof/heap", "", 401},
		{beyond, "GET", "/debug/pprof/heap", "a-token-of-a-reader", 403},
		{beyond, "GET", "/debug/pprof/heap", "the-operators-token", 200},
		{beyond, "POST", "/debug/pprof/trace?seconds=0.01", "", 401},
		{here, "GET", "/debug/pprof/heap", "", 200},
		{here, "GET", "/debug/pprof/profile?seconds=1", "", 405},
		{here, "GET", "/debug/pprof/trace?seconds=1", "", 405},
		{here, "POST", "/debug/pprof/trace?seconds=0.01", "", 200},
		{here, "GET", "/v1/nodes", "", 401},
	} {
		_, port, err := net.SplitHostPort(c.n.HTTPAddress())
		if err != nil {
			t.Fatal(err)
		}
		if code, body := call(t, c.method, "127.0.0.1:"+port+c.page, "", "Authorization", "Bearer "+c.token); code != c.want {
			t.Errorf("%s %s with %q: %d %.200s, want %d", c.method, c.page, c.token, code, body, c.want)
		}
	}
	if code, _ := call(t, "POST", here.HTTPAddress()+"/debug/pprof/profile?seconds=1", "", "Sec-Fetch-Site", "cross-site"); code != 403 {
		t.Errorf("a page from elsewhere starts a profile: %d", code)
	}
}
