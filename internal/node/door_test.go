package node

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/config"
)

// call sends a request to an address, and returns code and body.
func call(t *testing.T, method, target, body string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
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

// docs/contract.md: "Doors translate; none of them holds state or knows rules": what HTTP answers is what
// NATS answers, of events that came in by HTTP.
func TestHTTPAnswersAsNATSDoes(t *testing.T) {
	n := startWith(t, func(c *config.Config) { c.API.Listen = "127.0.0.1:0" })
	var events strings.Builder
	for i := 1; i <= 3000; i++ {
		fmt.Fprintf(&events, `{"type":"like","actor":%d,"post":%d,"author":9}`+"\n", i, i%7+1)
	}
	events.WriteString(`{"type":"like","actor":1}` + "\n" + `{"type":"follow","actor":7,"target":9}` + "\n" + `{"type":"post","actor":9,"post":1}` + "\n" + `{"type":"nope"}`)
	code, body := call(t, "POST", n.APIAddress()+"/v1/events", events.String(), "Idempotency-Key", "once")
	var stored struct {
		Stored   int
		Position string
		Refused  []struct {
			Line   int
			Reason string
		}
	}
	if err := json.Unmarshal([]byte(body), &stored); err != nil || code != 200 || stored.Stored != 3002 || len(stored.Refused) != 2 || stored.Refused[0].Line != 3001 || stored.Refused[1].Reason != "type" {
		t.Fatalf("%d %s (%v)", code, body, err)
	}
	nc, err := nats.Connect(n.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	wait := `,"min_position":"` + stored.Position + `"}`
	for path, ask := range map[string][2]string{
		"/v1/get/post/1,2,3,8?columns=like":                {"get", `{"counter":"post","ids":["1","2","3","8"],"columns":["like"]`},
		"/v1/get/nope/1?":                                  {"get", `{"counter":"nope","ids":["1"]`},
		"/v1/unread/7,9?channels=system":                   {"unread", `{"users":["7","9"],"channels":["system"]`},
		"/v1/feed/7?limit=3":                               {"feed", `{"user":"7","limit":3`},
		"/v1/following/7?":                                 {"following", `{"user":"7"`},
		"/v1/followers/9?limit=2":                          {"followers", `{"user":"9","limit":2`},
		"/v1/page/1,2?viewer=7":                            {"page", `{"ids":["1","2"],"viewer":"7"`},
		"/v1/explain/post.like/1?limit=2":                  {"explain", `{"number":"post.like","id":"1","limit":2`},
		"/v1/members/post.repost/1?after=2":                {"members", `{"column":"post.repost","id":"1","after":"2"`},
		"/v1/get/post/1?member=7":                          {"get", `{"counter":"post","ids":["1"],"member":"7"`},
		"/v1/get/post/" + strings.Repeat("5,", 900) + "5?": {"get", `{"counter":"post","ids":[` + strings.Repeat(`"5",`, 900) + `"5"]`},
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

// docs/contract.md: "Beyond this machine it needs `api.tokens`".
func TestHTTPNeedsTokensBeyondThisMachine(t *testing.T) {
	n := startWith(t, func(c *config.Config) { c.HTTP.Listen = "0.0.0.0:0" })
	_, port, _ := strings.Cut(strings.TrimPrefix(n.HTTPAddress(), "[::]"), ":")
	if code, body := call(t, "GET", "127.0.0.1:"+port+"/v1/nodes", ""); code != 403 || !strings.Contains(body, "api.tokens") {
		t.Errorf("%d %s", code, body)
	}
	if code, _ := call(t, "GET", "127.0.0.1:"+port+"/metrics", ""); code != 200 {
		t.Errorf("metrics: %d", code)
	}
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte("a-token-of-a-reader reader\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n = startWith(t, func(c *config.Config) { c.API.Listen, c.API.Tokens = "127.0.0.1:0", path })
	if code, _ := call(t, "GET", n.APIAddress()+"/v1/get/post/1", "", "Authorization", "Bearer a-token-of-a-reader"); code != 200 {
		t.Errorf("with a token: %d", code)
	}
	if code, _ := call(t, "GET", n.APIAddress()+"/v1/get/post/1", ""); code != 401 {
		t.Errorf("without: %d", code)
	}
}

// No request over HTTP is lost while another generation comes to serve.
func TestHTTPWhileAnotherGenerationComes(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.With("a", func(c *config.Config) { c.HTTP.Listen = "127.0.0.1:0" })
	f.Publish(100)
	stop, asked := make(chan struct{}), make(chan int)
	go func() {
		count := 0
		defer func() { asked <- count }()
		for ; ; count++ {
			select {
			case <-stop:
				return
			default:
			}
			if code, body := call(t, "GET", n.HTTPAddress()+"/v1/get/post/1", ""); code != 200 {
				t.Errorf("%d %s", code, body)
				return
			}
		}
	}()
	f.begin(fans(n.config), true)
	f.serves(2, n)
	close(stop)
	if count := <-asked; count < 10 {
		t.Errorf("%d requests were asked: nothing was tested", count)
	}
}
