package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// decoder walks one file's nodes into a Config. It uses nodes rather than
// yaml.v3's own decoding into structs because that stops at kinds, knows no
// units and forgets where a value stood.
type decoder struct {
	file   string
	faults Faults

	environment *environment      // nil: nothing is expanded
	expanded    int               // bytes that ${NAME} became so far
	literal     bool              // a variable's value is taken as it is
	sources     map[string]string // the variable that set a key
	secrets     map[string]string // the content of the file that set a key: no fault shows it

	lines   map[string]int  // where each key is stated in this file
	unsound map[string]bool // keys with a fault: no use in comparing them
}

func newDecoder(file string) *decoder {
	return &decoder{
		file: file, lines: make(map[string]int), unsound: make(map[string]bool),
		sources: make(map[string]string), secrets: make(map[string]string),
	}
}

// document decodes a file's text into c, which holds the defaults.
func (d *decoder) document(text []byte, c *Config) {
	if len(text) > fileBytesMax {
		d.fault(1, "", "the file is larger than %s", Size(fileBytesMax))
		return
	}
	source := yaml.NewDecoder(bytes.NewReader(text))
	root, err := next(source)
	switch {
	case errors.Is(err, io.EOF):
		return // an empty file states nothing
	case err != nil:
		d.syntax(err)
		return
	}
	if !d.bounded(root) {
		return
	}
	if len(root.Content) == 1 {
		d.structure(root.Content[0], root.Content[0].Line, "", reflect.ValueOf(c).Elem())
	}
	second, err := next(source)
	switch {
	case errors.Is(err, io.EOF):
	case err != nil:
		d.syntax(err)
	default:
		d.fault(second.Line, "", "a second YAML document begins; one is allowed")
	}
}

// next reads one YAML document. yaml.v3 promises errors but has been seen to
// panic on broken text; to an operator both mean the same.
func next(source *yaml.Decoder) (root *yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			root, err = nil, fmt.Errorf("yaml: not understood: %v", p)
		}
	}()
	root = new(yaml.Node)
	err = source.Decode(root)
	return root, err
}

var syntaxLine = regexp.MustCompile(`^yaml: line (\d+): (?s:(.*))$`)

func (d *decoder) syntax(err error) {
	line, what := 1, strings.TrimPrefix(err.Error(), "yaml: ")
	if m := syntaxLine.FindStringSubmatch(err.Error()); m != nil {
		line, _ = strconv.Atoi(m[1])
		what = m[2]
	}
	d.fault(line, "", "not YAML: %s", strings.ReplaceAll(what, "\n", " "))
}

// resolve follows an alias to what it names; see unfolding for the bounds.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func under(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

// kind names a node's kind for a message.
func kind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a group of keys"
	case yaml.SequenceNode:
		return "a list"
	}
	return quote(n.Value)
}

// nameBytesMax bounds a key, which is kept with each key under it. No name may
// have more than 64 bytes.
const nameBytesMax = 256

// pairs calls visit for each key of a mapping, in the file's order, and lists
// what is stated twice. A mapping without anything in it (only comments)
// states nothing. example is what the value should look like. visit returns
// false to stop.
func (d *decoder) pairs(n *yaml.Node, line int, key, example string, visit func(name string, line int, value *yaml.Node) bool) {
	n = resolve(n)
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.fault(line, key, "is %s, not a group of keys like %s", kind(n), example)
		return
	}
	seen := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, value := resolve(n.Content[i]), n.Content[i+1]
		at := n.Content[i].Line
		if k.Kind != yaml.ScalarNode {
			d.fault(at, key, "a key is %s, not a name", kind(k))
			continue
		}
		name := k.Value
		if len(name) > nameBytesMax {
			d.fault(at, key, "a key has %d bytes; allowed: %d", len(name), nameBytesMax)
			continue
		}
		if first, twice := seen[name]; twice {
			d.fault(at, under(key, name), "stated a second time, first in line %d", first)
			continue
		}
		seen[name] = at
		d.lines[under(key, name)] = at
		if !visit(name, at, value) {
			return
		}
	}
}

