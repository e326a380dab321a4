package snapshot

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Column is a column of the node, named as in COUNTER.COLUMN.
type Column struct {
	Counter, Name string
	Max           int64 // the largest value that an answer can say
}

func (c Column) String() string { return c.Counter + "." + c.Name }

// Schema is what the node counts: all columns, in its order.
type Schema []Column

// find gives the column of a name, and all of a counter for "*".
func (s Schema) find(counter, name string) (found []Column) {
	for _, c := range s {
		if c.Counter == counter && (name == "*" || c.Name == name) {
			found = append(found, c)
		}
	}
	return found
}

// kind says what Redis holds under the keys of a pass.
type kind int

const (
	strs   kind = iota // post:{id}:likes=post.like: a string, the count
	fields             // post:{id}#likes=post.like, post:{id}=post.*: a hash, a count in each field
	ids                // likes#{id}=post.like, likes:*#{id}=post.like: a hash of counts by id
)

// pass is one way through Redis: all patterns with the same keys.
type pass struct {
	kind    kind
	key     template
	targets []target
}

// target is a count of each key of a pass.
type target struct {
	field  template // of a hash
	column uint32   // in plan.columns
}

// plan is what to read.
type plan struct {
	passes  []*pass
	columns []Column
}

// template is a key or a field with at most one {id} in it.
type template struct {
	text    string         // as it was given
	literal string         // where it has no {id} and no *
	hasID   bool           //
	any     bool           // it has a *
	glob    string         // for MATCH
	number  *regexp.Regexp // with {id} for digits, which settles what a * takes
	whole   *regexp.Regexp // with {id} for anything
}

// match finds the id in a key; its text is no number where the key only looks
// like one of these.
func (t *template) match(text string) (id string, ok bool) {
	for _, r := range []*regexp.Regexp{t.number, t.whole} {
		if m := r.FindStringSubmatch(text); m != nil {
			if !t.hasID {
				return "", true
			}
			return m[1], true
		}
	}
	return "", false
}

// parseTemplate reads a key or a field. A backslash takes the next character
// as it is.
func parseTemplate(text string) (template, error) {
	t := template{text: text}
	var literal, glob, number, whole strings.Builder
	for rest := text; rest != ""; {
		switch {
		case strings.HasPrefix(rest, "{id}"):
			if t.hasID {
				return t, errors.New("{id} stands there twice")
			}
			t.hasID, rest = true, rest[len("{id}"):]
			glob.WriteByte('*')
			number.WriteString("([0-9]+)")
			whole.WriteString("(.*)")
		case rest[0] == '*':
			t.any, rest = true, rest[1:]
			glob.WriteByte('*')
			number.WriteString(".*")
			whole.WriteString(".*")
		default:
			if rest[0] == '\\' && len(rest) > 1 {
				rest = rest[1:]
			}
			c := rest[:1]
			rest = rest[1:]
			literal.WriteString(c)
			if strings.Contains(`*?[]\^-`, c) {
				glob.WriteByte('\\')
			}
			glob.WriteString(c)
			number.WriteString(quoteByte(c[0]))
			whole.WriteString(quoteByte(c[0]))
		}
	}
	t.literal, t.glob = literal.String(), glob.String()
	var errs [2]error
	t.number, errs[0] = regexp.Compile(`(?s)\A` + number.String() + `\z`)
	t.whole, errs[1] = regexp.Compile(`(?s)\A` + whole.String() + `\z`)
	return t, errors.Join(errs[:]...)
}

// quoteByte is a byte of a key as a regular expression. Keys are bytes; of a
// character of several bytes, each stands as it is.
func quoteByte(c byte) string {
	if c < 0x80 {
		return regexp.QuoteMeta(string(rune(c)))
	}
	return string([]byte{c})
}

const patternForms = "say KEY=COUNTER.COLUMN, KEY#FIELD=COUNTER.COLUMN or KEY=COUNTER.*, with {id} where the id stands: 'post:{id}:likes=post.like'"

