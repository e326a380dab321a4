package web

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// BodyWithin bounds how long a body may take to come.
const BodyWithin = 30 * time.Second

// room bounds the bytes of bodies and answers that are under way.
type room struct {
	most  int64
	taken atomic.Int64
}

// roomFree is how much of each body or answer takes no room: small requests are answered
// whatever large ones take.
const roomFree = 4 << 10

var errNoRoom = errors.New("there is no room for so much at once")

func (r *room) take(n int64) bool {
	if r.taken.Add(n) > r.most {
		r.taken.Add(-n)
		return false
	}
	return true
}

// taking reads a body, and takes room for what it has read.
type taking struct {
	from       io.ReadCloser
	room       *room
	read, held int64
}

// Read implements io.Reader.
func (t *taking) Read(p []byte) (n int, err error) {
	n, err = t.from.Read(p)
	t.read += int64(n)
	if more := t.read - roomFree - t.held; more > 0 {
		if !t.room.take(more) {
			return n, errNoRoom
		}
		t.held += more
	}
	return n, err
}

// Close implements io.Closer.
func (t *taking) Close() error { return t.from.Close() }

func nothingTaken() {}

// readBody reads a body of most bytes at most, unpacked where it comes packed, without
// a byte order mark. The caller calls done when it needs it no longer.
func (d *door) readBody(w http.ResponseWriter, h *http.Request, most int64) (body []byte, done func(), p *problem) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(d.within)) // an error: the writer is a test's
	from, p := unpacked(h)
	if p != nil {
		w.Header().Set("Accept-Encoding", "gzip")
		return nil, nothingTaken, p
	}
	t := &taking{from: from, room: d.room}
	body, err := io.ReadAll(http.MaxBytesReader(w, t, most))
	done = func() { t.room.taken.Add(-t.held) }
	if p := unread(err, most); p != nil {
		done()
		return nil, nothingTaken, p
	}
	_ = control.SetReadDeadline(time.Time{})
	w.Header().Del("Connection") // it has been read, and the next request may come
	return bytes.TrimPrefix(body, []byte("\ufeff")), done, nil
}

// unpacked is a request's body as it was before its Content-Encoding.
func unpacked(h *http.Request) (io.ReadCloser, *problem) {
	switch encoding := strings.ToLower(h.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
		return h.Body, nil
	case "gzip", "x-gzip":
		from, err := gzip.NewReader(h.Body)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, unread(err, 0)
		}
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "the body is not gzip: %v", err)
		}
		return from, nil
	default:
		return nil, refuse(http.StatusUnsupportedMediaType, "Content-Encoding %.50q is not understood: gzip is", encoding)
	}
}

func unread(err error, most int64) *problem {
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case err == nil:
		return nil
	case large:
		return refuse(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", most)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(http.StatusRequestTimeout, "the body did not come within %s", BodyWithin)
	case errors.Is(err, errNoRoom):
		return refuse(http.StatusServiceUnavailable, "busy: limits.bodies bytes of bodies and answers are under way")
	}
	return refuse(http.StatusBadRequest, "the body cannot be read: %v", err)
}
