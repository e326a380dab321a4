package service

import (
	"strconv"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// explained is an answer.
type explained struct {
	*explainCall
	rows *query.Rows
	sets *sets // nil: none were asked
	page *query.Explanation
	asOf pipeline.Position
}

// whole says that the page has all events of the log.
func (e *explained) whole() bool { return e.page.Next == 0 && e.before == 0 }

// dropped: the user's last read is so old that every number is 0.
func (e *explained) dropped() bool { return e.sets != nil && e.sets.stand.Dropped }

// append writes {"id":"42","value":3,"as_of":"…","events":[…],… without the end.
func (e *explained) append(out []byte) []byte {
	rows, page := e.rows, e.page
	out = append(out, `{"id":`...)
	out = appendQuoted(out, e.id)
	value := int64(0)
	values := make([]int64, len(e.words))
	for i, w := range e.words {
		switch {
		case e.dropped():
		case rows.Exist[0] && e.badge:
			values[i] = w.shown(rows.Values[i])
		case rows.Exist[0]:
			values[i] = rows.Values[i] // the sum, which may be below zero
		default:
			values[i] = w.defaultValue
		}
		value += values[i]
	}
	for i := range e.setNumbers() {
		value += int64(e.sets.numbers[i].value)
	}
	out = append(out, `,"value":`...)
	out = strconv.AppendInt(out, value, 10)
	if e.badge {
		out = append(out, `,"numbers":{`...)
		for i, w := range e.words {
			out = append(e.appendKey(out, w, i), strconv.FormatInt(values[i], 10)...)
		}
		for i := range e.setNumbers() {
			n := &e.sets.numbers[i]
			out = strconv.AppendUint(appendSetKey(out, n.name, len(e.words)+i), n.value, 10)
		}
		out = append(out, '}')
	}
	out = appendAsOf(out, e.asOf)
	out = e.appendSets(out)
	out = append(out, `,"events":[`...)
	for i := range page.Events {
		if i > 0 {
			out = append(out, ',')
		}
		out = e.appendEvent(out, &page.Events[i])
	}
	out = append(out, ']')
	if page.Next > 0 {
		out = append(out, `,"next":`...)
		out = appendQuoted(out, uint64(page.Next))
	}
	out = append(out, `,"base":{"position":`...)
	out = appendQuoted(out, uint64(page.Base))
	if base, known := e.base(); known {
		out = append(out, `,"value":`...)
		out = strconv.AppendInt(out, base, 10)
	}
	return append(out, '}')
}

// setNumbers are as many as there are numbers of sets.
func (e *explained) setNumbers() int {
	if e.sets == nil {
		return 0
	}
	return len(e.sets.numbers)
}

// appendSets writes from where the sets count, and what bounds may keep out.
func (e *explained) appendSets(out []byte) []byte {
	if e.sets == nil {
		return out
	}
	out = append(out, `,"since":{`...)
	for i := range e.setNumbers() {
		n := &e.sets.numbers[i]
		out = appendQuoted(appendSetKey(out, n.name, i), uint64(n.since))
	}
	out = append(out, '}')
	notes := e.sets.notes(e.before == 0 && e.sets.upto == 0)
	if len(notes) == 0 {
		return out
	}
	out = append(out, `,"notes":[`...)
	for i, note := range notes {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendQuote(out, note)
	}
	return append(out, ']')
}

// appendSetKey writes ,"feed": — the first one without the comma. Names are a-z 0-9
// _ - and a colon.
func appendSetKey(out []byte, name string, i int) []byte {
	if i > 0 {
		out = append(out, ',')
	}
	return append(strconv.AppendQuote(out, name), ':')
}

// base is what the number was where the log begins. Of a log whose beginning is
// gone it is what its events do not account for; a page that does not hold all of
// them, or one that sets a count, cannot tell.
func (e *explained) base() (base int64, known bool) {
	if e.page.Base != 0 && !e.whole() {
		return 0, false
	}
	for i, w := range e.words {
		switch {
		case e.dropped():
			continue
		case e.page.Base == 0:
			if !e.badge || !e.rows.Exist[0] { // the changes of a badge are sums that begin with 0
				base += w.defaultValue // before the first event there was no row
			}
			continue
		}
		base += e.rows.Values[i]
		for k := range e.page.Events {
			c := &e.page.Events[k].Changes[i]
			if c.Set || c.Unsure {
				return 0, false
			}
			base -= c.N
		}
	}
	if e.page.Base != 0 && e.sets != nil {
		for i, sum := range e.sets.sums(e.page) {
			base += int64(e.sets.numbers[i].value) - int64(sum)
		}
	}
	return base, true
}

func (e *explained) appendKey(out []byte, w *word, i int) []byte {
	if i == 0 {
		return append(out, w.key[1:]...) // without the comma
	}
	return append(out, w.key...)
}

func (e *explained) appendEvent(out []byte, event *query.ExplainedEvent) []byte {
	out = append(out, `{"position":`...)
	out = appendQuoted(out, uint64(event.Position))
	out = append(out, `,"time":"`...)
	out = time.UnixMilli(event.Time).UTC().AppendFormat(out, "2006-01-02T15:04:05.000Z")
	out = append(out, `","type":`...)
	out = strconv.AppendQuote(out, event.Type) // a-z 0-9 _ -
	all, unsure := query.NumberChange{}, false
	for i := range event.Changes {
		c := &event.Changes[i]
		all.Set = all.Set || c.Set
		all.N += c.N
		unsure = unsure || c.Unsure
	}
	for _, c := range event.Sets {
		all.Set = all.Set || c.Set && !e.badge
		all.N += c.N
		unsure = unsure || c.Unsure
	}
	out = append(out, `,"change":"`...)
	out = append(appendChange(out, all), '"')
	if e.badge {
		out = append(out, `,"changes":{`...)
		some := 0
		for i, w := range e.words {
			if !event.Changes[i].Touched {
				continue
			}
			out = append(e.appendKey(out, w, some), '"')
			out = append(appendChange(out, event.Changes[i]), '"')
			some++
		}
		for _, c := range event.Sets {
			out = append(appendSetKey(out, e.sets.numbers[c.Number].name, some), '"')
			out = append(appendChange(out, c.NumberChange), '"')
			some++
		}
		out = append(out, '}')
	}
	if unsure {
		out = append(out, `,"unsure":true`...)
	}
	if event.Body == nil {
		out = append(out, `,"event":null,"event_bytes":`...)
		out = strconv.AppendInt(out, int64(event.Bytes), 10)
		return append(out, '}')
	}
	out = append(out, `,"event":`...)
	return append(append(out, event.Body...), '}')
}

// appendChange writes +1, -1 or =5.
func appendChange(out []byte, c query.NumberChange) []byte {
	switch {
	case c.Set:
		out = append(out, '=')
	case c.N >= 0:
		out = append(out, '+')
	}
	return strconv.AppendInt(out, c.N, 10)
}