// unknownKey is how a fault begins that says so.
const unknownKey = "unknown key"

// structure decodes a mapping into a struct whose fields have tags.
func (d *decoder) structure(n *yaml.Node, line int, key string, v reflect.Value) {
	fields, names := tagged(v)
	d.pairs(n, line, key, "{"+names[0]+": …}", func(name string, line int, value *yaml.Node) bool {
		field, ok := fields[name]
		if !ok {
			d.fault(line, under(key, name), unknownKey+"; %s", instead(name, names))
			return true
		}
		d.value(value, line, under(key, name), field)
		return true
	})
}

// tagged finds a struct's fields by their tags, and the tags in order.
func tagged(v reflect.Value) (fields map[string]reflect.Value, names []string) {
	fields = make(map[string]reflect.Value)
	for i := range v.NumField() {
		if name, ok := v.Type().Field(i).Tag.Lookup("yaml"); ok {
			fields[name] = v.Field(i)
			names = append(names, name)
		}
	}
	return fields, names
}

// value decodes one key's value into its field.
func (d *decoder) value(n *yaml.Node, line int, key string, v reflect.Value) {
	switch out := v.Addr().Interface().(type) {
	case *[]Counter:
		d.counters(n, line, key, out)
	case *[]EventRules:
		d.rules(n, line, key, out)
	case *[]Channel:
		d.channels(n, line, key, out)
	case *Once:
		d.once(n, line, key, out)
	case *[]string:
		d.list(n, line, key, out)
	case *string:
		if text, ok := d.scalar(n, line, key, `a text; "" for none`); ok {
			*out = text
		}
	case *int:
		scalar(d, n, line, key, "a whole number", out, func(text string) (int, bool) {
			i, err := parseInt(text)
			return int(i), err == nil && int64(int(i)) == i
		})
	case *int64:
		scalar(d, n, line, key, "a whole number", out, func(text string) (int64, bool) {
			i, err := parseInt(text)
			return i, err == nil
		})
	case *bool:
		scalar(d, n, line, key, "true or false", out, func(text string) (value, ok bool) {
			return text == "true", text == "true" || text == "false"
		})
	case *Size:
		scalar(d, n, line, key, "a size like 65536, 512KiB, 1MiB or 64GiB", out, parseSize)
	case *time.Duration:
		scalar(d, n, line, key, "a duration like 200ms, 5s, 1h30m or 30d", out, parseDuration)
	default:
		d.structure(n, line, key, v)
	}
}

// listMax bounds a list of names.
const listMax = 64

// list reads a list of texts, which replaces the default whole.
func (d *decoder) list(n *yaml.Node, line int, key string, out *[]string) {
	n = resolve(n)
	if n.Kind != yaml.SequenceNode {
		d.fault(line, key, "is %s, not a list like [a, b]; [] for none", kind(n))
		return
	}
	if len(n.Content) > listMax {
		d.fault(line, key, "has %d entries; allowed: %d", len(n.Content), listMax)
		return
	}
	*out = nil
	for _, item := range n.Content {
		if text, ok := d.scalar(item, item.Line, key, "a text"); ok {
			*out = append(*out, text)
		}
	}
}

// scalar reads a single value; want says what it should be.
func (d *decoder) scalar(n *yaml.Node, line int, key, want string) (text string, ok bool) {
	n = resolve(n)
	if n, ok = d.expand(n, line, key); !ok {
		return "", false
	}
	switch {
	case isNull(n):
		d.fault(line, key, "has no value, want %s", want)
	case n.Kind != yaml.ScalarNode:
		d.fault(line, key, "is %s, want %s", kind(n), want)
	default:
		return n.Value, true
	}
	return "", false
}

func scalar[T any](d *decoder, n *yaml.Node, line int, key, want string, out *T, parse func(string) (T, bool)) {
	text, ok := d.scalar(n, line, key, want)
	if !ok {
		return
	}
	value, ok := parse(text)
	if !ok {
		d.fault(line, key, "%s is not %s", quote(text), want)
		return
	}
	*out = value
}
