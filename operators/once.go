package operators

import (
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
)

// OnceMax is how many fields a rule's Once names at most.
const OnceMax = 2

// idFields hold ids in every event, as the table of events has them.
var idFields = []string{
	fixedFields[fieldActor], fixedFields[fieldPost], fixedFields[fieldAuthor], fixedFields[fieldTarget], fixedFields[fieldRepostOf],
}

// ownIDs are the fields of events of a type that hold an id of what the event is about.
var ownIDs = map[string]string{"comment": "comment", "message": "message"}

// Set is the set in which a rule of an event type counts. Its shape is known from the
// rules alone: two fields are a pair of ids, and one field is an id if it holds one in
// every event, or if a rule of the type has it as its key; else it is a token.
func (r Rules) Set(event string, rule *Rule) pipeline.SetSpec {
	spec := pipeline.SetSpec{Keep: rule.Keep}
	switch len(rule.Once) {
	case 0:
		return pipeline.SetSpec{}
	case 1:
		spec.Members = pipeline.MembersTokens
		field := rule.Once[0]
		if slices.Contains(idFields, field) || ownIDs[event] == field || slices.ContainsFunc(r[event], func(other Rule) bool { return other.Key == field }) {
			spec.Members = pipeline.MembersIDs
		}
	default:
		spec.Members = pipeline.MembersPairs
	}
	return spec
}

// Sets are the sets of columns, by full name; of a column whose rules do not agree, that
// of one of them. Where the actor or the post is they say only if the rules agree.
func (r Rules) Sets() map[string]pipeline.SetSpec {
	sets := make(map[string]pipeline.SetSpec)
	for event, rules := range r {
		for i := range rules {
			spec := r.Set(event, &rules[i])
			if spec.Members == pipeline.NoMembers {
				continue
			}
			spec.Actor, spec.Post = rules[i].words()
			was, other := sets[rules[i].Add]
			if other && was.Actor != spec.Actor {
				spec.Actor = pipeline.NoWord
			}
			if other && was.Post != spec.Post {
				spec.Post = pipeline.NoWord
			}
			sets[rules[i].Add] = spec
		}
	}
	return sets
}

// List is what a column keeps that is to have so many items, each for so many seconds, of
// its rules; an error where these do not agree.
func (r Rules) List(column string, items int, keep int64) (pipeline.SetSpec, error) {
	spec := pipeline.SetSpec{Members: pipeline.MembersIDs, Keep: keep, Items: items}
	if column == followerItems { // the follow graph puts them in
		spec.Actor = pipeline.WordA
		return spec, nil
	}
	some := false
	for event, rules := range r {
		for i := range rules {
			rule := &rules[i]
			if rule.Add != column || len(rule.Once) == 0 {
				continue
			}
			of := pipeline.SetSpec{Members: r.Set(event, rule).Members, Keep: keep, Items: items}
			of.Actor, of.Post = rule.words()
			if some && of != spec {
				return spec, fmt.Errorf("operators: rules count what is in %s once for different fields", column)
			}
			spec, some = of, true
		}
	}
	return spec, nil
}

// words are those of a member in which a rule has the actor and the post.
func (r *Rule) words() (actor, post pipeline.Word) {
	for i, field := range r.Once {
		switch word := pipeline.WordA + pipeline.Word(i); field {
		case fixedFields[fieldActor]:
			actor = word
		case fixedFields[fieldPost]:
			post = word
		}
	}
	return actor, post
}

// followerItems is the column whose items are new followers.
const followerItems = "unread.follower"

// onceField is a field that members are made of and that the type's operator does not
// read.
type onceField struct {
	slot  int
	token bool
}

// compileOnce has an instruction count by the rule's members.
func (p *Program) compileOnce(t *eventType, in *instruction, rule *Rule, members pipeline.Members) {
	in.members = members
	for i, field := range rule.Once {
		slot := p.field(field)
		in.once[i] = slot
		read := onceField{slot, members == pipeline.MembersTokens}
		if !slices.Contains(t.once, read) && !t.reads(slot) {
			t.once = append(t.once, read)
		}
	}
}

