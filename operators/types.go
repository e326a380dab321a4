package operators

import "github.com/tidemark-io/tidemark/pipeline"

// fixedTypes are the event types with a meaning of their own.
var fixedTypes = map[string]operator{
	"post":    {check: checkPost, change: listPost},
	"comment": {check: onPost},
	"like":    {check: onPost},
	"mention": {check: mention},
	"message": {check: toTarget},
	"follow":  {check: follow},
	"notice":  {check: notice},
	"read":    {check: read},
	"adjust":  {check: adjust},
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
