package jetlog_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// wire is a TCP connection that can be made to swallow what the server says.
type wire struct {
	listener net.Listener
	server   string
	wg       sync.WaitGroup

	mu    sync.Mutex
	free  *sync.Cond
	muted bool
	conns []net.Conn
}

func newWire(t *testing.T, server string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: l, server: server}
	w.free = sync.NewCond(&w.mu)
	w.wg.Go(w.accept)
	t.Cleanup(w.close)
	return w
}

func (w *wire) Address() string { return w.listener.Addr().String() }

// Mute holds back what the server says until it is lifted.
func (w *wire) Mute(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.muted = on
	w.free.Broadcast()
}

// Stop lets nothing through any more, and no new connection.
func (w *wire) Stop() {
	_ = w.listener.Close()
	w.Mute(true)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		_ = c.Close()
	}
}

func (w *wire) accept() {
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
		w.wg.Go(func() { _, _ = io.Copy(gate{w, client}, server); _ = client.Close() })
	}
}

func (w *wire) close() {
	w.Mute(false)
	_ = w.listener.Close()
	w.mu.Lock()
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.mu.Unlock()
	w.wg.Wait()
}

type gate struct {
	w *wire
	net.Conn
}

func (g gate) Write(b []byte) (int, error) {
	g.w.mu.Lock()
	for g.w.muted {
		g.w.free.Wait()
	}
	g.w.mu.Unlock()
	return g.Conn.Write(b)
}

func contextFor(b *bench, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.ctx, d)
}
