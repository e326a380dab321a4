package operators

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Limits bound one window, and what events may name.
type Limits struct {
	Events int // events in a window
	Bytes  int // bytes of a serialized window
	// Channels are those that notices may open; nil: any.
	Channels []string
}

// The most a list in one event may hold.
const (
	RulesMax = 64  // rules of one event type
	WhatMax  = 128 // entries of read.what, and of read.items
)

// Program is the configuration's rules compiled to a flat form: field names
// are slots, column names are numbers, conditions are two compares. It does
// not change and may be shared; each lane runs it with a [Lane] of its own.
type Program struct {
	schema *pipeline.Schema
	shards int
	limits Limits
	rules  uint64

	fields  []string     // names of slots
	slots   *words       // of fields
	types   []*eventType // the fixed ones and those of the rules
	kinds   *words       // of types
	columns []string     // full names, the windows' dictionary

	unread     int // the counter "unread", or -1
	unreadCols []pipeline.Column
	exists     []int  // per counter: its hidden column "exists", or -1
	stays      []bool // per column: a deletion of the row leaves it alone

	channels map[string]bool // that notices may open, where not all may be

	overhead        int // what a window takes besides its sections' bytes
	eventBytesMax   int
	eventChangesMax int // in one section
}

// eventType is one type of event.
type eventType struct {
	name     string
	operator operator
	code     []instruction
	once     []onceField
}

// operator is what is built in for an event type. check reads and checks the
// fixed fields; a type that no rules may be given for makes its changes there
// too, once nothing can be refused. change, where there is one, makes
// them when the rules have agreed as well: a refusal leaves nothing behind.
type operator struct {
	check  func(l *Lane) *refusal
	change func(l *Lane)
	fields []int // slots that the two read
}

// instruction is one rule.
type instruction struct {
	column  pipeline.Column
	key     int
	when    condition
	unless  condition
	unread  bool // a deletion leaves it alone
	items   bool // the column keeps items
	ordered bool
	members pipeline.Members // of the column's set or list, where the rule says once
	once    [OnceMax]int     // their fields
}

// condition is a field's slot, conditionSelf or conditionNone.
type condition int

const (
	conditionNone condition = -1
	conditionSelf condition = -2
)

// Compile checks the rules against the schema and compiles them.
func Compile(schema *pipeline.Schema, rules Rules, shards int, limits Limits) (*Program, error) {
	p := &Program{
		schema: schema, shards: shards, limits: limits,
		fields: slices.Clone(fixedFields[:]),
		unread: -1, channels: make(map[string]bool), stays: make([]bool, len(schema.Columns)),
	}
	for _, name := range []string{"following", "follower", "friend", ExistsColumn} {
		if c, ok := schema.Find(userCounter + "." + name); ok {
			p.stays[c] = true
		}
	}
	for i := range schema.Columns {
		p.columns = append(p.columns, schema.FullName(pipeline.Column(i)))
	}
	for _, counter := range schema.Counters {
		if c, ok := schema.Find(counter.Name + "." + ExistsColumn); ok {
			p.exists = append(p.exists, int(c))
		} else {
			p.exists = append(p.exists, -1)
		}
	}
	if unread, ok := schema.Counter("unread"); ok {
		p.unread = unread
		p.unreadCols = schema.Visible(unread)
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(fixedTypes)) {
		p.types = append(p.types, &eventType{name: name, operator: fixedTypes[name]})
		names = append(names, name)
	}
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		at := slices.Index(names, name)
		if at < 0 {
			at = len(names)
			p.types = append(p.types, &eventType{name: name, operator: operator{check: custom}})
			names = append(names, name)
		}
		if err := p.compile(p.types[at], rules); err != nil {
			return nil, err
		}
	}
	p.slots, p.kinds = newWords(p.fields), newWords(names)
	p.rules = p.fingerprint(rules, limits.Channels)
	p.overhead = 64 + 5*(shards+1)
	for _, c := range p.columns {
		p.overhead += 2 + len(c)
	}
	// Where rules count in sets, an operation is shorter than two changes of cells.
	p.eventBytesMax = (len(schema.Columns)+2*RulesMax)*(changeBytes+changeWideBytes) + authorBytes + 64 + WhatMax*66 // a read of channels
	for _, name := range limits.Channels {
		p.channels[name] = true
	}
	lists := 0
	for _, column := range schema.Sets() {
		lists += min(schema.Columns[column].Set.Items, 1)
	}
	p.eventChangesMax = 2*len(schema.Columns) + 4*lists + 6*RulesMax + 2 + 2*WhatMax
	if need := 2 * p.eventChangesMax; need > pipeline.SectionChangesMax {
		return nil, fmt.Errorf("operators: %d columns are too many: an event may change %d rows and entries, and a window %d", len(schema.Columns), need/2, pipeline.SectionChangesMax)
	}
	if need := 2 * (p.eventBytesMax + p.overhead); limits.Bytes < need {
		return nil, fmt.Errorf("operators: windows.bytes is %d, too little for these counters, rules and %d shards: %d needed", limits.Bytes, shards, need)
	}
	return p, nil
}

