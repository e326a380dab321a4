package badges

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/query/client"
)

// read marks as read what a page has shown:
//
//	POST /read?user=7&what=comment&seen=comment:3&as_of=5119
//
// what and seen may be there many times. The answer is {"position":"…"}; a
// state as of there or later no longer has what was read.
func (h *handler) read(w http.ResponseWriter, r *http.Request) {
	request, err := readRequest(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), askWithin)
	defer cancel()
	position, err := h.client.Read(ctx, request)
	code := http.StatusOK
	switch {
	case err != nil && position != 0: // stored, and seen by and by
		code = http.StatusAccepted
	case err != nil:
		h.log.Warn("badges: a read failed", "user", request.User, "error", err)
		http.Error(w, err.Error(), codeOf(err))
		return
	}
	h.streams.wake(request.User)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(struct { // the page may be gone
		Position client.Position `json:"position,string"`
	}{position})
}

// readRequest insists on as_of: without one, a read takes away what nobody
// has seen.
func readRequest(query url.Values) (r client.ReadRequest, err error) {
	if r.User, err = userOf(query); err != nil {
		return r, err
	}
	if r.What = query["what"]; len(r.What) == 0 {
		return r, errors.New("what is missing: ?what=comment")
	}
	if !query.Has("as_of") {
		return r, errors.New("as_of is missing: the one that came with what was shown")
	}
	asOf, err := positionOf(query.Get("as_of"))
	if err != nil {
		return r, err
	}
	r.AsOf, r.Wait, r.Seen = &asOf, true, map[string]int64{}
	for _, text := range query["seen"] {
		column, count, _ := strings.Cut(text, ":")
		n, err := strconv.ParseInt(count, 10, 64)
		if err != nil || n < 0 {
			return r, fmt.Errorf("seen: %s is not a column and its count, like comment:3", clip(text))
		}
		r.Seen[column] = n
	}
	return r, nil
}

func positionOf(text string) (client.Position, error) {
	p, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("as_of: %s is not a position", clip(text))
	}
	return client.Position(p), nil
}

// codeOf: the codes of Tidemark's errors are those of HTTP.
func codeOf(err error) int {
	if e, ok := errors.AsType[*client.Error](err); ok && e.Code >= 400 && e.Code <= 599 {
		return e.Code
	}
	return http.StatusServiceUnavailable
}
