package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
)

// Once are the fields of a rule's `once`: one, or a pair; "" where there is none.
type Once [operators.OnceMax]string

// Fields are those that it names.
func (o Once) Fields() (fields []string) {
	for _, field := range o {
		if field != "" {
			fields = append(fields, field)
		}
	}
	return fields
}

// String is as a file states it.
func (o Once) String() string {
	fields := o.Fields()
	if len(fields) == 1 {
		return fields[0]
	}
	return "[" + strings.Join(fields, ", ") + "]"
}

// once reads a field's name, or a list of one or two.
func (d *decoder) once(n *yaml.Node, line int, key string, out *Once) {
	items := []*yaml.Node{n}
	if list := resolve(n); list.Kind == yaml.SequenceNode {
		if items = list.Content; len(items) == 0 || len(items) > len(out) {
			d.fault(line, key, "has %d fields; allowed: one like actor, or two like [post, actor]", len(items))
			return
		}
	}
	for i, item := range items {
		text, ok := d.scalar(item, line, key, "a field like actor, or two like [post, actor]")
		if ok && text == "" {
			d.fault(line, key, "is empty; want a field like actor, or two like [post, actor]")
		}
		out[i] = text
	}
}

// checkOnce looks at what one rule says about the set or the list of its column. columns says
// how many items each keeps.
func (d *decoder) checkOnce(key, event string, r Rule, columns map[string]int) {
	once, keep := under(key, "once"), under(key, "keep")
	line, stated := d.lines[once]
	if stated && d.sound(once) {
		for _, field := range r.Once.Fields() {
			d.checkField(once, event, field, false)
		}
		if r.Once[0] == r.Once[1] {
			d.fault(line, once, "names %s twice; want two different fields, or one", r.Once[0])
		}
		if strings.HasPrefix(r.Add, unreadCounter+".") && columns[r.Add] == 0 {
			d.fault(line, once, "%s cannot have it: it is a plain number; give the column items, or leave it out", r.Add)
		}
	}
	line, kept := d.lines[keep]
	switch {
	case !kept || !d.sound(keep):
	case columns[r.Add] > 0 && r.Keep != 0:
		d.fault(line, keep, "%s keeps items: unread.retention says for how long", r.Add)
	case !stated:
		d.fault(line, keep, "is for a rule with once: it says for how long the set remembers a member")
	case r.Keep != 0:
		within(d, keep, r.Keep, time.Second, ageMax)
		if r.Keep%time.Second != 0 && d.sound(keep) {
			d.fault(line, keep, "%s is not a whole number of seconds; log time is measured in seconds", FormatDuration(r.Keep))
		}
	}
}

// checkSets compares the rules of each column: what one of them counts once, another
// must not count every time, or in a set of another shape.
func (d *decoder) checkSets(c *Config) {
	type said struct {
		spec pipeline.SetSpec
		line int
	}
	rules, columns, first, sets := c.Rules(), c.items(), make(map[string]said), 0
	var plain []string // numbers that unstated rules count once
	for _, event := range c.EventRules {
		for i, r := range event.Rules {
			key := ruleKey(under("rules", event.Type), i)
			at := under(key, "once")
			if !d.sound(key, under(key, "add"), under(key, "key"), at, under(key, "keep")) {
				continue
			}
			line, stated := d.lines[at]
			if !stated {
				at, line = key, d.lines[key]
			}
			if _, known := d.lines[key]; !known && columns[r.Add] == 0 && strings.HasPrefix(r.Add, unreadCounter+".") && len(r.Once.Fields()) > 0 {
				plain = append(plain, r.Add)
				continue
			}
			if columns[r.Add] > 0 {
				if _, err := rules.List(r.Add, columns[r.Add], 0); err != nil && first[r.Add].line == 0 {
					first[r.Add] = said{line: line}
					d.fault(line, at, "rules count what is in %s once for different fields, or in a different order; all rules of a column agree in once", r.Add)
				}
				continue
			}
			spec := rules.Set(event.Type, &rules[event.Type][i])
			was, other := first[r.Add]
			switch {
			case !other:
				first[r.Add] = said{spec, line}
				if spec.Members != pipeline.NoMembers {
					sets++
				}
			case was.spec != spec && line == 0:
				d.fault(was.line, "rules", "%s is counted %s here, and %s by the default rules, which the file extends; all rules of a column agree in once and keep", r.Add, setWords(was.spec), setWords(spec))
			case was.spec != spec:
				d.fault(line, at, "%s is counted %s here, and %s in line %d; all rules of a column agree in once and keep", r.Add, setWords(spec), setWords(was.spec), was.line)
			}
		}
	}
	if len(plain) > 0 {
		slices.Sort(plain)
		d.crossFault([]string{"counters"}, "the default rules count %s once, and there they are plain numbers; give these columns items, or state rules too", strings.Join(slices.Compact(plain), ", "))
	}
	if sets += len(columns); sets > pipeline.SetsMax {
		d.fault(d.lines["rules"], "rules", "%d columns are counted once or keep items; allowed: %d", sets, pipeline.SetsMax)
	}
}

// setWords say how a rule counts.
func setWords(s pipeline.SetSpec) string {
	words := map[pipeline.Members]string{
		pipeline.NoMembers: "every time", pipeline.MembersIDs: "once for an id",
		pipeline.MembersPairs: "once for a pair of ids", pipeline.MembersTokens: "once for a token",
	}[s.Members]
	if s.Keep > 0 {
		words += fmt.Sprintf(" in %s", FormatDuration(time.Duration(s.Keep)*time.Second))
	}
	return words
}
