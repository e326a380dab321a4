package operators

import (
	"strings"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Tracer runs a program over one event at a time: a [pipeline.Tracer].
type Tracer struct {
	lane     *Lane
	sections [][]byte
}

// NewTracer makes a tracer of the program. All ids are in one section: there is
// one id to look for, and one event.
func (p *Program) NewTracer() *Tracer {
	alone := *p
	alone.shards = 1
	return &Tracer{lane: alone.NewLane()}
}

// Trace implements [pipeline.Tracer].
func (t *Tracer) Trace(m *pipeline.Message, want func(line []byte) bool, visit func(*pipeline.Traced)) {
	l, kind := t.lane, strings.TrimPrefix(m.Subject, subjectPrefix)
	events := split(kind, m)
	for line := 0; events.next(); line++ {
		if events.fault != nil || !want(events.line) {
			continue
		}
		l.position = pipeline.At(m.Sequence, line)
		l.begin(l.position - 1)
		if l.derive(kind, events.line) != nil {
			continue
		}
		t.sections = l.merger.sections(t.sections)
		visit(&pipeline.Traced{
			Position: l.position, Type: l.event.name, Line: events.line,
			Ids: t.sections[0], Commons: t.sections[1],
		})
	}
}

// Check returns the type of a line of a pack, and says why it would be a dead letter; ""
// where it would count. A refused line may have no type.
func (t *Tracer) Check(line []byte) (kind string, reason pipeline.Reason, detail string) {
	t.lane.begin(0)
	if fault := t.lane.derive(typePack, line); fault != nil {
		return "", fault.reason, fault.detail
	}
	return t.lane.event.name, "", ""
}

// TypeReader reads what type lines are of, where no rules are known. It is for one
// goroutine at a time.
type TypeReader struct{ object *object }

// NewTypeReader makes a reader.
func NewTypeReader() *TypeReader {
	return &TypeReader{newObject(newWords(fixedFields[fieldType:fieldType+1]), 1)}
}

// Check is [Tracer.Check], as far as it goes without rules: a line that it finds nothing
// wrong with may be a dead letter.
func (r *TypeReader) Check(line []byte) (kind string, reason pipeline.Reason, detail string) {
	fault := r.object.parse(line)
	if fault == nil && r.object.word(fieldType) == nil {
		fault = refuse(pipeline.ReasonType, "in a pack every line needs a type, a string")
	}
	if fault != nil {
		return "", fault.reason, fault.detail
	}
	return string(r.object.word(fieldType)), "", ""
}
