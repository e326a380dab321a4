package badges_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/query/client"
)

// state is what a page is told, as it goes over the wire.
type state struct {
	User     string
	Feed     int
	Counts   map[string]int
	Channels map[string]int
	Dots     map[string]bool
	Posts    []struct {
		Post, Author string
		Likes        int
		Liked        bool
	}
	AsOf   string `json:"as_of"`
	MadeUp bool   `json:"made_up"`
}

// listener is a page's stream of events.
type listener struct {
	t      testing.TB
	body   io.ReadCloser
	states chan state
	err    error // what cut the stream off, once states is closed; nil: the node ended it
}

func (p *place) listen(user string) *listener {
	p.t.Helper()
	reply, err := http.Get(p.url + "events?user=" + user)
	if err != nil {
		p.t.Fatal(err)
	}
	if got := reply.Header.Get("Content-Type"); reply.StatusCode != 200 || got != "text/event-stream" {
		p.t.Fatalf("%s, %s", reply.Status, got)
	}
	l := &listener{t: p.t, body: reply.Body, states: make(chan state, 1024)}
	go func() {
		defer close(l.states)
		event, lines := "", bufio.NewScanner(l.body)
		defer func() { l.err = lines.Err() }()
		for lines.Scan() {
			key, value, _ := strings.Cut(lines.Text(), ": ")
			switch {
			case key == "event":
				event = value
			case key == "data" && event == "state":
				var s state
				if err := json.Unmarshal([]byte(value), &s); err != nil {
					p.t.Errorf("%s: %v", value, err)
				}
				l.states <- s
			}
		}
	}()
	p.t.Cleanup(func() { l.body.Close() })
	return l
}

// until is the first state that is good.
func (l *listener) until(what string, good func(s state) bool) (s state) {
	l.t.Helper()
	late := time.After(2 * time.Minute)
	for {
		select {
		case now, open := <-l.states:
			if !open {
				l.t.Fatalf("%s: the stream ended; before: %+v", what, s)
			}
			if s = now; good(s) {
				return s
			}
		case <-late:
			l.t.Fatalf("%s: not in time; the last: %+v", what, s)
		}
	}
}

func (p *place) read(query string) (code int, text string) { return p.post("read?" + query) }

