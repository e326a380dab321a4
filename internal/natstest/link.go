package natstest

import (
	"io"
	"net"
	"slices"
	"sync"
	"testing"
)

// link carries the routes that one server of a Cluster opens to another. While it is
// cut, connections stay open and no byte arrives, as on a network that loses packets.
type link struct {
	from, to int // servers
	listener net.Listener
	target   string

	mu    sync.Mutex
	open  chan struct{} // closed while bytes pass
	conns []net.Conn    // closed when the test ends
}

func newLink(tb testing.TB, from, to int, target string) *link {
	tb.Helper()
	l := &link{from: from, to: to, target: target, open: make(chan struct{})}
	close(l.open)
	var err error
	if l.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		tb.Fatal(err)
	}
	go l.accept()
	tb.Cleanup(l.close)
	return l
}

func (l *link) address() string { return l.listener.Addr().String() }

func (l *link) accept() {
	for {
		in, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.carry(in)
	}
}

// carry connects to the target and copies both ways until either side ends.
func (l *link) carry(in net.Conn) {
	defer in.Close()
	<-l.passing()
	out, err := net.Dial("tcp", l.target)
	if err != nil {
		return
	}
	defer out.Close()
	l.mu.Lock()
	l.conns = append(l.conns, in, out)
	l.mu.Unlock()
	ended := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
		go func() {
			io.Copy(gate{l, pair[1]}, pair[0])
			ended <- struct{}{}
		}()
	}
	<-ended
}

// gate writes once the link is not cut.
type gate struct {
	link *link
	to   net.Conn
}

func (g gate) Write(b []byte) (int, error) {
	<-g.link.passing()
	return g.to.Write(b)
}

func (l *link) passing() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// set cuts the link, or mends it.
func (l *link) set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.open:
		if cut {
			l.open = make(chan struct{})
		}
	default:
		if !cut {
			close(l.open)
		}
	}
}

func (l *link) close() {
	l.set(false)
	l.listener.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Close()
	}
}

// Cut takes a server off the network of the others, until Mend. Its clients keep
// their connections.
func (c *Cluster) Cut(m *Member) { c.setLinks(m, true) }

// Mend undoes Cut.
func (c *Cluster) Mend(m *Member) { c.setLinks(m, false) }

func (c *Cluster) setLinks(m *Member, cut bool) {
	at := slices.Index(c.Servers, m)
	for _, l := range c.links {
		if l.from == at || l.to == at {
			l.set(cut)
		}
	}
}
