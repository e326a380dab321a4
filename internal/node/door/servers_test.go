package door

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

// serve serves next on a port of this machine, with most connections, until the test ends.
func serve(t *testing.T, most int, next http.HandlerFunc) (s *Servers, server *http.Server, address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = NewServers(t.Context(), most, time.Minute, slog.New(slog.DiscardHandler))
	s.body = time.Hour
	server = s.Serve(l, next)
	t.Cleanup(func() { server.Close() })
	return s, server, l.Addr().String()
}

// connect opens a connection and sends text.
func connect(t *testing.T, address, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(e2e.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

// answered reads one answer.
func answered(t *testing.T, conn net.Conn) *http.Response {
	t.Helper()
	reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(reply.Body); err != nil {
		t.Fatal(err)
	}
	return reply
}

const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"

// docs/http.md: "the one that is silent the longest gives way; if all are in work, the new one
// is answered 503".
func TestConnections(t *testing.T) {
	const most = 4
	works, end := make(chan bool), make(chan bool)
	s, _, address := serve(t, most, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			works <- true
			<-end
		}
	})
	silent := func() { // an answer comes a moment before
		e2e.Until(t, "what was answered is silent", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.silent.Len() == len(s.open)
		})
	}
	kept := connect(t, address, get)
	answered(t, kept)
	silent()
	for range 3 * most {
		connect(t, address, "") // and says nothing
	}
	if reply := answered(t, connect(t, address, get)); reply.StatusCode != 200 {
		t.Errorf("beside silent ones: %d", reply.StatusCode)
	}
	if s.Connections() > most || s.Displaced.Load() < 2*most || s.Refused.Load() != 0 {
		t.Errorf("%d connections, %d displaced, %d refused", s.Connections(), s.Displaced.Load(), s.Refused.Load())
	}
	if _, err := kept.Read(make([]byte, 1)); err == nil {
		t.Error("the one that was silent the longest is open")
	}
	silent()
	var long []net.Conn
	for range most {
		long = append(long, connect(t, address, "GET /long HTTP/1.1\r\nHost: h\r\n\r\n"))
		<-works
	}
	if reply := answered(t, connect(t, address, "")); reply.StatusCode != 503 || reply.Header.Get("Retry-After") == "" || s.Refused.Load() != 1 {
		t.Errorf("one too many: %d, %d refused", reply.StatusCode, s.Refused.Load())
	}
	close(end)
	for _, conn := range long {
		if reply := answered(t, conn); reply.StatusCode != 200 {
			t.Errorf("one in work: %d", reply.StatusCode)
		}
	}
	if reply := answered(t, connect(t, address, get)); reply.StatusCode != 200 {
		t.Errorf("afterwards: %d", reply.StatusCode)
	}
}

// docs/http.md: "A body that nobody wants is not waited for".
func TestWithheldBody(t *testing.T) {
	s, server, address := serve(t, 10, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/reads" {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		w.WriteHeader(http.StatusUnauthorized)
	})
	for _, head := range []string{"Content-Length: 100", "Content-Length: 100\r\nExpect: 100-continue", "Transfer-Encoding: chunked"} {
		conn := connect(t, address, "POST / HTTP/1.1\r\nHost: h\r\n"+head+"\r\n\r\n")
		if reply := answered(t, conn); reply.StatusCode != 401 || !reply.Close {
			t.Errorf("%s: %d, closed %v", head, reply.StatusCode, reply.Close)
		}
	}
	long := connect(t, address, "POST /"+strings.Repeat("x", headerMax)+" HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n")
	if reply := answered(t, long); reply.StatusCode != 431 {
		t.Errorf("a long path: %d", reply.StatusCode)
	}
	e2e.Until(t, "all of them are closed", func() bool { return s.Connections() == 0 })
	// One that is waited for does not keep the process from ending.
	connect(t, address, "POST /reads HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n")
	NewServers(t.Context(), 1, 0, nil).Close(server, nil)
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error("it is open")
	}
}

// An answer may take longer than a request may.
func TestLongAnswer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := NewServers(ctx, 10, time.Minute, slog.New(slog.DiscardHandler))
	s.body = 20 * time.Millisecond
	server := s.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
			w.WriteHeader(http.StatusGone)
		case <-time.After(5 * s.body):
		}
	}))
	defer server.Close()
	if reply := answered(t, connect(t, l.Addr().String(), get)); reply.StatusCode != 200 {
		t.Errorf("%d: it ended with the time for a request", reply.StatusCode)
	}
	cancel()
	if reply := answered(t, connect(t, l.Addr().String(), get)); reply.StatusCode != http.StatusGone {
		t.Errorf("%d: it goes on after the process has ended", reply.StatusCode)
	}
}

// docs/http.md: "path and headers | 64 KiB | 431".
func TestLongPath(t *testing.T) {
	_, _, address := serve(t, 10, func(http.ResponseWriter, *http.Request) {})
	for size, want := range map[int]int{headerMax / 2: 200, headerMax: 431, 2 * headerMax: 431} {
		for _, text := range []string{"GET /%s HTTP/1.1\r\nHost: h\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\nX: %s\r\n\r\n"} {
			reply := answered(t, connect(t, address, fmt.Sprintf(text, strings.Repeat("x", size))))
			if reply.StatusCode != want || want == 431 && reply.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%d bytes: %d %s", size, reply.StatusCode, reply.Header.Get("Content-Type"))
			}
		}
	}
}
