package acceptance_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/query/client"
)

// badge is a user's number of one kind, by the real program.
type badge struct {
	*testing.T
	p      *e2e.Process
	js     jetstream.JetStream
	c      *client.Client
	kind   string
	user   uint64
	latest client.Position // of the last event
}

// do publishes events, one JSON a line, and waits for none of them.
func (b *badge) do(events ...string) {
	b.Helper()
	for _, event := range events {
		var of struct{ Type string }
		if err := json.Unmarshal([]byte(event), &of); err != nil {
			b.Fatal(err)
		}
		ack, err := b.js.Publish(b.Context(), "events."+of.Type, []byte(event))
		if err != nil {
			b.Fatal(err)
		}
		b.latest = client.Position(ack.Sequence << 10)
	}
}

// is compares the number, and how many items are unread, with what they should be. It returns
// the answer's as_of.
func (b *badge) is(what string, want int) (asOf client.Position) {
	b.Helper()
	answer, err := b.c.UnreadMany(b.Context(), client.UnreadRequest{Users: []uint64{b.user}, MinPosition: b.latest})
	if err != nil {
		b.Fatal(err)
	}
	if got := answer.Users[0].Counts[b.kind]; got != int64(want) {
		b.Errorf("%s: %d unread, want %d", what, got, want)
	}
	if items := b.items(true); len(items) != want {
		b.Errorf("%s: unread items are %v, want %d", what, items, want)
	}
	return answer.AsOf
}

func (b *badge) items(unread bool) (items []client.InboxItem) {
	b.Helper()
	for item, err := range b.c.AllInbox(b.Context(), client.InboxRequest{User: b.user, Kinds: []string{b.kind}, Limit: 3, Unread: unread, MinPosition: b.latest}) {
		if err != nil {
			b.Fatal(err)
		}
		items = append(items, item)
	}
	return items
}

// read has the user read, and waits until it shows.
func (b *badge) read(r client.ReadRequest) {
	b.Helper()
	r.User, r.Wait, r.MinPosition = b.user, true, b.latest
	at, err := b.c.Read(b.Context(), r)
	if err != nil {
		b.Fatal(err)
	}
	b.latest = at
}

// examples are those of docs/unread.md, by their titles there.
var examples = map[string]func(b *badge){
	"A like that is taken back and given again.": func(b *badge) {
		like := fmt.Sprintf(`{"type":"like","actor":3,"post":50,"author":%d}`, b.user)
		for range 5 {
			b.do(like, undone(like))
		}
		b.do(like)
		b.is("given again", 1)
	},
	"The same like sent twice": func(b *badge) {
		like := fmt.Sprintf(`{"type":"like","actor":3,"post":50,"author":%d}`, b.user)
		b.do(like, like)
		b.is("sent twice", 1)
	},
	"A message that is withdrawn before anybody saw it.": func(b *badge) {
		b.kind = "message"
		message := fmt.Sprintf(`{"type":"message","actor":3,"target":%d,"message":900}`, b.user)
		b.do(message)
		b.is("sent", 1)
		b.do(undone(message))
		b.is("withdrawn", 0)
	},
	"A like that is taken back after it was read.": func(b *badge) {
		like := fmt.Sprintf(`{"type":"like","actor":3,"post":50,"author":%d}`, b.user)
		b.do(like)
		b.read(client.ReadRequest{What: []string{"like"}})
		b.is("read", 0)
		b.do(undone(like), strings.Replace(like, `"actor":3`, `"actor":4`, 1))
		b.is("unliked, and another", 1)
	},
	"A read of what was shown.": func(b *badge) {
		b.likes(2)
		shown := b.is("two", 2)
		b.likes(3)
		b.read(client.ReadRequest{What: []string{"like"}, AsOf: &shown})
		b.is("read up to two", 1)
	},
	"A nervous client": func(b *badge) {
		b.likes(2)
		shown := b.is("two", 2)
		b.likes(3)
		for range 3 {
			b.read(client.ReadRequest{What: []string{"all"}, AsOf: &shown})
			b.is("read up to two", 1)
		}
	},
	"Two devices.": func(b *badge) {
		b.likes(2)
		phone := b.is("two", 2)
		b.likes(5)
		desktop := b.is("five", 5)
		b.likes(6)
		b.read(client.ReadRequest{What: []string{"like"}, AsOf: &desktop})
		b.is("the desktop has read", 1)
		b.read(client.ReadRequest{What: []string{"like"}, AsOf: &phone})
		b.is("the phone has read", 1)
	},
	"Some of them seen.": func(b *badge) {
		b.kind = "comment"
		for i := range 5 {
			b.do(fmt.Sprintf(`{"type":"comment","actor":3,"post":50,"author":%d,"comment":%d}`, b.user, b.user*100+uint64(i)))
		}
		shown := b.is("five", 5)
		for range 2 {
			b.read(client.ReadRequest{What: []string{"comment"}, Seen: map[string]int64{"comment": 3}, AsOf: &shown})
			b.is("three seen", 2)
		}
	},
	"One of them opened.": func(b *badge) {
		b.likes(5)
		b.is("five", 5)
		second := b.items(false)[1]
		for range 2 {
			b.read(client.ReadRequest{Items: []client.Position{second.Position}})
			b.is("one opened", 4)
		}
		for i, item := range b.items(false) {
			if item.Read != (i == 1) {
				b.Errorf("item %d: %+v", i, item)
			}
		}
	},
	"A delete before its event": func(b *badge) {
		like := fmt.Sprintf(`{"type":"like","actor":3,"post":50,"author":%d}`, b.user)
		b.do(undone(like), like)
		b.is("deleted first", 1)
		b.do(undone(like))
		b.is("deleted again", 0)
	},
}

// likes has so many users have liked post 50 from now on: those who did, do it again.
func (b *badge) likes(n int) {
	b.Helper()
	for i := range n {
		b.do(fmt.Sprintf(`{"type":"like","actor":%d,"post":50,"author":%d}`, 11+i, b.user))
	}
}

func undone(event string) string { return strings.TrimSuffix(event, "}") + `,"delete":true}` }

// The worked examples of docs/unread.md, each of a user of its own, and once more what they
// left after kill -9: all that is read from the disk and derived again.
func TestUnreadExamples(t *testing.T) {
	t.Parallel()
	p := e2e.Prepare(t, e2e.Setup{Once: true})
	p.Start()
	nc := p.Connect()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(e2e.Root(), "docs", "unread.md"))
	if err != nil {
		t.Fatal(err)
	}
	document := string(text)
	var all []*badge
	var left []int
	for title, example := range examples {
		if !strings.Contains(document, "**"+title+"**") {
			t.Errorf("docs/unread.md has no example %q", title)
		}
		b := &badge{p: p, js: js, c: client.New(nc), kind: "like", user: 1000 + uint64(len(all))}
		t.Run(title, func(t *testing.T) {
			b.T = t
			example(b)
			left = append(left, len(b.items(true)))
		})
		all = append(all, b)
	}
	p.Kill()
	p.Start()
	p.WaitReady()
	c := client.New(p.Connect())
	for i, b := range all {
		b.T, b.c = t, c
		b.is("after kill -9", left[i])
	}
	out := p.Do("inbox", fmt.Sprint(all[0].user), "--limit", "100")
	if lines := strings.Count(out, "\n"); lines != len(all[0].items(false)) {
		t.Errorf("tidemark inbox: %d lines\n%s", lines, out)
	}
}
