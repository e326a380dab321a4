package badges

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/tidemark-io/tidemark/query/client"
)

// read marks as read what a page has shown:
//
//	POST /read?user=7&what=comment&as_of=5119
//	POST /read?user=7&item=4096
//
// what and item may be there many times. The answer is {"position":"…"}; a
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

// readRequest insists on as_of, but for a read of single items: without one, a read takes
// away what nobody has seen.
func readRequest(query url.Values) (r client.ReadRequest, err error) {
	if r.User, err = userOf(query); err != nil {
		return r, err
	}
	r.Wait = true
	for _, text := range query["item"] {
		position, err := positionOf("item", text)
		if err != nil {
			return r, err
		}
		r.Items = append(r.Items, position)
	}
	if r.What = query["what"]; len(r.What) == 0 && len(r.Items) == 0 {
		return r, errors.New("what is missing: ?what=comment")
	}
	if len(r.Items) > 0 {
		return r, nil
	}
	if !query.Has("as_of") {
		return r, errors.New("as_of is missing: the one that came with what was shown")
	}
	asOf, err := positionOf("as_of", query.Get("as_of"))
	r.AsOf = &asOf
	return r, err
}

func positionOf(name, text string) (client.Position, error) {
	p, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %s is not a position", name, clip(text))
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
