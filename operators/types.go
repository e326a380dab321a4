package operators

import (
	"strings"

	"github.com/tidemark-io/tidemark/pipeline"
)

// fixedTypes are the event types with a meaning of their own.
var fixedTypes = map[string]operator{
	"post":    post,
	"comment": onPost,
	"like":    onPost,
	"mention": mention,
	"message": toTarget,
	"follow":  follow,
	"notice":  notice,
	"read":    read,
	"adjust":  adjust,
}

// need reads ids that the type requires.
func (l *Lane) need(slots ...int) *refusal {
	for _, slot := range slots {
		if err := l.want(slot); err != nil {
			return err
		}
		if l.ids[slot] == 0 {
			return l.noID(slot)
		}
	}
	return nil
}

// want reads an id that may be absent; it is 0 then.
func (l *Lane) want(slot int) *refusal {
	id, ok := l.object.id(slot)
	if !ok {
		return refuse(pipeline.ReasonID, "%s: %s is not an unsigned 64-bit integer", l.fieldNames[slot], clip(l.object.fields[slot]))
	}
	l.ids[slot] = id
	return nil
}

func (l *Lane) noID(slot int) *refusal {
	if l.object.has(slot) {
		return refuse(pipeline.ReasonID, "%s: 0 is not an id", l.fieldNames[slot])
	}
	return refuse(pipeline.ReasonID, "%s is missing", l.fieldNames[slot])
}

func post(l *Lane) *refusal {
	if err := l.need(fieldActor, fieldPost); err != nil {
		return err
	}
	if err := l.want(fieldRepostOf); err != nil {
		return err
	}
	if l.ids[fieldRepostOf] != 0 {
		return l.need(fieldAuthor)
	}
	return nil
}

func onPost(l *Lane) *refusal   { return l.need(fieldActor, fieldPost, fieldAuthor) }
func toTarget(l *Lane) *refusal { return l.need(fieldActor, fieldTarget) }

func mention(l *Lane) *refusal {
	if err := l.want(fieldPost); err != nil {
		return err
	}
	return l.need(fieldActor, fieldTarget)
}

func follow(l *Lane) *refusal {
	if err := l.need(fieldActor, fieldTarget); err != nil {
		return err
	}
	if l.ids[fieldActor] == l.ids[fieldTarget] {
		return refuse(pipeline.ReasonSelf, "user %d follows themself", l.ids[fieldActor])
	}
	return nil
}

func notice(l *Lane) *refusal {
	name, ok := l.object.text(fieldChannel)
	if !ok || !validChannel(name) {
		return refuse(pipeline.ReasonField, "channel: %s is not a name of 1 to 64 of a-z 0-9 _ -", clip(l.object.fields[fieldChannel]))
	}
	return l.need(fieldNotice)
}

func validChannel(name string) bool {
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return len(name) >= 1 && len(name) <= 64
}

// custom reads the ids that the type's rules name.
func custom(l *Lane) *refusal {
	if l.object.has(fieldBy) {
		by, ok := l.object.integer(fieldBy)
		if !ok {
			return refuse(pipeline.ReasonField, "by: %s is not a 64-bit integer", clip(l.object.fields[fieldBy]))
		}
		l.by = by
	}
	if err := l.want(fieldActor); err != nil {
		return err
	}
	for i := range l.event.code {
		if err := l.want(l.event.code[i].key); err != nil {
			return err
		}
	}
	return nil
}

// read takes the user's unread columns back to 0, or takes off what was seen.
func read(l *Lane) *refusal {
	if err := l.need(fieldActor); err != nil {
		return err
	}
	if l.deletion {
		return refuse(pipeline.ReasonField, "delete: a read cannot be undone")
	}
	if _, ok := l.object.id(fieldAsOf); !ok {
		return refuse(pipeline.ReasonField, "as_of: %s is not a position", clip(l.object.fields[fieldAsOf]))
	}
	what, ok := l.object.texts(fieldWhat, WhatMax)
	if !ok || len(what) == 0 {
		return refuse(pipeline.ReasonField, "what: it must be a list of 1 to %d names", WhatMax)
	}
	clear(l.looked)
	for _, name := range what {
		if err := l.look(name); err != nil {
			return err
		}
	}
	return l.see()
}

// look marks what one entry of read.what names.
func (l *Lane) look(name string) *refusal {
	switch {
	case name == "all":
		for i := range l.looked {
			l.looked[i] = lookedAll
		}
		return nil
	case name == "feed":
		return nil
	case strings.HasPrefix(name, "channel:"):
		if !validChannel(name[len("channel:"):]) {
			return refuse(pipeline.ReasonField, "what: %s is not a channel's name", clip([]byte(name)))
		}
		return nil
	}
	for i, c := range l.unreadCols {
		if l.schema.Columns[c].Name == name {
			l.looked[i] = lookedAll
			return nil
		}
	}
	return refuse(pipeline.ReasonUnknown, "what: %s is not something unread", clip([]byte(name)))
}

