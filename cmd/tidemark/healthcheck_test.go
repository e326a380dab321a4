package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

func TestHealthcheck(t *testing.T) {
	p := newPlace(t)
	address := freeAddress(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	p.configure(t, "http: {listen: '0.0.0.0:"+port+"'}\n") // as in an image
	ask := func(args ...string) result {
		t.Helper()
		return tidemark(t, append([]string{"healthcheck"}, args...)...)
	}
	ask("--config", p.config).fails(t, 1, "http://127.0.0.1:"+port+"/healthz: ", "connection refused")
	n := p.start(t)
	good := result{out: "ok\n"}
	if r := ask("--config", p.config); r != good {
		t.Errorf("%+v", r)
	}
	e2e.Until(t, "ready", func() bool { return ask("--config", p.config, "--ready").code == 0 })
	if r := ask("--url", "http://"+address+"/readyz"); r != good {
		t.Errorf("%+v", r)
	}
	ask("--url", "http://"+address+"/nowhere").fails(t, 1, "404 Not Found")
	n.stop(syscall.SIGTERM)
	ask("--config", p.config).fails(t, 1, "connection refused")

	// A proxy in the environment is not asked about this machine.
	if r := command(t, []string{"http_proxy=http://127.0.0.1:1", "HTTP_PROXY=http://127.0.0.1:1"}, "", "healthcheck", "--url", "http://"+address+"/"); !strings.Contains(r.err, address+": connect: connection refused") {
		t.Errorf("%+v", r)
	}
	p.configure(t, "http: {listen: ''}\n")
	ask("--config", p.config).fails(t, 1, "http.listen is empty")
	if err := os.WriteFile(p.config, []byte("shards: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
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
	begun := time.Now()
	tidemark(t, "healthcheck", "--url", page.URL+"/hang", "--timeout", "100ms").fails(t, 1, "no answer within 100ms")
	t.Log(time.Since(begun))
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
