package web

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
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

var (
	errNoRoom   = errors.New("there is no room for so much at once")
	errEncoding = errors.New("gzip is the only Content-Encoding that is understood")
)

func (r *room) take(n int64) bool {
	if r.taken.Add(n) > r.most {
		r.taken.Add(-n)
		return false
	}
	return true
}

// unpacking is what it takes to unpack a body, in bytes.
const unpacking = 64 << 10

// taking reads a body, and takes room for what it has read.
type taking struct {
	from       io.ReadCloser
	room       *room
	read, held int64
}

// hold takes room until done.
func (t *taking) hold(more int64) error {
	if !t.room.take(more) {
		return errNoRoom
	}
	t.held += more
	return nil
}

func (t *taking) done() { t.room.taken.Add(-t.held) }

// open has the body that comes from a connection read as it was before its Content-Encoding.
func (t *taking) open(from io.ReadCloser, encoding string) (err error) {
	switch strings.ToLower(encoding) {
	case "", "identity":
		t.from = from
		return nil
	case "gzip", "x-gzip":
		if err = t.hold(unpacking); err == nil {
			t.from, err = gzip.NewReader(from)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = gzip.ErrHeader
		}
		return err
	}
	return fmt.Errorf("%w: %.50q", errEncoding, encoding)
}

// Read implements io.Reader.
func (t *taking) Read(p []byte) (n int, err error) {
	n, err = t.from.Read(p)
	t.read += int64(n)
	if more := t.read - roomFree - t.held; more > 0 {
		if full := t.hold(more); full != nil {
			return n, full
		}
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
	t := &taking{room: d.room}
	err := t.open(http.MaxBytesReader(w, h.Body, most), h.Header.Get("Content-Encoding"))
	if err == nil {
		body, err = io.ReadAll(http.MaxBytesReader(w, t, most))
	}
	if p := unread(err, most); p != nil {
		t.done()
		if p.Status == http.StatusUnsupportedMediaType {
			w.Header().Set("Accept-Encoding", "gzip")
		}
		return nil, nothingTaken, p
	}
	_ = control.SetReadDeadline(time.Time{})
	w.Header().Del("Connection") // it has been read, and the next request may come
	return bytes.TrimPrefix(body, []byte("\ufeff")), t.done, nil
}

// unread is what is wrong with a body that could not be read; nil: nothing.
func unread(err error, most int64) *problem {
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case err == nil:
		return nil
	case large:
		return refuse(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", most)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(http.StatusRequestTimeout, "the body did not come within %s", BodyWithin)
	case errors.Is(err, errEncoding):
		return refuse(http.StatusUnsupportedMediaType, "%v", err)
	case errors.Is(err, gzip.ErrHeader):
		return refuse(http.StatusBadRequest, "the body is not gzip: %v", err)
	case errors.Is(err, errNoRoom):
		return refuse(http.StatusServiceUnavailable, "busy: limits.bodies bytes of bodies and answers are under way")
	}
	return refuse(http.StatusBadRequest, "the body cannot be read: %v", err)
}
