package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// The client reserves memory for what a reply announces, before it comes. So every
// reply is looked at on its way to the client, and one that announces more than a
// Redis answers here ends the connection.
const (
	// elementsMax bounds an array: SCAN answers some scanCount keys, HSCAN all fields of
	// a hash that Redis keeps packed.
	elementsMax = 1 << 20
	// bulkBytesMax bounds a key, a field or a value.
	bulkBytesMax = 64 << 20
	// replyBytesMax bounds all of a reply.
	replyBytesMax = 256 << 20
	// depthMax bounds arrays within arrays: SCAN's is in one.
	depthMax = 4
	// lineBytesMax bounds what stands in a line: a number, a status, an error.
	lineBytesMax = 64 << 10
)

// errReply: what answers is no Redis, or holds what cannot be read here.
var errReply = errors.New("snapshot: a reply that is not read")

// bounded has the connections of o be looked at, and closed when ctx ends: the client
// itself looks at ctx between two commands alone.
func bounded(ctx context.Context, o *redis.Options) {
	dial := redis.NewDialer(o)
	o.Dialer = func(dialing context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(dialing, network, address)
		if err != nil {
			return nil, err
		}
		b := &boundedConn{Conn: conn}
		b.stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
		return b, nil
	}
}

// boundedConn looks at replies as they are read.
type boundedConn struct {
	net.Conn
	stop    func() bool
	replies replies
	bad     error // of the first reply that is not read
}

// Read implements [net.Conn].
func (b *boundedConn) Read(to []byte) (int, error) {
	if b.bad != nil { // the client may read on
		return 0, b.bad
	}
	n, err := b.Conn.Read(to)
	if b.bad = b.replies.look(to[:n]); b.bad != nil {
		return 0, b.bad
	}
	return n, err
}

// Close implements [net.Conn].
func (b *boundedConn) Close() error {
	b.stop()
	return b.Conn.Close()
}

// replies follows the replies of a connection, a piece of bytes at a time.
type replies struct {
	line  []byte  // begun, without its end
	bulk  int64   // bytes of a string that are still to come, with its line's end
	open  []int64 // elements that are still to come, of each array that is open
	bytes int64   // of the reply so far
}

// look takes in the next bytes. An error wraps errReply.
func (r *replies) look(b []byte) error {
	for len(b) > 0 {
		if r.bytes > replyBytesMax {
			return fmt.Errorf("%w: it has more than %d bytes", errReply, int64(replyBytesMax))
		}
		if r.bulk > 0 {
			n := min(r.bulk, int64(len(b)))
			b, r.bulk, r.bytes = b[n:], r.bulk-n, r.bytes+n
			if r.bulk == 0 {
				r.element()
			}
			continue
		}
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			end = len(b) - 1
		}
		r.line, r.bytes = append(r.line, b[:end+1]...), r.bytes+int64(end+1)
		b = b[end+1:]
		if len(r.line) > lineBytesMax {
			return fmt.Errorf("%w: a line of it has more than %d bytes", errReply, lineBytesMax)
		}
		if r.line[len(r.line)-1] == '\n' {
			if err := r.begin(bytes.TrimRight(r.line, "\r\n")); err != nil {
				return err
			}
			r.line = r.line[:0]
		}
	}
	return nil
}

// begin takes in a line: a value, or what announces one.
func (r *replies) begin(line []byte) error {
	if len(line) == 0 {
		return fmt.Errorf("%w: a line of it is empty", errReply)
	}
	switch line[0] {
	case '$', '=', '!':
		n, err := announced(line, bulkBytesMax, "bytes")
		if err != nil || n < 0 {
			r.element()
			return err
		}
		r.bulk = n + int64(len("\r\n"))
	case '*', '~', '>', '%', '|':
		n, err := announced(line, elementsMax, "elements")
		if err != nil {
			return err
		}
		if line[0] == '%' || line[0] == '|' {
			n *= 2 // keys and values
		}
		return r.array(n, line[0] == '|')
	default:
		r.element()
	}
	return nil
}

// announced is the length in a line; -1: there is nothing.
func announced(line []byte, most int64, of string) (int64, error) {
	n, err := strconv.ParseInt(string(line[1:]), 10, 64)
	if err != nil || n < -1 || n > most {
		return 0, fmt.Errorf("%w: it announces %.40q %s, and at most %d are read", errReply, line[1:], of, most)
	}
	return n, nil
}

// array opens one. An attribute comes before the value that it is of.
func (r *replies) array(elements int64, attribute bool) error {
	if attribute {
		elements++
	}
	if elements <= 0 {
		r.element()
		return nil
	}
	if len(r.open) == depthMax {
		return fmt.Errorf("%w: more than %d arrays stand in one another", errReply, depthMax)
	}
	r.open = append(r.open, elements)
	return nil
}

// element ends a value, and the arrays of which it is the last.
func (r *replies) element() {
	for len(r.open) > 0 {
		last := &r.open[len(r.open)-1]
		if *last--; *last > 0 {
			return
		}
		r.open = r.open[:len(r.open)-1]
	}
	r.bytes = 0
}
