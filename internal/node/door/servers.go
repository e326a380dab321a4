package door

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/query/web"
)

// Bounds of a connection that is slow or silent.
const (
	headerWithin = 5 * time.Second
	idleWithin   = 2 * time.Minute
	headerMax    = 64 << 10 // bytes: room for 3,000 ids in a path
	headerTimes  = 2        // what has more than so many times headerMax is not read, and answered by net/http
	// answerWithin bounds how long a client may take to read an answer, from when the request's
	// timeout ends at the latest.
	answerWithin = time.Minute
	// closeWithin bounds the wait for answers under way when a process stops.
	closeWithin = time.Second
)

// Servers are HTTP servers that share a bound of connections: where there are as many, the
// one that has been silent the longest gives way to a new one; if none is silent, the new one
// is answered 503.
type Servers struct {
	ctx    context.Context // of requests; what goes on for as long as somebody looks ends with it
	log    *slog.Logger
	most   int
	body   time.Duration // within which a request must have come: web.BodyWithin
	answer time.Duration // within which its answer must have been taken

	// Refused counts new connections that were answered 503, Displaced silent ones that gave way.
	Refused, Displaced atomic.Int64

	mu     sync.Mutex
	open   map[net.Conn]*list.Element // in silent; nil: a request is in work
	silent list.List                  // of net.Conn, the one that is silent the longest first
}

// Connections is how many there are.
func (s *Servers) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// NewServers is for most connections, and requests that wait for timeout at most.
func NewServers(ctx context.Context, most int, timeout time.Duration, log *slog.Logger) *Servers {
	return &Servers{ctx: ctx, log: log, most: most, body: web.BodyWithin, answer: timeout + answerWithin, open: map[net.Conn]*list.Element{}}
}

// Serve serves what comes to a listener until the server is closed.
func (s *Servers) Serve(l net.Listener, next http.Handler) *http.Server {
	server := &http.Server{
		Handler:           prompt(next),
		ReadHeaderTimeout: headerWithin,
		ReadTimeout:       s.body,
		IdleTimeout:       idleWithin,
		WriteTimeout:      s.answer,
		MaxHeaderBytes:    headerTimes * headerMax,
		BaseContext:       func(net.Listener) context.Context { return s.ctx },
		ConnState:         s.state,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // what clients do wrong
	}
	go func() {
		if err := server.Serve(&bounded{l, s}); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("http: stopped serving", "error", err)
		}
	}()
	return server
}

// Close ends servers, nil ones passed over. Answers under way have closeWithin.
func (s *Servers) Close(servers ...*http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	for _, server := range servers {
		if server != nil && server.Shutdown(ctx) != nil {
			server.Close()
		}
	}
}

// prompt answers without the body where next does not read it: what a client announces and
// does not send is waited for by nobody but package web, which keeps the connection then.
func prompt(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if r.ContentLength != 0 {
			w.Header().Set("Connection", "close")
			defer func() { // net/http reads on, so that the answer arrives before the connection is closed
				if w.Header().Get("Connection") == "close" {
					_ = control.SetReadDeadline(time.Now().Add(closeWithin))
				}
			}()
		} else { // else an answer that takes longer than ReadTimeout would end with it
			_ = control.SetReadDeadline(time.Time{})
		}
		if size := sizeOf(r); size > headerMax {
			web.Refuse(w, http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("the path and the headers have %d bytes, %d are the most: ask for fewer ids at once", size, headerMax))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// sizeOf is how long what comes before a body is, in bytes.
func sizeOf(r *http.Request) int {
	size := len(r.RequestURI)
	for name, values := range r.Header {
		for _, value := range values {
			size += len(name) + len(value)
		}
	}
	return size
}

// bounded is a listener whose connections count.
type bounded struct {
	net.Listener
	servers *Servers
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil || b.servers.admit(conn) {
			return conn, err
		}
		b.servers.Refused.Add(1)
		_ = conn.SetDeadline(time.Now().Add(closeWithin))
		_, _ = conn.Write(full)
		conn.Close()
	}
}

// full is the answer to a connection that is one too many.
var full = func() []byte {
	body := web.Problem(http.StatusServiceUnavailable, "there are as many connections as there may be; use one for many requests")
	return fmt.Appendf(nil, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}()

// admit counts a new connection, if there is room or another one gives way.
func (s *Servers) admit(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) >= s.most {
		longest := s.silent.Front()
		if longest == nil {
			return false
		}
		s.Displaced.Add(1)
		gone := longest.Value.(net.Conn)
		s.forgetLocked(gone)
		gone.Close()
	}
	s.open[conn] = s.silent.PushBack(conn)
	return true
}

func (s *Servers) forgetLocked(conn net.Conn) {
	if at := s.open[conn]; at != nil {
		s.silent.Remove(at)
	}
	delete(s.open, conn)
}

// state is http.Server.ConnState.
func (s *Servers) state(conn net.Conn, now http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, counts := s.open[conn]; !counts { // it gave way
		return
	}
	s.forgetLocked(conn)
	switch now {
	case http.StateActive:
		s.open[conn] = nil
	case http.StateNew, http.StateIdle:
		s.open[conn] = s.silent.PushBack(conn)
	}
}
