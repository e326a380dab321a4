package operators

import (
	"bytes"
	"cmp"
	"strings"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Subjects of EVENTS with a meaning besides a type's.
const (
	subjectPrefix = "events."
	typePack      = "pack"
)

// Lane runs a program over messages: a [pipeline.Deriver]. It keeps buffers
// from run to run and no state.
type Lane struct {
	*Program
	// Version is that of pipeline.FormatWindows in which the next window is written;
	// nil: the newest.
	Version  func() int
	merger   *merger
	sections [][]byte
	encoded  []byte

	// The window being filled.
	window  pipeline.Window
	letters []pipeline.DeadLetter
	authors []uint64 // authors of posts that came or were deleted in it
	lost    bool     // messages are lost, and may be counted, in it or before a copy in it

	// The event in hand.
	object   *object
	event    *eventType
	ids      []uint64          // by field slot, as far as the type's operator reads them; 0 for absent
	tokens   []pipeline.Member // by field slot, of those that are tokens; A is 0 for absent
	by       int64
	deletion bool
	looked   []uint8 // per unread column
	seen     []int64
	position pipeline.Position

	operation pipeline.Operation // being put together
}

// NewLane makes a lane of the program.
func (p *Program) NewLane() *Lane {
	l := &Lane{
		Program: p,
		merger:  newMerger(p.shards),
		authors: []uint64{}, // nobody posted, which is known
		object:  newObject(p.slots, len(p.fields)),
		ids:     make([]uint64, len(p.fields)),
		tokens:  make([]pipeline.Member, len(p.fields)),
		looked:  make([]uint8, len(p.unreadCols)),
		seen:    make([]int64, len(p.unreadCols)),
	}
	return l
}

// Derive implements [pipeline.Deriver].
func (l *Lane) Derive(from, to pipeline.Position, messages []pipeline.Message) ([]pipeline.Derived, error) {
	var out []pipeline.Derived
	l.begin(from)
	last := from // read up to here
	for i := range messages {
		m := &messages[i]
		if pipeline.At(m.Sequence, 0) > to {
			break
		}
		kind := strings.TrimPrefix(m.Subject, subjectPrefix)
		events := split(kind, m)
		hole := m.Sequence > last.Sequence()+1 // somebody may have counted what was there
		for line := 0; events.next(); line++ {
			l.position = pipeline.At(m.Sequence, line)
			if l.position <= from || l.position > to {
				continue
			}
			if l.full() {
				out = append(out, l.cut(last))
			}
			l.mark(m)
			l.lost = l.lost || hole
			fault := events.fault
			if fault == nil {
				fault = l.derive(kind, events.line)
			}
			if fault != nil {
				l.refuse(m, events.line, fault)
			}
			last = l.position
		}
		last = pipeline.EndOf(m.Sequence)
	}
	if last.Sequence() < to.Sequence() { // a hole up to the end
		l.lost = true
	}
	return append(out, l.cut(to)), nil
}

// begin opens a window.
func (l *Lane) begin(from pipeline.Position) {
	l.merger.reset()
	l.letters, l.authors, l.lost = nil, l.authors[:0], false
	l.window = pipeline.Window{
		Header:  pipeline.Header{From: from, Rules: l.rules},
		Marks:   l.window.Marks[:0],
		Columns: l.columns,
	}
}

// mark notes the log's time as far as m.
func (l *Lane) mark(m *pipeline.Message) {
	w := &l.window
	if m.Time <= w.Time {
		return
	}
	w.Time = m.Time
	second := m.Time / 1000
	if n := len(w.Marks); n > 0 && w.Marks[n-1].Second >= second {
		return
	}
	at := max(pipeline.At(m.Sequence, 0), w.From+1)
	w.Marks = append(w.Marks, pipeline.TimeMark{Second: second, Position: at})
}

// markBytes is the most a time mark takes.
const markBytes = 20

// full says that the window may not take another event.
func (l *Lane) full() bool {
	marks := len(l.window.Marks)
	bytes := l.merger.bytes + markBytes*marks
	commons := l.merger.touched[l.shards] + marksChanges*marks
	return int(l.window.Events)+len(l.letters) >= l.limits.Events ||
		bytes+l.eventBytesMax+l.overhead > l.limits.Bytes ||
		max(l.merger.most, commons)+l.eventChangesMax > pipeline.SectionChangesMax
}

// marksChanges is how many entries a time mark changes: it comes, and an old
// one goes.
const marksChanges = 2

// cut closes the window at a position and opens the next.
func (l *Lane) cut(to pipeline.Position) pipeline.Derived {
	w := &l.window
	w.To = to
	l.sections = l.merger.sections(l.sections)
	w.Sections = l.sections
	if w.Authors = l.authors; l.lost { // only a node that counted them knows their authors
		w.Authors = nil
	}
	if l.Version != nil {
		w.Version = l.Version()
	}
	l.encoded = pipeline.AppendWindow(l.encoded[:0], w)
	d := pipeline.Derived{
		Header:  w.Header,
		Window:  bytes.Clone(l.encoded),
		Letters: l.letters,
		Changes: l.merger.changes,
		Merged:  len(l.merger.cells),
	}
	l.begin(to)
	return d
}

// derive adds what one event does, or says why it cannot.
func (l *Lane) derive(kind string, line []byte) *refusal {
	if fault := l.object.parse(line); fault != nil {
		return fault
	}
	if fault := l.resolve(kind); fault != nil {
		return fault
	}
	deletion, ok := l.object.truth(fieldDelete)
	if !ok {
		return refuse(pipeline.ReasonField, "delete: %s is not true or false", clip(l.object.fields[fieldDelete]))
	}
	l.deletion, l.by = deletion, 1
	clear(l.ids)
	if fault := l.event.operator.check(l); fault != nil {
		return fault
	}
	if fault := l.readOnce(); fault != nil {
		return fault
	}
	active, fault := l.activeRules()
	if fault != nil {
		return fault
	}
	if l.event.operator.change != nil {
		l.event.operator.change(l)
	}
	amount := l.by
	if deletion {
		amount = -amount
	}
	delta, wide := pipeline.Add(amount), amount > narrow || amount < 0
	for i := range l.event.code {
		if active&(1<<i) == 0 {
			continue
		}
		in := &l.event.code[i]
		switch m := l.member(in); {
		case in.items && l.listed(i, active):
		case in.items:
			l.item(in, m)
		case m.A != 0:
			l.count(in, m)
		default:
			l.change(in.column, l.ids[in.key], delta, wide)
		}
	}
	l.window.Events++
	return nil
}

// listed says whether a rule before the i-th has put the event into the same list: it is
// there once.
func (l *Lane) listed(i int, active uint64) bool {
	in := &l.event.code[i]
	for j := range l.event.code[:i] {
		if of := &l.event.code[j]; active&(1<<j) != 0 && of.column == in.column && l.ids[of.key] == l.ids[in.key] {
			return true
		}
	}
	return false
}

// resolve finds the event's type, from the body or the subject.
func (l *Lane) resolve(kind string) *refusal {
	raw := l.object.fields[fieldType]
	if raw == nil {
		if kind == typePack {
			return refuse(pipeline.ReasonType, "type is missing; in a pack every line needs one")
		}
		l.event = l.typeOf([]byte(kind))
	} else {
		name := l.object.word(fieldType)
		l.event = l.typeOf(name)
		if kind != typePack && string(name) != kind {
			return refuse(pipeline.ReasonContradict, "type %s came on subject %s%s", clip(raw), subjectPrefix, clip([]byte(kind)))
		}
	}
	if l.event == nil {
		return refuse(pipeline.ReasonType, "no rule knows the type %s", clip([]byte(cmp.Or(string(raw), kind))))
	}
	return nil
}

// typeOf is the event type of a name, nil when there is none.
func (l *Lane) typeOf(name []byte) *eventType {
	if at, ok := l.kinds.find(name); ok {
		return l.types[at]
	}
	return nil
}

// activeRules says which rules hold, a bit each, and refuses the event when
// one of those has no key: an event counts whole or not at all.
func (l *Lane) activeRules() (active uint64, fault *refusal) {
	for i := range l.event.code {
		in := &l.event.code[i]
		if l.deletion && in.unread ||
			in.when != conditionNone && !l.holds(in.when, in) ||
			in.unless != conditionNone && l.holds(in.unless, in) {
			continue
		}
		if l.ids[in.key] == 0 {
			return 0, l.noID(in.key)
		}
		active |= 1 << i
	}
	return active, nil
}

func (l *Lane) holds(c condition, in *instruction) bool {
	if c == conditionSelf {
		return l.ids[in.key] == l.ids[fieldActor]
	}
	return l.object.nonZero(int(c))
}

// change adds one change of a cell, and that its row exists.
func (l *Lane) change(column pipeline.Column, id uint64, d pipeline.Delta, wide bool) {
	l.changeCell(column, id, d, wide)
	if e := l.exists[l.schema.Columns[column].Counter]; e >= 0 {
		l.changeCell(pipeline.Column(e), id, pipeline.Set(1), false)
	}
}

func (l *Lane) changeCell(column pipeline.Column, id uint64, d pipeline.Delta, wide bool) {
	if l.schema.Columns[column].Ordered {
		l.merger.addOrdered(column, id, d)
		return
	}
	l.merger.add(column, id, d, wide)
}

// operate adds the operation in hand to the section of an id's shard.
func (l *Lane) operate(id uint64) {
	l.merger.operate(int(pipeline.ShardOf(id, l.shards)), l.window.From, &l.operation)
}

// refuse keeps one event as a dead letter.
func (l *Lane) refuse(m *pipeline.Message, body []byte, fault *refusal) {
	l.letters = append(l.letters, pipeline.DeadLetter{
		Position: l.position, Reason: fault.reason, Detail: fault.detail,
		Subject: m.Subject, Header: m.Header, Data: body,
	})
}

// events walks the events of a message: the lines of a pack that are not
// blank, or the one body. A pack of no or too many lines is one body with a
// fault.
type events struct {
	rest, line []byte
	lines      bool
	done       bool
	fault      *refusal
}

func split(kind string, m *pipeline.Message) events {
	body := m.Data
	switch {
	case kind == typePack:
		all := events{rest: body, lines: true}
		switch some := all; {
		case !some.next():
			return events{rest: body, fault: refuse(pipeline.ReasonJSON, "the pack is empty")}
		case bytes.Count(body, newline) >= pipeline.PackMax && countLines(body) > pipeline.PackMax:
			return events{rest: body, fault: refuse(pipeline.ReasonPack, "the pack has more than %d lines", pipeline.PackMax)}
		}
		return all
	}
	return events{rest: body}
}

// next goes on to the next event.
func (e *events) next() bool {
	if !e.lines {
		e.line = e.rest
		more := !e.done
		e.done = true
		return more
	}
	for len(e.rest) > 0 {
		e.line, e.rest, _ = bytes.Cut(e.rest, newline)
		if !blank(e.line) {
			return true
		}
	}
	return false
}

var newline = []byte{'\n'}

func blank(line []byte) bool {
	for _, c := range line {
		if c != ' ' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}

// countLines counts the lines that are not blank, up to one too many.
func countLines(body []byte) (n int) {
	e := events{rest: body, lines: true}
	for n <= pipeline.PackMax && e.next() {
		n++
	}
	return n
}