func (p *place) post(query string) (code int, text string) {
	p.t.Helper()
	reply, err := http.Post(p.url+query, "", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return reply.StatusCode, string(body)
}

// The example shows a user's badges changing live as the demo community acts, over the
// real query API.
func TestStream(t *testing.T) {
	p := open(t)
	l := p.listen("7")
	s := l.until("at once", func(state) bool { return true })
	if s.User != "7" || s.Counts["comment"] != 0 || len(s.Counts) != 6 || s.Dots["games"] || s.Posts == nil || !s.MadeUp {
		t.Errorf("nothing yet: %+v", s)
	}
	p.publish(client.Follow(7, 9), client.Read(7, "all"))
	p.publish(client.Post(9, 100), client.Post(9, 1<<63+1), client.Comment(9, 50, 7), client.Message(8, 7), client.Notice("system", 1), client.Notice("games", 2))
	s = l.until("all of it", func(s state) bool { return s.Dots["games"] })
	if fmt.Sprint(s.Feed, s.Counts, s.Channels, s.Posts) != "2 map[comment:1 follower:0 like:0 mention:0 message:1 repost:0] map[system:1] [{9223372036854775809 9 0 false} {100 9 0 false}]" {
		t.Errorf("got %+v", s)
	}

	code, text := p.read("user=7&what=comment&what=feed&as_of=" + s.AsOf)
	if code != 200 || !strings.Contains(text, `{"position":"`) {
		t.Errorf("%d %s", code, text)
	}
	s = l.until("read", func(s state) bool { return s.Counts["comment"] == 0 })
	if s.Feed != 0 || s.Counts["message"] != 1 || s.Channels["system"] != 1 || !s.Dots["games"] || len(s.Posts) != 2 {
		t.Errorf("more or less was read than was asked: %+v", s)
	}
	if code, text := p.read("user=7&what=all&as_of=" + s.AsOf); code != 200 {
		t.Errorf("%d %s", code, text)
	}
	s = l.until("all read", func(s state) bool { return !s.Dots["games"] })
	if s.Counts["message"] != 0 || s.Channels["system"] != 0 {
		t.Errorf("got %+v", s)
	}
}

// A heart that is pressed like mad is one like, or none; the bell lists it, and a click on it
// reads it alone.
func TestLikes(t *testing.T) {
	p := open(t)
	p.publish(client.Follow(7, 9), client.Post(9, 100), client.Like(5, 100, 9))
	l := p.listen("7")
	press := func(query string) {
		t.Helper()
		if code, text := p.post("like?user=7&post=100&author=9" + query); code != http.StatusOK || !strings.HasPrefix(text, `{"position":"`) {
			t.Errorf("%d %s", code, text)
		}
	}
	for range 5 {
		press("")
		press("")
		press("&undo=true")
	}
	l.until("not liked", func(s state) bool { return len(s.Posts) == 1 && s.Posts[0].Likes == 1 && !s.Posts[0].Liked })
	press("")
	l.until("liked", func(s state) bool { return s.Posts[0].Likes == 2 && s.Posts[0].Liked })
	author := p.listen("9")
	author.until("two likes", func(s state) bool { return s.Counts["like"] == 2 })
	reply, err := http.Get(p.url + "inbox?user=9")
	if err != nil {
		t.Fatal(err)
	}
	var items []struct {
		Position, Kind, Actor, Post string
		Read                        bool
	}
	if err := json.NewDecoder(reply.Body).Decode(&items); err != nil || len(items) != 3 || items[0].Kind != "like" || items[0].Actor != "7" || items[0].Post != "100" || items[0].Read {
		t.Fatalf("%v: %+v", err, items)
	}
	if code, text := p.read("user=9&item=" + items[0].Position); code != 200 {
		t.Errorf("%d %s", code, text)
	}
	author.until("one read", func(s state) bool { return s.Counts["like"] == 1 })
	for query, want := range map[string]string{
		"user=7&post=0&author=9": `400 post: "0" is not an id`, "user=7&post=1": `400 author: "" is not an id`, "post=1&author=9": "400 user is missing",
	} {
		if code, text := p.post("like?" + query); !strings.HasPrefix(fmt.Sprint(code, " ", text), want) {
			t.Errorf("like?%s: %d %s", query, code, text)
		}
	}
}

// I7: what arrived after the page was drawn stays unread.
func TestReadLeavesWhatCameLater(t *testing.T) {
	p := open(t)
	p.publish(client.Follow(7, 9), client.Read(7, "all"))
	p.publish(client.Post(9, 1), client.Comment(9, 50, 7), client.Comment(9, 50, 7), client.Notice("system", 1), client.Notice("games", 1))
	l := p.listen("7")
	drawn := l.until("drawn", func(state) bool { return true })
	if drawn.Feed != 1 || drawn.Counts["comment"] != 2 || drawn.Channels["system"] != 1 || !drawn.Dots["games"] {
		t.Fatalf("drawn: %+v", drawn)
	}
	// The user has not seen these when the click comes.
	p.publish(client.Post(9, 2), client.Post(9, 3), client.Comment(9, 50, 7), client.Notice("system", 2), client.Notice("games", 2))
	before := l.until("more", func(s state) bool { return s.Channels["system"] == 2 && s.Counts["comment"] == 3 })
	if code, text := p.read("user=7&what=all&as_of=" + drawn.AsOf); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	s := l.until("read", func(s state) bool { return s.Counts["comment"] != before.Counts["comment"] })
	if s.Feed != 2 || s.Counts["comment"] != 1 || s.Channels["system"] != 1 || !s.Dots["games"] {
		t.Errorf("of 2 posts, 1 comment, 1 notice and a dot that nobody has seen: %+v", s)
	}
}

// Bad user ids get 400 in words.
func TestRefusals(t *testing.T) {
	p := open(t)
	for query, want := range map[string]string{
		"":                          "user is missing",
		"user=":                     "user is missing",
		"user=0":                    `"0" is not a user: a whole number from 1`,
		"user=-1":                   `"-1" is not a user`,
		"user=18446744073709551616": `"18446744073709551616" is not a user`,
		"user=me":                   `"me" is not a user`,
		"user=" + url.QueryEscape(strings.Repeat("<b>", 1000)): `…`,
	} {
		reply, err := http.Get(p.url + "events?" + query)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(reply.Body)
		reply.Body.Close()
		if reply.StatusCode != 400 || !strings.Contains(string(body), want) || len(body) > 200 {
			t.Errorf("events?%.40s: %d %s", query, reply.StatusCode, body)
		}
		if code, body := p.read(query + "&what=feed&as_of=1"); code != 400 || !strings.Contains(body, want) {
			t.Errorf("read?%.40s: %d %s", query, code, body)
		}
	}
	for query, want := range map[string]string{
		"user=7&as_of=1":               "400 what is missing",
		"user=7&what=feed":             "400 as_of is missing",
		"user=7&what=feed&as_of=soon":  `400 as_of: "soon" is not a position`,
		"user=7&what=nonsense&as_of=1": `404 tidemark: what[0]: "nonsense"`,
		"user=7&item=x":                `400 item: "x" is not a position`,
	} {
		if code, body := p.read(query); !strings.HasPrefix(fmt.Sprint(code, " ", body), want) {
			t.Errorf("read?%s: %d %s, want %s", query, code, body, want)
		}
	}
}

// Another site's page in the same browser reads for nobody.
func TestReadFromElsewhere(t *testing.T) {
	p := open(t)
	request, err := http.NewRequest("POST", p.url+"read?user=7&what=all&as_of=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Sec-Fetch-Site", "cross-site")
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	reply.Body.Close()
	if reply.StatusCode != http.StatusForbidden {
		t.Error(reply.Status)
	}
}

// As many pages as there may be, and no more; one that closes makes room.
func TestStreamsAreBounded(t *testing.T) {
	p := open(t)
	var all []*listener
	for range 64 {
		all = append(all, p.listen("7"))
	}
	another := func() int {
		reply, err := http.Get(p.url + "events?user=8")
		if err != nil {
			t.Fatal(err)
		}
		reply.Body.Close()
		return reply.StatusCode
	}
	if code := another(); code != 503 {
		t.Errorf("the 65th: %d", code)
	}
	all[0].body.Close()
	for began := time.Now(); another() != 200; time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 2*time.Minute {
			t.Fatal("no room after one has closed")
		}
	}
}

// A node that stops ends the streams of open pages. It does not wait until its time to close
// is over, and then cut them off.
func TestStopEndsStreams(t *testing.T) {
	p := open(t)
	l := p.listen("7")
	l.until("at once", func(state) bool { return true })
	if err := p.node.Close(); err != nil {
		t.Error(err)
	}
	for range l.states {
	}
	if l.err != nil {
		t.Errorf("the stream was cut off: %v", l.err)
	}
}

// The page is whole: it names no file that is not there, and nothing outside.
func TestPage(t *testing.T) {
	p := open(t)
	for file, kind := range map[string]string{"": "text/html", "badges.css": "text/css", "badges.js": "text/javascript"} {
		reply, err := http.Get(p.url + file)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(reply.Body)
		reply.Body.Close()
		if reply.StatusCode != 200 || !strings.HasPrefix(reply.Header.Get("Content-Type"), kind) || len(body) == 0 {
			t.Errorf("%s: %s %s", file, reply.Status, reply.Header.Get("Content-Type"))
		}
		if !strings.Contains(reply.Header.Get("Content-Security-Policy"), "default-src 'self'") {
			t.Errorf("%s may reach outside", file)
		}
	}
}
