package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

func TestHealthcheck(t *testing.T) {
	n, p := shared(t), newPlace(t)
	ask := func(args ...string) result {
		t.Helper()
		return tidemark(t, append([]string{"healthcheck"}, args...)...)
	}
	address := freeAddress(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	p.configure(t, "http: {listen: '0.0.0.0:"+port+"'}\napi: {tokens: open}\n") // as in an image
	ask("--config", p.config).fails(t, 1, "http://127.0.0.1:"+port+"/healthz: ", "connection refused")
	p.configure(t, "http: {listen: '"+strings.TrimPrefix(n.url, "http://")+"'}\n")
	good := result{out: "ok\n"}
	if r := ask("--config", p.config); r != good {
		t.Errorf("%+v", r)
	}
	e2e.Until(t, "ready", func() bool { return ask("--config", p.config, "--ready").code == 0 })
	if r := ask("--url", n.url+"/readyz"); r != good {
		t.Errorf("%+v", r)
	}
	ask("--url", n.url+"/nowhere").fails(t, 1, "404 Not Found")

	// A proxy in the environment is not asked about this machine.
	proxy := []string{"http_proxy=http://127.0.0.1:1", "HTTP_PROXY=http://127.0.0.1:1"}
	command(t, proxy, "", "healthcheck", "--url", "http://"+address+"/").fails(t, 1, address+": connect: connection refused")
	p.configure(t, "http: {listen: ''}\n")
	ask("--config", p.config).fails(t, 1, "http.listen is empty")
	p.configure(t, "shards: x\n")
	if r := ask("--config", p.config); r.code != 2 {
		t.Errorf("%+v", r)
	}
}

// The reason is printed, of a page that is not well or does not answer.
func TestHealthcheckReasons(t *testing.T) {
	done := make(chan struct{})
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			<-done
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte("shard 3 has stopped\nqueries: \x1b[2J\n"))
	}))
	defer page.Close()
	defer close(done)
	tidemark(t, "healthcheck", "--url", page.URL).fails(t, 1, "503 Service Unavailable: shard 3 has stopped; queries: \\x1b[2J")
	tidemark(t, "healthcheck", "--url", page.URL+"/hang", "--timeout", "100ms").fails(t, 1, "no answer within 100ms")
}

func TestHere(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:8480": "127.0.0.1:8480", "0.0.0.0:1": "127.0.0.1:1", ":1": "127.0.0.1:1", "[::]:1": "[::1]:1",
		"10.1.2.3:4": "10.1.2.3:4", "localhost:5": "localhost:5",
	} {
		if got, err := here(listen); got != want || err != nil {
			t.Errorf("%s: %s, %v", listen, got, err)
		}
	}
}
