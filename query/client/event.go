package client

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Event is one thing that happened, made by the functions below. It is a
// value: the methods give changed copies. What an Event lacks (an id that is
// 0) shows as an error where it is published.
type Event struct {
	kind   string
	fields []byte // `,"actor":7,"post":42`
	id     string
	at     int64 // Unix milliseconds, 0: none
	by     int64
	hasBy  bool
	undo   bool
	err    error
}

// Post: actor published post.
func Post(actor, post uint64) Event {
	return event("post").user("actor", actor).user("post", post)
}

// Repost: actor published post, which repeats repostOf by author.
func Repost(actor, post, repostOf, author uint64) Event {
	return Post(actor, post).user("repost_of", repostOf).user("author", author)
}

// Comment: actor commented on post, which is author's.
func Comment(actor, post, author uint64) Event {
	return event("comment").user("actor", actor).user("post", post).user("author", author)
}

// Like: actor likes post, which is author's.
func Like(actor, post, author uint64) Event {
	return event("like").user("actor", actor).user("post", post).user("author", author)
}

// Mention: actor mentioned target.
func Mention(actor, target uint64) Event {
	return event("mention").user("actor", actor).user("target", target)
}

// Follow: actor follows target from now on.
func Follow(actor, target uint64) Event {
	e := event("follow").user("actor", actor).user("target", target)
	if actor == target {
		return e.fail("follow: user %d cannot follow themself", actor)
	}
	return e
}

// Message: actor sent target a private message.
func Message(actor, target uint64) Event {
	return event("message").user("actor", actor).user("target", target)
}

// Notice: something for everyone on a channel.
func Notice(channel string, notice uint64) Event {
	return event("notice").text("channel", channel).user("notice", notice)
}

// Read: actor has looked at it: unread columns, "feed", "channel:<name>",
// "all". See also Seen and AsOf.
func Read(actor uint64, what ...string) Event {
	e := event("read").user("actor", actor)
	if len(what) == 0 {
		return e.fail("read: of what?")
	}
	fields := append(e.fields, `,"what":[`...)
	for i, name := range what {
		if i > 0 {
			fields = append(fields, ',')
		}
		fields = e.quote(fields, name)
	}
	e.fields = append(fields, ']')
	return e
}

// AdjustAdd adds to one cell; n may be negative.
func AdjustAdd(counter string, id uint64, column string, n int64) Event {
	return event("adjust").text("counter", counter).user("id", id).text("column", column).With("add", n)
}

// AdjustSet sets one cell.
func AdjustSet(counter string, id uint64, column string, value int64) Event {
	return event("adjust").text("counter", counter).user("id", id).text("column", column).With("set", value)
}

// AdjustDel deletes a whole row.
func AdjustDel(counter string, id uint64) Event {
	e := event("adjust").text("counter", counter).user("id", id)
	e.fields = append(e.fields, `,"del":true`...)
	return e
}

// Custom is an event that only the configuration's rules know, with ids and
// integers under any names; With and WithID add to it.
func Custom[V int64 | uint64](kind string, fields map[string]V) Event {
	e := event(kind)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		e = e.name(name)
		if v := fields[name]; v < 0 {
			e.fields = strconv.AppendInt(e.fields, int64(v), 10)
		} else {
			e.fields = strconv.AppendUint(e.fields, uint64(v), 10)
		}
	}
	return e
}

// Undo makes it the undoing of the same event: a deleted post, an unlike, an
// unfollow, a withdrawn notice.
func (e Event) Undo() Event {
	e.undo = true
	return e
}

// At notes when it happened. It is information only: the log's order counts.
func (e Event) At(t time.Time) Event {
	e.at = t.UnixMilli()
	return e
}

// By is the amount for custom counters; without it, 1.
func (e Event) By(n int64) Event {
	e.by, e.hasBy = n, true
	return e
}

// ID is the event's Nats-Msg-Id: within the stream's window of duplicates
// (two minutes unless configured) the same id is stored once. With an id,
// Publish tries again by itself when it is not known whether the event was
// stored. Make a new id for every action (crypto/rand.Text): one built from the
// content, like "like-7-42", drops the second like of like, unlike, like. A
// Packer's messages have ids of their own; there it does nothing.
func (e Event) ID(id string) Event {
	e.id = id
	return e
}