// newPlan reads the patterns. All of its errors are mistakes in them.
func newPlan(patterns []string, schema Schema) (*plan, error) {
	if len(patterns) == 0 {
		return nil, errors.New("which keys? give a --pattern for each column: " + patternForms)
	}
	p := new(plan)
	// Sorted: an import that goes on may have been given them in another order.
	for _, text := range slices.Sorted(slices.Values(patterns)) {
		if err := p.add(text, schema); err != nil {
			return nil, fmt.Errorf("pattern %q: %w", text, err)
		}
	}
	return p, nil
}

func (p *plan) add(text string, schema Schema) error {
	equals := strings.LastIndexByte(text, '=')
	if equals < 0 {
		return errors.New(patternForms)
	}
	counter, name, found := strings.Cut(text[equals+1:], ".")
	if !found || counter == "" || name == "" {
		return errors.New(patternForms)
	}
	columns := schema.find(counter, name)
	if len(columns) == 0 {
		return fmt.Errorf("the node has no column %s.%s; it has: %s", counter, name, schema)
	}
	keyText, fieldText, isHash := cutField(text[:equals])
	key, err := parseTemplate(keyText)
	if err != nil {
		return err
	}
	field, err := parseTemplate(fieldText)
	if err != nil {
		return err
	}
	all := name == "*"
	is := strs
	switch {
	case keyText == "" || isHash && fieldText == "":
		return errors.New("the key or the field is empty: " + patternForms)
	case key.hasID == field.hasID:
		return errors.New("{id} must stand once, where the id is: " + patternForms)
	case all && isHash:
		return fmt.Errorf("%s.* takes all fields of a hash that are called like columns: leave out #%s", counter, fieldText)
	case field.any:
		return errors.New("a field has no *: it is a name, or has {id} in it")
	case field.hasID:
		is = ids
	case isHash || all:
		is = fields
	}
	at := p.pass(is, key)
	if at.kind == ids && len(at.targets) > 0 {
		return errors.New("another pattern is for fields of the same hash that hold an id; give one of them a run of its own")
	}
	for _, c := range columns {
		if slices.Contains(p.columns, c) {
			return fmt.Errorf("another pattern is for %s already; give one of them a run of its own", c)
		}
		to := target{field, uint32(len(p.columns))}
		if all {
			to.field = template{text: c.Name, literal: c.Name}
		}
		p.columns = append(p.columns, c)
		at.targets = append(at.targets, to)
	}
	return nil
}

// cutField parts KEY#FIELD at its last # that has no backslash before it.
func cutField(text string) (key, field string, found bool) {
	for at := len(text) - 1; at >= 0; at-- {
		if text[at] == '#' && (at == 0 || text[at-1] != '\\') {
			return text[:at], text[at+1:], true
		}
	}
	return text, "", false
}

// pass is the one for these keys.
func (p *plan) pass(is kind, key template) *pass {
	for _, other := range p.passes {
		if other.kind == is && other.key.text == key.text {
			return other
		}
	}
	p.passes = append(p.passes, &pass{kind: is, key: key})
	return p.passes[len(p.passes)-1]
}

// others says that a key belongs to another pass: it only looks like one of
// this one's, whose {id} takes anything.
func (p *plan) others(this *pass, key string) bool {
	for _, other := range p.passes {
		if other == this {
			continue
		}
		if !other.key.hasID {
			if _, ok := other.key.match(key); ok {
				return true
			}
		} else if other.key.number.MatchString(key) {
			return true
		}
	}
	return false
}

// String implements [fmt.Stringer].
func (s Schema) String() string {
	var names []string
	for _, c := range s {
		names = append(names, c.String())
	}
	return strings.Join(names, ", ")
}

// parseID reads the id in a key. One id must not stand in two keys, so it is
// written in one way only.
func parseID(text string) (uint64, bool) {
	id, err := strconv.ParseUint(text, 10, 64)
	return id, err == nil && id != 0 && strconv.FormatUint(id, 10) == text
}