// lookedAll marks an unread column that goes to 0; a number n ≥ 0 plus
// lookedSeen one of which n are taken off.
const (
	lookedAll  = 1
	lookedSeen = 2
)

// see reads read.seen and adds the changes of every column looked at.
func (l *Lane) see() *refusal {
	var fault *refusal
	clear(l.seen)
	if l.object.has(fieldSeen) {
		ok := l.object.pairs(fieldSeen, func(name string, value []byte) bool {
			fault = l.seeOne(name, value)
			return fault == nil
		})
		if fault != nil {
			return fault
		}
		if !ok {
			return refuse(pipeline.ReasonField, "seen: it must be an object of counts")
		}
	}
	user := l.ids[fieldActor]
	for i, c := range l.unreadCols {
		switch l.looked[i] {
		case lookedAll:
			l.change(c, user, pipeline.Set(0), false)
		case lookedAll | lookedSeen:
			l.change(c, user, pipeline.Take(l.seen[i]), true)
		}
	}
	return nil
}

func (l *Lane) seeOne(name string, value []byte) *refusal {
	for i, c := range l.unreadCols {
		if l.schema.Columns[c].Name != name {
			continue
		}
		n, ok := parseUint(unquoted(value))
		if !ok || n > pipeline.Limit {
			return refuse(pipeline.ReasonField, "seen.%s: %s is not a count", name, clip(value))
		}
		l.looked[i] |= lookedSeen
		l.seen[i] = int64(n)
		return nil
	}
	return refuse(pipeline.ReasonUnknown, "seen: %s is not an unread column", clip([]byte(name)))
}

// adjust is the counter service's own incr, set and del.
func adjust(l *Lane) *refusal {
	if l.deletion {
		return refuse(pipeline.ReasonField, "delete: an adjust cannot be undone; add the opposite")
	}
	if err := l.need(fieldID); err != nil {
		return err
	}
	name, ok := l.object.text(fieldCounter)
	if !ok {
		return refuse(pipeline.ReasonField, "counter is missing or not a string")
	}
	counter, ok := l.schema.Counter(name)
	if !ok {
		return refuse(pipeline.ReasonUnknown, "counter %s is not configured", clip([]byte(name)))
	}
	del, ok := l.object.truth(fieldDel)
	if !ok {
		return refuse(pipeline.ReasonField, "del: %s is not true or false", clip(l.object.fields[fieldDel]))
	}
	add, set := l.object.has(fieldAdd), l.object.has(fieldSet)
	if given := count(del, add, set); given != 1 {
		return refuse(pipeline.ReasonField, "exactly one of add, set and del is wanted, %d given", given)
	}
	id := l.ids[fieldID]
	if del {
		if l.object.has(fieldColumn) {
			return refuse(pipeline.ReasonField, "column: del takes the whole row away; use set for one column")
		}
		l.delete(counter, id)
		return nil
	}
	name, ok = l.object.text(fieldColumn)
	if !ok {
		return refuse(pipeline.ReasonField, "column is missing or not a string")
	}
	column, ok := l.schema.In(counter, name)
	if !ok {
		return refuse(pipeline.ReasonUnknown, "column %s is not in counter %s", clip([]byte(name)), l.schema.Counters[counter].Name)
	}
	slot, law := fieldAdd, pipeline.Add
	if set {
		slot, law = fieldSet, pipeline.Set
	}
	n, ok := l.object.integer(slot)
	if !ok {
		return refuse(pipeline.ReasonField, "%s: %s is not a 64-bit integer", l.fieldNames[slot], clip(l.object.fields[slot]))
	}
	l.change(column, id, law(n), true)
	return nil
}

// delete takes a whole row away.
func (l *Lane) delete(counter int, id uint64) {
	c := l.schema.Counters[counter]
	for column := c.First; column < c.First+pipeline.Column(c.Count); column++ {
		l.changeCell(column, id, pipeline.Set(0), false)
	}
}

func count(given ...bool) (n int) {
	for _, g := range given {
		if g {
			n++
		}
	}
	return n
}

// clip quotes a value for a message, shortened.
func clip(raw []byte) string {
	const most = 64
	if raw == nil {
		return "nothing"
	}
	if len(raw) > most {
		return string(raw[:most]) + "…"
	}
	return string(raw)
}