// Seen takes only so many off each 1:1 unread column, those that the user was
// shown. Once a read event.
func (e Event) Seen(seen map[string]int64) Event {
	fields := append(e.own().fields, `,"seen":{`...)
	for i, name := range slices.Sorted(maps.Keys(seen)) {
		if i > 0 {
			fields = append(fields, ',')
		}
		fields = append(e.quote(fields, name), ':')
		fields = strconv.AppendInt(fields, seen[name], 10)
	}
	e.fields = append(fields, '}')
	return e
}

// AsOf is the position in the answer that the user was shown: what came after
// stays unread. Once a read event.
func (e Event) AsOf(p Position) Event {
	e = e.own().name("as_of")
	e.fields = append(e.fields, '"')
	e.fields = strconv.AppendUint(e.fields, uint64(p), 10)
	e.fields = append(e.fields, '"')
	return e
}

// With adds an integer field.
func (e Event) With(name string, value int64) Event {
	e = e.own().name(name)
	e.fields = strconv.AppendInt(e.fields, value, 10)
	return e
}

// WithID adds an id field; 0 is not an id.
func (e Event) WithID(name string, id uint64) Event { return e.own().user(name, id) }

// own makes the next field go into memory of its own: two events that were
// made from one must not write over each other's.
func (e Event) own() Event {
	e.fields = slices.Clip(e.fields)
	return e
}

// Type is the event's type.
func (e Event) Type() string { return e.kind }

// AppendJSON appends the event as one line, its type included.
func (e Event) AppendJSON(line []byte) ([]byte, error) {
	switch {
	case e.err != nil:
		return line, e.err
	case !token(e.kind):
		return line, fmt.Errorf("client: %q is not an event type", e.kind)
	}
	line = append(line, `{"type":"`...)
	line = append(line, e.kind...)
	line = append(line, '"')
	line = append(line, e.fields...)
	if e.hasBy {
		line = append(line, `,"by":`...)
		line = strconv.AppendInt(line, e.by, 10)
	}
	if e.at != 0 {
		line = append(line, `,"at":`...)
		line = strconv.AppendInt(line, e.at, 10)
	}
	if e.undo {
		line = append(line, `,"delete":true`...)
	}
	return append(line, '}'), nil
}

func event(kind string) Event { return Event{kind: kind, fields: make([]byte, 0, 96)} }

func (e Event) fail(format string, args ...any) Event {
	if e.err == nil {
		e.err = fmt.Errorf("client: "+format, args...)
	}
	return e
}

// user adds an id, of a user or of whatever else has ids.
func (e Event) user(name string, id uint64) Event {
	if id == 0 {
		return e.fail("%s: %s is 0, which is not an id", e.kind, name)
	}
	e = e.name(name)
	e.fields = strconv.AppendUint(e.fields, id, 10)
	return e
}

func (e Event) text(name, value string) Event {
	if value == "" {
		return e.fail("%s: %s is empty", e.kind, name)
	}
	e = e.name(name)
	e.fields = e.quote(e.fields, value)
	return e
}

// name begins a field. Fields that a method of its own writes are refused.
func (e Event) name(name string) Event {
	switch name {
	case "type", "at", "by", "delete":
		return e.fail("%s: a field cannot be called %q", e.kind, name)
	}
	e.fields = append(e.quote(append(e.fields, ','), name), ':')
	return e
}

func (e *Event) quote(dst []byte, text string) []byte {
	out, err := jsontext.AppendQuote(dst, text)
	if err != nil && e.err == nil {
		e.err = fmt.Errorf("client: %s: %q: %w", e.kind, text, err)
	}
	return out
}

// token: can it be the last token of a subject?
func token(name string) bool {
	for _, c := range []byte(name) {
		if c <= ' ' || c >= 0x7f || c == '.' || c == '*' || c == '>' || c == '"' || c == '\\' {
			return false
		}
	}
	return name != "" && name != "pack"
}
