package operators

import (
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/pipeline"
)

// read moves the user's marks, and takes unread columns back to 0 or takes off
// what was seen. Columns that keep items the user's shard takes back: what was read it
// finds in their lists.
func read(l *Lane) *refusal {
	if err := l.need(fieldActor); err != nil {
		return err
	}
	if l.deletion {
		return refuse(pipeline.ReasonField, "delete: a read cannot be undone")
	}
	asOf, ok := l.object.id(fieldAsOf)
	if !ok {
		return refuse(pipeline.ReasonField, "as_of: %s is not a position", clip(l.object.fields[fieldAsOf]))
	}
	what, ok := l.object.texts(fieldWhat, WhatMax)
	alone := l.object.has(fieldItems)
	if !ok && (l.object.has(fieldWhat) || !alone) || ok && len(what) == 0 {
		return refuse(pipeline.ReasonField, "what: it must be a list of 1 to %d names", WhatMax)
	}
	clear(l.looked)
	l.operation = pipeline.Operation{
		Op: pipeline.OpRead, ID: l.ids[fieldActor], Position: l.position, Mark: l.position,
		Channels: l.operation.Channels[:0], Kinds: l.operation.Kinds[:0], Items: l.operation.Items[:0],
	}
	if asOf > 0 { // 0 is none; and not past the read itself, whatever it says (I7)
		l.operation.Mark = min(l.position, pipeline.Position(asOf))
	}
	for _, name := range what {
		if alone && name == "all" {
			what = nil
			break
		}
		if err := l.look(name); err != nil {
			return err
		}
	}
	if alone {
		return l.readItems(len(what) == 0)
	}
	if asOf > 0 && !l.marks() {
		return refuse(pipeline.ReasonAsOf, "as_of: what is read keeps no items, so that nobody knows what came after")
	}
	return l.see()
}

// marks says whether the read in hand moves any mark: it may be of plain numbers alone.
func (l *Lane) marks() bool {
	if l.operation.Looked != 0 || len(l.operation.Channels) > 0 {
		return true
	}
	for i, c := range l.unreadCols {
		if l.looked[i] != 0 && l.schema.Columns[c].Set.Items > 0 {
			return true
		}
	}
	return false
}

// readItems reads the positions of read.items, and has these items alone be read, of the
// kinds looked at.
func (l *Lane) readItems(allKinds bool) *refusal {
	all, ok := l.object.positions(fieldItems, WhatMax, l.operation.Items)
	switch {
	case !ok || len(all) == 0:
		return refuse(pipeline.ReasonField, "items: it must be a list of 1 to %d positions", WhatMax)
	case l.object.has(fieldSeen):
		return refuse(pipeline.ReasonField, "seen: a read of items has none")
	}
	if allKinds {
		l.lookAtAll()
	}
	l.operation.Items = slices.DeleteFunc(all, func(p pipeline.Position) bool { return p >= l.position }) // not in a list yet
	for i, c := range l.unreadCols {
		switch items := l.schema.Columns[c].Set.Items > 0; {
		case l.looked[i] != 0 && items:
			l.operation.Kinds = append(l.operation.Kinds, pipeline.Kind{Column: int(c), Seen: pipeline.SeenAll})
		case l.looked[i] == lookedAll:
			return refuse(pipeline.ReasonField, "what: unread.%s keeps no items", l.schema.Columns[c].Name)
		}
	}
	if l.operation.Looked != 0 || len(l.operation.Channels) > 0 {
		return refuse(pipeline.ReasonField, "what: a read of items is of kinds of unread alone")
	}
	if len(l.operation.Items) == 0 {
		l.operation.Kinds = l.operation.Kinds[:0]
	}
	l.operate(l.ids[fieldActor])
	return nil
}

// lookAtAll looks at all unread columns that keep items.
func (l *Lane) lookAtAll() {
	for i, c := range l.unreadCols {
		if l.schema.Columns[c].Set.Items > 0 {
			l.looked[i] = lookedAll
		}
	}
}

// look marks what one entry of read.what names.
func (l *Lane) look(name string) *refusal {
	switch {
	case name == "all":
		for i := range l.looked {
			l.looked[i] = lookedAll
		}
		l.operation.Looked |= pipeline.LookedAll | pipeline.LookedFeed
		return nil
	case name == "feed":
		l.operation.Looked |= pipeline.LookedFeed
		return nil
	case strings.HasPrefix(name, "channel:"):
		if !validChannel(name[len("channel:"):]) {
			return refuse(pipeline.ReasonField, "what: %s is not a channel's name", clip([]byte(name)))
		}
		l.operation.Channels = append(l.operation.Channels, name[len("channel:"):])
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
	user, seen := l.ids[fieldActor], false
	for i, c := range l.unreadCols {
		if l.schema.Columns[c].Set.Items == 0 || l.looked[i]&lookedAll == 0 {
			continue
		}
		kind := pipeline.Kind{Column: int(c), Seen: pipeline.SeenAll}
		if l.looked[i]&lookedSeen != 0 {
			kind.Seen, seen = int(l.seen[i]), true
		}
		l.operation.Kinds = append(l.operation.Kinds, kind)
	}
	if l.operation.Looked&pipeline.LookedAll != 0 && !seen {
		l.operation.Looked |= pipeline.LookedKinds
	}
	l.operate(user)
	for i, c := range l.unreadCols {
		switch {
		case l.schema.Columns[c].Set.Items > 0:
		case l.looked[i] == lookedAll:
			l.change(c, user, pipeline.Set(0), false)
		case l.looked[i] == lookedAll|lookedSeen:
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
