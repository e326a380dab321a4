package badges

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tidemark-io/tidemark/query/client"
)

// like likes a post, or takes the like back:
//
//	POST /like?user=7&post=42&author=9
//	POST /like?user=7&post=42&author=9&undo=true
//
// The answer is {"position":"…"}. However often it is sent: one user likes a post once, or not.
func (h *handler) like(w http.ResponseWriter, r *http.Request) {
	event, user, err := likeOf(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), askWithin)
	defer cancel()
	position, err := h.client.Publish(ctx, event)
	if err != nil {
		h.log.Warn("badges: a like is not stored", "user", user, "error", err)
		http.Error(w, err.Error(), codeOf(err))
		return
	}
	h.streams.wake(user)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(struct { // the page may be gone
		Position client.Position `json:"position,string"`
	}{position})
}

func likeOf(query url.Values) (event client.Event, user uint64, err error) {
	if user, err = userOf(query); err != nil {
		return event, 0, err
	}
	var ids [2]uint64
	for i, name := range []string{"post", "author"} {
		if ids[i], err = strconv.ParseUint(query.Get(name), 10, 64); err != nil || ids[i] == 0 {
			return event, 0, fmt.Errorf("%s: %s is not an id", name, clip(query.Get(name)))
		}
	}
	if event = client.Like(user, ids[0], ids[1]); query.Get("undo") == "true" {
		event = event.Undo()
	}
	return event, user, nil
}

// item is what the bell lists.
type item struct {
	Position client.Position `json:"position,string"`
	Time     time.Time       `json:"time"`
	Kind     string          `json:"kind"`
	Actor    uint64          `json:"actor,string"`
	Post     uint64          `json:"post,string"` // 0: none
	Read     bool            `json:"read"`
}

// inbox lists the newest items of a user.
func (h *handler) inbox(w http.ResponseWriter, r *http.Request) {
	user, err := userOf(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), askWithin)
	defer cancel()
	reply, err := h.client.Inbox(ctx, client.InboxRequest{User: user, Limit: itemsShown})
	if err != nil {
		http.Error(w, err.Error(), codeOf(err))
		return
	}
	items := make([]item, len(reply.Items))
	for i, of := range reply.Items {
		items[i] = item{of.Position, of.Time, of.Kind, of.Actor, of.Post, of.Read}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(items) // the page may be gone
}