// reads says whether the type's operator reads a field in every event.
func (t *eventType) reads(slot int) bool {
	if fields := t.operator.fields; fields != nil {
		return slices.Contains(fields, slot)
	}
	return slot == fieldActor || slices.ContainsFunc(t.code, func(in instruction) bool { return in.key == slot })
}

// readOnce reads the fields that members are made of. One that is malformed refuses the
// event, whether or not the rule holds, as a key does.
func (l *Lane) readOnce() *refusal {
	for _, f := range l.event.once {
		read := l.want
		if f.token {
			read = l.token
		}
		if fault := read(f.slot); fault != nil {
			return fault
		}
	}
	return nil
}

// token reads a token, or an id in its place. What is absent, empty or 0 is no member.
func (l *Lane) token(slot int) *refusal {
	raw := l.object.fields[slot]
	l.tokens[slot] = pipeline.Member{}
	if raw == nil {
		return nil
	}
	text := unquoted(raw)
	switch _, whole := parseUint(text); {
	case raw[0] != '"' && !whole:
		return refuse(pipeline.ReasonField, "%s: %s is neither a string nor an unsigned 64-bit integer", l.Program.fields[slot], clip(raw))
	case len(text) > pipeline.TokenBytesMax:
		return refuse(pipeline.ReasonField, "%s: %s has %d bytes, at most %d are allowed", l.Program.fields[slot], clip(raw), len(text), pipeline.TokenBytesMax)
	case len(text) > 0 && string(text) != "0":
		l.tokens[slot] = pipeline.TokenMember(text)
	}
	return nil
}

// member is what the event in hand would add to the set of a rule's column; A is 0
// where the rule has none or the event lacks a field.
func (l *Lane) member(in *instruction) (m pipeline.Member) {
	switch in.members {
	case pipeline.MembersIDs:
		m.A = l.ids[in.once[0]]
	case pipeline.MembersPairs:
		if a, b := l.ids[in.once[0]], l.ids[in.once[1]]; a != 0 && b != 0 {
			m = pipeline.Member{A: a, B: b}
		}
	case pipeline.MembersTokens:
		m = l.tokens[in.once[0]]
	}
	return m
}

// count adds a member, or takes it away. Only the shard knows whether it is there, so it
// changes the cell, and that the row exists, as well.
func (l *Lane) count(in *instruction, m pipeline.Member) {
	id := l.ids[in.key]
	l.operation = pipeline.Operation{Op: pipeline.OpAdd, ID: id, Column: int(in.column), Member: m, By: l.by, Position: l.position}
	if l.deletion {
		l.operation.Op = pipeline.OpTake
	}
	l.operate(id)
}

// item puts an item into a list, or takes one out. One without an identity cannot be
// taken out.
func (l *Lane) item(in *instruction, identity pipeline.Member) {
	id, spec := l.ids[in.key], &l.schema.Columns[in.column].Set
	l.operation = pipeline.Operation{
		Op: pipeline.OpItem, ID: id, Column: int(in.column), Position: l.position,
		Member: identity, Actor: l.ids[fieldActor], Post: l.ids[fieldPost],
	}
	item := &l.operation
	switch {
	case l.deletion && identity.A == 0:
		return
	case l.deletion:
		item.Op, item.Actor, item.Post = pipeline.OpWithdrawn, 0, 0
	case identity.A != 0:
		if spec.Actor != pipeline.NoWord {
			item.Actor = 0
		}
		if spec.Post != pipeline.NoWord {
			item.Post = 0
		}
	}
	l.operate(id)
}

// empty takes all members from a row's set.
func (l *Lane) empty(column pipeline.Column, id uint64) {
	l.operation = pipeline.Operation{Op: pipeline.OpEmpty, ID: id, Column: int(column)}
	l.operate(id)
}
