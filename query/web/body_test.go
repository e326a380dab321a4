package web

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/query"
)

// docs/http.md: "bytes of bodies and answers under way | `limits.bodies`; the first 4 KiB of
// each take nothing | 503".
func TestRoom(t *testing.T) {
	const most, large = 64 << 10, 40 << 10
	l := &log{ids: map[string]int{}}
	d := newDoor(Options{Ask: (&recorder{reply: query.Reply{Code: 200, Data: make([]byte, large)}}).ask, Packs: l, NewChecker: func() Checker { return even{} }, Bodies: most})
	h := d.mux()
	line := strings.Repeat("x", large-1) + "\n"
	slow, rest := io.Pipe()
	done := make(chan int)
	go func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/v1/events", slow))
		done <- w.Code
	}()
	if _, err := io.WriteString(rest, line); err != nil {
		t.Fatal(err)
	}
	_, _ = rest.Write(nil) // it has been read when this returns
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"POST", "/v1/events", line, 503}, {"POST", "/v1/events", "small", 200}, {"GET", "/v1/get/post/1", "", 503},
	} {
		if w := send(h, c.method, c.path, c.body); w.Code != c.want {
			t.Errorf("%s %s of %d bytes: %d, want %d", c.method, c.path, len(c.body), w.Code, c.want)
		}
	}
	rest.Close()
	if code := <-done; code != 200 {
		t.Errorf("the one that had room: %d", code)
	}
	for _, path := range []string{"POST /v1/events", "GET /v1/get/post/1"} {
		method, path, _ := strings.Cut(path, " ")
		if w := send(h, method, path, line); w.Code != 200 {
			t.Errorf("afterwards: %s %d", path, w.Code)
		}
	}
	if taken := d.room.taken.Load(); taken != 0 {
		t.Errorf("%d bytes are taken", taken)
	}
}

// docs/http.md: "The body did not come within 30 s." A connection whose body was read is kept.
func TestSlowBody(t *testing.T) {
	d := newDoor(Options{Ask: (&recorder{reply: query.Reply{Code: 200}}).ask, Packs: &log{ids: map[string]int{}}, NewChecker: func() Checker { return even{} }, Bodies: 1 << 20})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		d.mux().ServeHTTP(w, r)
	}))
	defer server.Close()
	post := func(body io.Reader, encoding string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/v1/events", body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Encoding", encoding)
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		reply.Body.Close()
		return reply
	}
	if reply := post(strings.NewReader("like 1"), ""); reply.StatusCode != 200 || reply.Close {
		t.Errorf("%d, closed %v", reply.StatusCode, reply.Close)
	}
	d.within = time.Millisecond
	for _, encoding := range []string{"", "gzip"} {
		slow, rest := io.Pipe()
		if reply := post(slow, encoding); reply.StatusCode != 408 {
			t.Errorf("%q: %d", encoding, reply.StatusCode)
		}
		rest.Close()
	}
}
