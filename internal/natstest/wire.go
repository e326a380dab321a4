package natstest

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
)

// Wire is a TCP connection that can be made to swallow what the server says.
type Wire struct {
	listener net.Listener
	server   string
	wg       sync.WaitGroup

	mu    sync.Mutex
	free  *sync.Cond
	muted bool
	conns []net.Conn
}

// NewWire begins to listen for connections to a server.
func NewWire(tb testing.TB, s *embed.Server) *Wire {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	server, err := url.Parse(s.URL())
	if err != nil {
		tb.Fatal(err)
	}
	w := &Wire{listener: l, server: server.Host}
	w.free = sync.NewCond(&w.mu)
	w.wg.Go(w.accept)
	tb.Cleanup(w.close)
	return w
}

// Address is where a client reaches the server over the wire.
func (w *Wire) Address() string { return w.listener.Addr().String() }

// Mute holds back what the server says until it is lifted.
func (w *Wire) Mute(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.muted = on
	w.free.Broadcast()
}

// Stop closes all connections and refuses new ones.
func (w *Wire) Stop() {
	_ = w.listener.Close()
	w.Mute(true)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		_ = c.Close()
	}
}

func (w *Wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, client, server)
		w.mu.Unlock()
		w.wg.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
		w.wg.Go(func() { _, _ = io.Copy(valve{w, client}, server); _ = client.Close() })
	}
}

func (w *Wire) close() {
	w.Mute(false)
	_ = w.listener.Close()
	w.mu.Lock()
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.mu.Unlock()
	w.wg.Wait()
}

type valve struct {
	w *Wire
	net.Conn
}

func (g valve) Write(b []byte) (int, error) {
	g.w.mu.Lock()
	for g.w.muted {
		g.w.free.Wait()
	}
	g.w.mu.Unlock()
	return g.Conn.Write(b)
}
