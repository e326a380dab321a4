// Package badges is an example: a page in the browser that shows one user's
// badges while others post, comment and like.
//
//	http.Handle("/demo/", http.StripPrefix("/demo", badges.Handler(c, badges.Options{})))
//
// It is what an application in front of Tidemark does, in small. The page (page/) opens
// one stream of server-sent events for the user that it shows; stream.go asks
// tidemark.unread and tidemark.feed for it twice a second and sends the page what
// changed. A click on a badge comes back as a request that read.go turns into
// tidemark.read. The bell opens what is behind the numbers, of tidemark.inbox, and a heart
// publishes a like or takes it back (like.go). All are asked over NATS with query/client, as
// any other program would.
//
// What keeps the numbers right (I7): a read says what the page had drawn when
// it was clicked, by as_of. What arrived between the drawing and the click stays unread. And
// a like is one like, however often the heart is pressed.
//
// There is no login: each visitor of the page may look at any user, and read for them.
// An application knows its user and takes no id from the URL.
package badges

import (
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tidemark-io/tidemark/query/client"
)

const (
	// streamsMax is how many pages may be open at once. Each asks two
	// questions every askEvery.
	streamsMax = 64
	askEvery   = 500 * time.Millisecond
	// askWithin bounds one question or one read.
	askWithin = 5 * time.Second
	// quietMax is the longest that a stream says nothing: a page that has gone
	// without a word is noticed by then.
	quietMax = 15 * time.Second
	// writeWithin bounds one write to a page that takes nothing.
	writeWithin = 5 * time.Second
	// postsShown is how many of the feed's newest posts the page lists.
	postsShown = 6
	// itemsShown is how many items the bell lists.
	itemsShown = 30
)

//go:embed page
var files embed.FS

// Options say what a page is about.
type Options struct {
	MadeUp bool         // the page says that its users are made up
	Logger *slog.Logger // default: none
}

type handler struct {
	client  *client.Client
	madeUp  bool
	log     *slog.Logger
	streams streams
}

// Handler serves the page at /, its changes at /events and /inbox, and its clicks at
// /read and /like. The client stays the caller's to close, after the server. A stream
// ends with its request's context: a server that is to stop at once cancels
// its BaseContext.
func Handler(c *client.Client, o Options) http.Handler {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	page, err := fs.Sub(files, "page")
	if err != nil {
		panic(err) // it is built in
	}
	h := &handler{client: c, madeUp: o.MadeUp, log: o.Logger}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(page))
	mux.HandleFunc("GET /events", h.events)
	mux.HandleFunc("POST /read", h.read)
	mux.HandleFunc("GET /inbox", h.inbox)
	mux.HandleFunc("POST /like", h.like)
	// A page from elsewhere in the same browser must not read for anybody.
	return secure(http.NewCrossOriginProtection().Handler(mux))
}

// secure lets the page use its own files only, and no other page frame it.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Cache-Control", "no-cache") // the page is the program's, whichever runs
		next.ServeHTTP(w, r)
	})
}

// userOf is the user that a request is about.
func userOf(query url.Values) (uint64, error) {
	text := query.Get("user")
	user, err := strconv.ParseUint(text, 10, 64)
	switch {
	case text == "":
		return 0, fmt.Errorf("user is missing: ?user=7")
	case err != nil || user == 0:
		return 0, fmt.Errorf("%s is not a user: a whole number from 1 to 18446744073709551615", clip(text))
	}
	return user, nil
}

// clip quotes what a request said, short enough to say back.
func clip(text string) string {
	const most = 40
	if len(text) > most {
		return strconv.Quote(text[:most]) + "…"
	}
	return strconv.Quote(text)
}
