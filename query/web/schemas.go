package web

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"
)

// The shapes of requests and answers, for the document. A field without omitempty is in
// each answer; one with the name "*" stands for all others, by their names. Package
// query/service writes answers by hand, without these types: TestAnswersAreDescribed
// (internal/node) holds real ones of each kind against them.

// whole is what an answer says of itself.
type whole struct {
	AsOf     string   `json:"as_of"`              // position
	Degraded bool     `json:"degraded,omitempty"` // true: something is missing, or it may be old
	StaleMS  int64    `json:"stale_ms,omitempty"` // how old it may be
	Missing  []string `json:"missing,omitempty"`  // ids or users that cannot be read now
}

type (
	getAnswer struct {
		Rows []row `json:"rows"`
		whole
	}
	row struct {
		ID      string           `json:"id"`
		Has     map[string]bool  `json:"has,omitempty"` // by column
		Columns map[string]int64 `json:"*"`             // none of a row that is missing
	}
	unreadAnswer struct {
		Users []userUnread `json:"users"`
		whole
	}
	userUnread struct { // of one that is missing only User
		User     string           `json:"user"`
		Feed     int64            `json:"feed,omitempty"`
		Counts   map[string]int64 `json:"counts,omitempty"`
		Channels map[string]int64 `json:"channels,omitempty"`
		Dots     map[string]bool  `json:"dots,omitempty"`
	}
	readRequest struct {
		User        id               `json:"user"`
		What        []string         `json:"what,omitempty"` // or items
		Seen        map[string]int64 `json:"seen,omitempty"`
		Items       []id             `json:"items,omitempty"`
		AsOf        id               `json:"as_of,omitempty"`
		Wait        bool             `json:"wait,omitempty"`
		MinPosition id               `json:"min_position,omitempty"`
		MinSeq      id               `json:"min_seq,omitempty"`
		TimeoutMS   id               `json:"timeout_ms,omitempty"`
	}
	readAnswer struct {
		Position string `json:"position"`
	}
	feedAnswer struct {
		Posts []feedPost `json:"posts"`
		Next  string     `json:"next,omitempty"` // none at the end
		whole
	}
	feedPost struct {
		Post     string `json:"post"`
		Author   string `json:"author"`
		Position string `json:"position"`
	}
	usersAnswer struct {
		Users []string `json:"users"`
		Next  string   `json:"next,omitempty"`
		whole
	}
	membersAnswer struct {
		Members []member `json:"members"`
		Next    string   `json:"next,omitempty"`
		whole
	}
	inboxAnswer struct {
		Items []inboxItem `json:"items"`
		Next  string      `json:"next,omitempty"`
		whole
	}
	inboxItem struct {
		Position string    `json:"position"`
		Time     time.Time `json:"time"`
		Kind     string    `json:"kind"`
		Actor    string    `json:"actor,omitempty"`
		Post     string    `json:"post,omitempty"`
		Read     bool      `json:"read"`
	}
	explainAnswer struct {
		ID      string            `json:"id"`
		Value   int64             `json:"value"`
		Numbers map[string]int64  `json:"numbers,omitempty"`
		Since   map[string]string `json:"since,omitempty"` // positions
		Notes   []string          `json:"notes,omitempty"`
		Events  []explainEvent    `json:"events"`
		Next    string            `json:"next,omitempty"`
		Base    explainBase       `json:"base"`
		whole
	}
	explainEvent struct {
		Position string            `json:"position"`
		Time     time.Time         `json:"time"`
		Type     string            `json:"type"`
		Change   string            `json:"change"`
		Changes  map[string]string `json:"changes,omitempty"`
		Unsure   bool              `json:"unsure,omitempty"`
		Event    json.RawMessage   `json:"event"` // null where it is too long
		Bytes    int64             `json:"event_bytes,omitempty"`
	}
	explainBase struct {
		Position string `json:"position"`
		Value    int64  `json:"value,omitempty"`
	}
)

// described is a type that says itself what it is like.
type described interface{ schema() object }

// id is a 64-bit number in a request: a string of digits, or a number.
type id struct{}

func (id) schema() object {
	return object{"oneOf": []any{object{"type": "string", "pattern": "^[0-9]+$"}, object{"type": "integer"}}}
}

// member is one of a set: an id, or a pair of them.
type member struct{}

func (member) schema() object {
	text := object{"type": "string"}
	return object{"oneOf": []any{text, object{"type": "array", "items": text, "minItems": 2, "maxItems": 2}}}
}

// schemas are those of struct types, by their names.
type schemas object

// of describes what encoding/json makes of a value like this one.
func (s schemas) of(like any) object { return s.ofType(reflect.TypeOf(like)) }

func (s schemas) ofType(t reflect.Type) object {
	switch like := reflect.New(t).Elem().Interface().(type) {
	case described:
		return like.schema()
	case time.Time:
		return object{"type": "string", "format": "date-time"}
	case json.RawMessage:
		return object{"type": []any{"object", "null"}}
	}
	switch t.Kind() {
	case reflect.Struct:
		return s.ofStruct(t)
	case reflect.Slice:
		return object{"type": "array", "items": s.ofType(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.ofType(t.Elem())}
	case reflect.Pointer:
		o := s.ofType(t.Elem())
		o["type"] = []any{o["type"], "null"}
		return o
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	}
	return object{"type": "integer", "format": "int64"}
}

func (s schemas) ofStruct(t reflect.Type) object {
	title := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	reference := object{"$ref": "#/components/schemas/" + title}
	if s[title] != nil {
		return reference
	}
	properties, required := object{}, []any{}
	o := object{"type": "object", "properties": properties}
	s[title] = o
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			continue
		case name == "*":
			o["additionalProperties"] = s.ofType(f.Type.Elem())
			continue
		case options == "string":
			properties[name] = object{"type": "string"}
		default:
			properties[name] = s.ofType(f.Type)
		}
		if options != "omitempty" {
			required = append(required, name)
		}
	}
	if len(required) > 0 {
		o["required"] = required
	}
	return reference
}
