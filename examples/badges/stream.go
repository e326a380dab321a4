package badges

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/query/client"
)

// state is what the page draws. Ids and positions are strings: JavaScript
// loses precision past 2^53.
type state struct {
	User     uint64            `json:"user,string"`
	Feed     uint64            `json:"feed"`
	Counts   map[string]int64  `json:"counts"`
	Channels map[string]uint64 `json:"channels"`
	Dots     map[string]bool   `json:"dots"`
	Posts    []post            `json:"posts"`
	AsOf     client.Position   `json:"as_of,string"`
	MadeUp   bool              `json:"made_up,omitempty"`
	Nodes    []node            `json:"nodes,omitempty"` // when there are several
}

// node is a process that has a part in the answers.
type node struct {
	Node  string `json:"node"`
	State string `json:"state"` // "up", "away", "draining"
	Holds bool   `json:"holds"` // numbers: an answer is put together of those of all that do
}

type post struct {
	Post   uint64 `json:"post,string"`
	Author uint64 `json:"author,string"`
	Likes  int64  `json:"likes"`
	Liked  bool   `json:"liked"` // by the user
}

// look asks what a user has not looked at yet, with at least the events up to
// least in it: whichever node answers, the page never goes back in time.
func (h *handler) look(ctx context.Context, user uint64, least client.Position) (*state, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	unread, err := h.client.UnreadMany(ctx, client.UnreadRequest{Users: []uint64{user}, MinPosition: least})
	if err != nil {
		return nil, err
	}
	if len(unread.Users) != 1 || unread.Users[0].Missing {
		return nil, fmt.Errorf("user %d cannot be read now: a part of the node is stopped", user)
	}
	u := unread.Users[0]
	// The posts up to where the numbers are: what is listed is what is counted.
	feed, err := h.client.Feed(ctx, client.FeedRequest{User: user, Limit: postsShown, Before: unread.AsOf + 1, MinPosition: unread.AsOf})
	if err != nil {
		return nil, err
	}
	s := &state{
		User: user, Feed: u.Feed, Counts: u.Counts, Channels: u.Channels, Dots: u.Dots,
		Posts: make([]post, len(feed.Posts)), AsOf: unread.AsOf, MadeUp: h.madeUp,
	}
	for i, p := range feed.Posts {
		s.Posts[i] = post{Post: p.Post, Author: p.Author}
	}
	if err := h.likes(ctx, s); err != nil {
		return nil, err
	}
	s.Nodes = h.nodes(ctx)
	return s, nil
}

// likes asks how many like the posts of a state, and whether its user does.
func (h *handler) likes(ctx context.Context, s *state) error {
	if len(s.Posts) == 0 {
		return nil
	}
	r := client.PageRequest{Viewer: s.User, MinPosition: s.AsOf}
	for _, p := range s.Posts {
		r.IDs = append(r.IDs, p.Post)
	}
	page, err := h.client.Page(ctx, r)
	if err != nil {
		return err
	}
	column, set := slices.Index(page.Columns, "like"), slices.Index(page.Sets, "like")
	for i, row := range page.Rows {
		if column >= 0 && set >= 0 && i < len(s.Posts) {
			s.Posts[i].Likes, s.Posts[i].Liked = row.Values[column], row.Has[set]
		}
	}
	return nil
}

// nodes are those there are, if there are several. Where none answers, the page does
// without.
func (h *handler) nodes(ctx context.Context) (list []node) {
	all, err := h.client.Nodes(ctx)
	if err != nil || len(all.Nodes) < 2 {
		return nil
	}
	for _, n := range all.Nodes {
		list = append(list, node{n.Node, n.State, n.Shards > 0})
	}
	return list
}

// events streams a user's state: at once, and whenever it has changed.
func (h *handler) events(w http.ResponseWriter, r *http.Request) {
	user, err := userOf(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	look, leave := h.streams.enter(user)
	if look == nil {
		http.Error(w, fmt.Sprintf("%d of these pages are open, which is all there may be: close one", streamsMax), http.StatusServiceUnavailable)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy in between passes it on at once
	s := stream{h: h, to: http.NewResponseController(w), w: w, user: user}
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	for {
		if err := s.step(r.Context()); err != nil {
			h.log.Debug("badges: a page is gone", "user", user, "error", err)
			return
		}
		select {
		case <-ticker.C:
		case <-look:
		case <-r.Context().Done():
			return
		}
	}
}

// stream is one page that is open.
type stream struct {
	h     *handler
	to    *http.ResponseController
	w     http.ResponseWriter
	user  uint64
	asOf  client.Position // of the last state
	said  []byte          // the last event
	quiet time.Time       // since when
}

// step asks once and sends the page what is new. An answer that does not come is shown
// too, and asked for again; an error means that the page is gone.
func (s *stream) step(ctx context.Context) error {
	event, data := "state", []byte(nil)
	now, err := s.h.look(ctx, s.user, s.asOf)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		event = "trouble"
		data, err = json.Marshal(err.Error())
	default:
		s.asOf = now.AsOf
		data, err = json.Marshal(now)
	}
	if err != nil {
		return err
	}
	message := fmt.Appendf(nil, "event: %s\ndata: %s\n\n", event, data)
	if bytes.Equal(message, s.said) {
		if time.Since(s.quiet) < quietMax {
			return nil
		}
		message = []byte(":\n\n") // still here
	} else {
		s.said = message
	}
	s.quiet = time.Now()
	return s.send(message)
}

func (s *stream) send(message []byte) error {
	if err := s.to.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
		return err
	}
	if _, err := s.w.Write(message); err != nil {
		return err
	}
	return s.to.Flush()
}

// streams are the pages that are open, streamsMax at most.
type streams struct {
	mu   sync.Mutex
	open map[chan struct{}]uint64 // their users
}

// enter adds a page. Look says that something is new; it is nil when there is
// no room. The page calls leave when it is done.
func (s *streams) enter(user uint64) (look <-chan struct{}, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) == streamsMax {
		return nil, nil
	}
	if s.open == nil {
		s.open = make(map[chan struct{}]uint64)
	}
	c := make(chan struct{}, 1)
	s.open[c] = user
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, c)
	}
}

// wake makes a user's pages look now.
func (s *streams) wake(user uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, of := range s.open {
		if of != user {
			continue
		}
		select {
		case c <- struct{}{}:
		default: // it is about to
		}
	}
}
