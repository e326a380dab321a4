package twin

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/tidemark-io/tidemark/pipeline"
)

// event is an event as its producer means it; zero fields are left out.
type event struct {
	kind                                  string
	actor, target, post, repostOf, author uint64
	delete                                bool

	channel string
	notice  uint64

	what  []string
	seen  map[string]int64
	asOf  asOf
	items []asOf

	comment, message uint64

	counter, column string
	id              uint64
	add, set        *int64
	del             bool

	page    uint64 // of the custom event "view"
	by      int64
	visitor string

	junk string // sent as it is; to be refused

	number uint64 // the sender's own, in a field that nobody reads; 0: none
}

// asOf says which answer a read's user was shown.
type asOf struct {
	kind asOfKind
	back uint64 // messages ago; of asOfAt, the position itself
}

type asOfKind uint8

const (
	asOfNone   asOfKind = iota // not given
	asOfBack                   // the position some messages ago
	asOfZero                   // 0
	asOfFuture                 // beyond the read itself
	asOfAt                     // a position
	asOfLine                   // some messages ago, in the upper bits, and a line of it, in the lowest 8
)

// position is what goes into the event at a position of its own; ok is false
// where nothing does.
func (a asOf) position(own pipeline.Position) (p pipeline.Position, ok bool) {
	switch a.kind {
	case asOfBack:
		return pipeline.EndOf(own.Sequence() - min(own.Sequence(), a.back+1)), true
	case asOfFuture:
		return own + 12_345, true
	case asOfAt:
		return pipeline.Position(a.back), true
	case asOfLine:
		return pipeline.At(own.Sequence()-min(own.Sequence()-1, a.back>>8), int(a.back&0xff)), true
	}
	return 0, a.kind == asOfZero
}

// message is one message of EVENTS: an event, or a pack of them.
type message struct {
	step   int64 // log time since the newest message before, ms; may be negative
	events []event
}

// encode is the message at its place in the log.
func (m *message) encode(sequence uint64) (subject string, data []byte) {
	if len(m.events) == 1 && m.events[0].junk == "" {
		e := &m.events[0]
		return "events." + e.kind, e.encode(pipeline.At(sequence, 0))
	}
	for i := range m.events {
		data = append(data, m.events[i].encode(pipeline.At(sequence, i))...)
		data = append(data, '\n')
	}
	return "events.pack", data
}

// encode is the event's JSON. Ids are numbers on even lines and strings on
// odd ones: requests and events accept both.
func (e *event) encode(own pipeline.Position) []byte {
	if e.junk != "" {
		return []byte(e.junk)
	}
	o := map[string]any{"type": e.kind, "unheard_of": []int{1}}
	if e.number != 0 {
		o[numberField] = e.number
	}
	id := func(name string, v uint64) {
		switch {
		case v != 0 && own.Line()%2 == 0:
			o[name] = json.Number(strconv.FormatUint(v, 10))
		case v != 0:
			o[name] = strconv.FormatUint(v, 10)
		}
	}
	id("actor", e.actor)
	id("target", e.target)
	id("post", e.post)
	id("repost_of", e.repostOf)
	id("author", e.author)
	id("notice", e.notice)
	id("id", e.id)
	id("page", e.page)
	id("comment", e.comment)
	id("message", e.message)
	text := func(name, v string) {
		if v != "" {
			o[name] = v
		}
	}
	text("channel", e.channel)
	text("counter", e.counter)
	text("column", e.column)
	if e.delete {
		o["delete"] = true
	}
	if e.del {
		o["del"] = true
	}
	if e.what != nil {
		o["what"] = e.what
	}
	if e.seen != nil {
		o["seen"] = e.seen
	}
	if p, ok := e.asOf.position(own); ok {
		o["as_of"] = p.String()
	}
	if e.items != nil {
		var items []any
		for i, of := range e.items {
			if p, _ := of.position(own); i%2 == 0 {
				items = append(items, p.String())
			} else {
				items = append(items, uint64(p))
			}
		}
		o["items"] = items
	}
	if e.add != nil {
		o["add"] = *e.add
	}
	if e.set != nil {
		o["set"] = *e.set
	}
	if e.by != 0 {
		o["by"] = e.by
	}
	putVisitor(o, e.visitor, own.Line())
	line, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return line
}

// numberField carries event.number: "Unknown fields are ignored".
const numberField = "soak"

func (m message) String() string {
	s := fmt.Sprintf("%+d ms", m.step)
	for i := range m.events {
		e := &m.events[i]
		s += "\n    " + string(e.encode(pipeline.At(1_000_000, i)))
		if e.asOf.kind == asOfBack {
			s += fmt.Sprintf("  (as_of: %d messages ago)", e.asOf.back)
		}
	}
	return s
}
