package operators

import (
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
)

// fixedTypes are the event types with a meaning of their own.
var fixedTypes = map[string]operator{
	"post":    {check: checkPost, change: listPost, fields: []int{fieldActor, fieldPost, fieldRepostOf, fieldAuthor}},
	"comment": {check: onPost, fields: []int{fieldActor, fieldPost, fieldAuthor}},
	"like":    {check: onPost, fields: []int{fieldActor, fieldPost, fieldAuthor}},
	"mention": {check: mention, fields: []int{fieldActor, fieldTarget, fieldPost}},
	"message": {check: toTarget, fields: []int{fieldActor, fieldTarget}},
	"follow":  {check: follow, fields: []int{fieldActor, fieldTarget}},
	"notice":  {check: notice, fields: []int{fieldChannel, fieldNotice}},
	"read":    {check: read, fields: []int{fieldActor, fieldWhat, fieldSeen, fieldAsOf, fieldItems}},
	"adjust":  {check: adjust, fields: []int{fieldCounter, fieldID, fieldColumn, fieldAdd, fieldSet, fieldDel}},
}

// customFields are those of every type that only rules know.
var customFields = []int{fieldActor, fieldBy}

// commonFields may be in events of every type.
var commonFields = []string{fixedFields[fieldType], fixedFields[fieldDelete], "at"}

// Types are the event types that count by these rules: of each the fields that are read,
// in order. Any others of an event are ignored.
func (r Rules) Types() map[string][]string {
	types := make(map[string][]string)
	add := func(name string, fields ...string) { types[name] = append(types[name], fields...) }
	for name, fixed := range fixedTypes {
		add(name, commonFields...)
		for _, slot := range fixed.fields {
			add(name, fixedFields[slot])
		}
	}
	for name, rules := range r {
		if _, fixed := fixedTypes[name]; !fixed {
			add(name, commonFields...)
			for _, slot := range customFields {
				add(name, fixedFields[slot])
			}
		}
		for _, rule := range rules {
			add(name, rule.Key, rule.If, rule.Unless)
			add(name, rule.Once...)
		}
	}
	for name, fields := range types {
		fields = slices.DeleteFunc(fields, func(field string) bool { return field == "" || field == Self })
		slices.Sort(fields)
		types[name] = slices.Compact(fields)
	}
	return types
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
		return refuse(pipeline.ReasonID, "%s: %s is not an unsigned 64-bit integer", l.Program.fields[slot], clip(l.object.fields[slot]))
	}
	l.ids[slot] = id
	return nil
}

func (l *Lane) noID(slot int) *refusal {
	if l.object.has(slot) {
		return refuse(pipeline.ReasonID, "%s: 0 is not an id", l.Program.fields[slot])
	}
	return refuse(pipeline.ReasonID, "%s is missing", l.Program.fields[slot])
}

func onPost(l *Lane) *refusal   { return l.need(fieldActor, fieldPost, fieldAuthor) }
func toTarget(l *Lane) *refusal { return l.need(fieldActor, fieldTarget) }

func mention(l *Lane) *refusal {
	if err := l.want(fieldPost); err != nil {
		return err
	}
	return l.need(fieldActor, fieldTarget)
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
		return refuse(pipeline.ReasonField, "%s: %s is not a 64-bit integer", l.Program.fields[slot], clip(l.object.fields[slot]))
	}
	l.change(column, id, law(n), true)
	return nil
}

// delete takes a whole row away. A user's goes to 0, and stays a row if it is one: the follow
// graph stays too, and its columns always equal it.
func (l *Lane) delete(counter int, id uint64) {
	c := l.schema.Counters[counter]
	for column := c.First; column < c.First+pipeline.Column(c.Count); column++ {
		if l.stays[column] {
			continue
		}
		l.changeCell(column, id, pipeline.Set(0), false)
		if l.schema.Columns[column].Set.Members != pipeline.NoMembers {
			l.empty(column, id)
		}
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
