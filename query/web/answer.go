package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/tidemark-io/tidemark/query"
)

// problem is an answer that says what is wrong, as RFC 9457 has it.
type problem struct {
	Type   string          `json:"type"` // a place in docs/http.md
	Title  string          `json:"title"`
	Status int             `json:"status"`
	Detail string          `json:"detail"`
	More   json.RawMessage `json:"reply,omitempty"` // what the service says to programs besides
}

// page is where docs/http.md explains the codes.
const page = "https://github.com/tidemark-io/tidemark/blob/main/docs/http.md#"

// titles are the codes there are, and the titles of their places in docs/http.md.
var titles = map[int]struct{ place, title string }{
	http.StatusBadRequest:                  {"400-bad-request", "Bad request"},
	http.StatusUnauthorized:                {"401-no-token", "No token"},
	http.StatusForbidden:                   {"403-not-allowed", "Not allowed"},
	http.StatusNotFound:                    {"404-not-found", "Not found"},
	http.StatusMethodNotAllowed:            {"405-another-method", "Another method"},
	http.StatusRequestTimeout:              {"408-too-slow", "Too slow"},
	http.StatusRequestEntityTooLarge:       {"413-too-much", "Too much"},
	http.StatusUnsupportedMediaType:        {"415-another-encoding", "Another encoding"},
	http.StatusMisdirectedRequest:          {"421-another-host", "Another host"},
	http.StatusRequestHeaderFieldsTooLarge: {"431-a-long-path", "A long path"},
	http.StatusInternalServerError:         {"500-internal-error", "Internal error"},
	http.StatusServiceUnavailable:          {"503-not-now", "Not now"},
	http.StatusGatewayTimeout:              {"504-too-late", "Too late"},
}

func refuse(status int, format string, args ...any) *problem {
	t, known := titles[status]
	if !known {
		status = http.StatusInternalServerError
		t = titles[status]
	}
	return &problem{Type: page + t.place, Title: t.title, Status: status, Detail: fmt.Sprintf(format, args...)}
}

func (p *problem) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	switch p.Status {
	case http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(p.body())
}

func (p *problem) body() []byte {
	body, _ := json.Marshal(p) // of strings and numbers, and JSON of the service's
	return append(body, '\n')
}

// answer writes a reply of the service. A whole answer has an ETag where its route says so.
func (d *door) answer(w http.ResponseWriter, h *http.Request, r *route, reply query.Reply) {
	if reply.Code != http.StatusOK {
		failed(reply).write(w)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-cache")                  // ask again, with If-None-Match
	if held := int64(len(reply.Data)) - roomFree; held > 0 { // until the client has taken it
		if !d.room.take(held) {
			unread(errNoRoom, 0).write(w)
			return
		}
		defer d.room.taken.Add(-held)
	}
	if r.tagged && d.same(header, h, reply.Data) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Length", strconv.Itoa(len(reply.Data)))
	_, _ = w.Write(reply.Data) // a client that is gone is no fault
}

func failed(reply query.Reply) *problem {
	p := refuse(reply.Code, "%s", reply.Message)
	p.More = reply.Data
	return p
}

// same sets the ETag of a whole answer, and says whether the asker has it already.
func (d *door) same(header http.Header, h *http.Request, reply []byte) bool {
	position := asOf(reply)
	if position == "" {
		return false
	}
	tag := `"` + position + `"`
	has := d.given.since(h, tag, reply)
	header.Set("ETag", cmp.Or(has, tag))
	return has != ""
}

// asOf is the position of a whole answer. A degraded one has none that stands for it.
func asOf(reply []byte) string {
	at := bytes.LastIndex(reply, []byte(`"as_of":"`))
	if at < 0 || bytes.Contains(reply[at:], []byte(`"degraded":true`)) {
		return ""
	}
	position, _, _ := bytes.Cut(reply[at+len(`"as_of":"`):], []byte{'"'})
	if _, err := strconv.ParseUint(string(position), 10, 64); err != nil {
		return ""
	}
	return string(position)
}