// userCounter has the columns of the follow graph.
const userCounter = "user"

// ExistsColumn is set by every change of a row but its deletion.
const ExistsColumn = pipeline.ExistsColumn

func (p *Program) compile(t *eventType, all Rules) error {
	rules := all[t.name]
	if len(rules) > RulesMax {
		return fmt.Errorf("operators: %s has %d rules, at most %d are allowed", t.name, len(rules), RulesMax)
	}
	for _, r := range rules {
		column, ok := p.schema.Find(r.Add)
		if !ok {
			return fmt.Errorf("operators: a rule of %s adds to %s, which is not a column", t.name, r.Add)
		}
		spec := p.schema.Columns[column]
		set := all.Set(t.name, &r)
		set.Actor, set.Post = spec.Set.Actor, spec.Set.Post
		if spec.Set.Items > 0 && (set.Members == pipeline.NoMembers || set.Members == spec.Set.Members) {
			set = spec.Set
		}
		if len(r.Once) > OnceMax || set != spec.Set {
			return fmt.Errorf("operators: a rule of %s adds to %s by another set than the column's: once %q, keep %d; it has %+v", t.name, r.Add, r.Once, r.Keep, spec.Set)
		}
		t.code = append(t.code, instruction{
			column:  column,
			key:     p.field(r.Key),
			when:    p.condition(r.If),
			unless:  p.condition(r.Unless),
			unread:  spec.Counter == p.unread && spec.Set.Items == 0,
			items:   spec.Set.Items > 0,
			ordered: spec.Ordered,
		})
	}
	for i := range rules { // once all keys are known
		if len(rules[i].Once) > 0 {
			p.compileOnce(t, &t.code[i], &rules[i], p.schema.Columns[t.code[i].column].Set.Members)
		}
	}
	return nil
}

func (p *Program) field(name string) int {
	slot := slices.Index(p.fields, name)
	if slot < 0 {
		slot = len(p.fields)
		p.fields = append(p.fields, name)
	}
	return slot
}

func (p *Program) condition(name string) condition {
	switch name {
	case "":
		return conditionNone
	case Self:
		return conditionSelf
	}
	return condition(p.field(name))
}

// Rules is the fingerprint of the rules and columns, as windows carry it.
func (p *Program) Rules() uint64 { return p.rules }

func (p *Program) fingerprint(rules Rules, channels []string) uint64 {
	var b strings.Builder
	for _, c := range p.columns {
		fmt.Fprintf(&b, "column %s\n", c)
	}
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		for _, r := range rules[name] {
			fmt.Fprintf(&b, "rule %s {Add:%s Key:%s If:%s Unless:%s}\n", name, r.Add, r.Key, r.If, r.Unless)
			if len(r.Once) > 0 {
				fmt.Fprintf(&b, "once %q keep %d\n", r.Once, r.Keep)
			}
		}
	}
	if channels != nil {
		fmt.Fprintf(&b, "channels %q\n", slices.Sorted(slices.Values(channels)))
	}
	sum := sha256.Sum256([]byte(b.String()))
	return binary.LittleEndian.Uint64(sum[:])
}
