package node

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/nodetest"
)

// startWith starts a node with a page at /demo/, and stops it at the end.
func startWith(t *testing.T, change func(*config.Config)) *Node {
	t.Helper()
	c := nodetest.EachLikeCounts()
	c.DataDir, c.NATS.Listen, c.HTTP.Listen, c.Shards = t.TempDir(), "127.0.0.1:0", "127.0.0.1:0", 4
	change(c)
	page := func(*nats.Conn) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "a page") })
	}
	n, err := Start(t.Context(), c, Options{Logger: slog.New(slog.DiscardHandler), Pages: map[string]func(*nats.Conn) http.Handler{"/demo/": page}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// fetch asks for a path as a browser does that took the server for host.
func fetch(t *testing.T, n *Node, host, path string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.HTTPAddress()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
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

// docs/run.md: "under a name of its own that resolves to this address (DNS rebinding)."
func TestHost(t *testing.T) {
	n := startWith(t, func(c *config.Config) { c.HTTP.Hosts = []string{"tidemark", "Counts.Example.org"} })
	_, port, _ := strings.Cut(n.HTTPAddress(), ":")
	checked := []string{"/", "/metrics", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/heap", "/demo/", "/demo/events", "/none"}
	for _, host := range []string{"evil.example", "evil.example:" + port, "127.0.0.1.evil.example", "localhost.evil.example", "tidemark.evil", "evil.example.", "127.1.x"} {
		for _, path := range checked {
			status, body := fetch(t, n, host, path)
			name, _, _ := strings.Cut(strings.TrimSuffix(host, "."), ":")
			if status != http.StatusMisdirectedRequest || !strings.Contains(body, fmt.Sprintf("%q", name)) || !strings.Contains(body, "http.hosts") {
				t.Errorf("%s for %s: %d %s", path, host, status, body)
			}
		}
		// Probes come under any name, and learn nothing but whether it is well.
		for _, path := range []string{"/healthz", "/readyz"} {
			if status, body := fetch(t, n, host, path); status == http.StatusMisdirectedRequest {
				t.Errorf("%s for %s: %d %s", path, host, status, body)
			}
		}
	}
	for _, host := range []string{
		n.HTTPAddress(), "127.0.0.1", "10.1.2.3:80", "[::1]:" + port, "[fe80::1]", "localhost", "localhost:" + port, "LOCALHOST.", "tidemark:" + port, "counts.example.org",
	} {
		for _, path := range []string{"/", "/metrics", "/debug/pprof/", "/demo/"} {
			if status, body := fetch(t, n, host, path); status != http.StatusOK {
				t.Errorf("%s for %s: %d %s", path, host, status, body)
			}
		}
	}
	// The index page lists /demo/ when it is there.
	if _, body := fetch(t, n, "localhost", "/"); body != "tidemark\n\n/metrics\n/healthz\n/readyz\n/debug/pprof/\n/v1/openapi.json\n/demo/\n" {
		t.Errorf("the index is %q", body)
	}
}
