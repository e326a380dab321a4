package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

const (
	variablePrefix = "TIDEMARK_"
	fileSuffix     = "_FILE"

	// expandedBytesMax bounds what the ${NAME} of one file become together.
	expandedBytesMax = 1 << 20
	// secretBytesMax bounds a file that a TIDEMARK_…_FILE names.
	secretBytesMax = 64 * KiB
)

// otherVariables belong to others: the passwords of deploy/nats-accounts.conf, the key of commands,
// the tests, and what Kubernetes sets for a service whose name begins with tidemark.
var otherVariables = regexp.MustCompile(`^TIDEMARK_([A-Z]+_PASSWORD|NKEY|TEST_.*|(.*_)?SERVICE_(HOST|PORT(_.*)?)|(.*_)?PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// environment holds the variables by name, and which of them the configuration uses.
type environment struct {
	values map[string]string
	used   []string
}

// newEnvironment takes os.Environ's form, NAME=value.
func newEnvironment(list []string) *environment {
	e := &environment{values: make(map[string]string)}
	for _, variable := range list {
		name, value, _ := strings.Cut(variable, "=")
		e.values[name] = value
	}
	return e
}

func (e *environment) use(name string) {
	if !slices.Contains(e.used, name) {
		e.used = append(e.used, name)
	}
}

// VariableOf is the name of the environment variable that sets a key.
func VariableOf(key string) string {
	return variablePrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

// leaves calls visit for each key that is no group of fixed keys, in order.
func leaves(v reflect.Value, prefix string, visit func(key string, field reflect.Value)) {
	fields, names := tagged(v)
	for _, name := range names {
		key := under(prefix, name)
		if fields[name].Kind() == reflect.Struct {
			leaves(fields[name], key, visit)
			continue
		}
		visit(key, fields[name])
	}
}

// variables sets the keys that the environment states. They win over the file.
func (d *decoder) variables(c *Config) {
	file := d.file
	var names []string
	leaves(reflect.ValueOf(c).Elem(), "", func(key string, field reflect.Value) {
		name := VariableOf(key)
		names = append(names, name)
		if _, text := field.Addr().Interface().(*string); text {
			names = append(names, name+fileSuffix)
			d.secretVariable(name, key, field)
		}
		if text, set := d.environment.values[name]; set {
			d.variable(name, key, text, field)
		}
	})
	for _, name := range d.environment.unknown(names) {
		d.file = name
		d.fault(1, "", "unknown variable; %s", instead(name, names))
	}
	d.file = file
}

// countingVariables are the variables that set keys which decide what is counted, sorted.
func (d *decoder) countingVariables() (names []string) {
	for key, variable := range d.sources {
		if slices.Contains(countingKeys, key) {
			names = append(names, variable)
		}
	}
	slices.Sort(names)
	return names
}

// unknown are the variables with our prefix that set no key, sorted.
func (e *environment) unknown(known []string) (names []string) {
	for name := range e.values {
		if strings.HasPrefix(name, variablePrefix) && !slices.Contains(known, name) && !otherVariables.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// variable sets one key. Text and numbers are taken as they are; lists and groups are YAML.
func (d *decoder) variable(name, key, text string, field reflect.Value) {
	d.environment.use(name)
	d.file = name
	d.forget(key)
	d.sources[key] = name
	d.lines[key] = 1
	node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Line: 1}
	if field.Kind() == reflect.Slice {
		if node = d.flow(key, text); node == nil {
			return
		}
	}
	d.literal = true
	d.value(node, 1, key, field)
	d.literal = false
}

// forget drops where the file states a key and what is under it.
func (d *decoder) forget(key string) {
	for stated := range d.lines {
		if underKey(stated, key) {
			delete(d.lines, stated)
		}
	}
}

// underKey reports whether a key is group, or under it.
func underKey(key, group string) bool {
	rest, is := strings.CutPrefix(key, group)
	return is && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// flow parses a variable's YAML; nil: a fault is reported.
func (d *decoder) flow(key, text string) *yaml.Node {
	if len(text) > fileBytesMax {
		d.fault(1, key, "is larger than %s", Size(fileBytesMax))
		return nil
	}
	root, err := next(yaml.NewDecoder(strings.NewReader(text)))
	switch {
	case errors.Is(err, io.EOF) || err == nil && len(root.Content) != 1:
		d.fault(1, key, "is empty; want YAML such as [a, b] or {a: b}")
		return nil
	case err != nil:
		d.syntax(err)
		d.unsound[key] = true
		return nil
	case !d.bounded(root):
		return nil
	}
	return root.Content[0]
}

// secretVariable sets a key to the content of the file that NAME_FILE names.
func (d *decoder) secretVariable(name, key string, field reflect.Value) {
	variable := name + fileSuffix
	path, set := d.environment.values[variable]
	if !set {
		return
	}
	d.file = variable
	if _, both := d.environment.values[name]; both {
		d.fault(1, key, "%s and %s are both set; allowed: one of them", name, variable)
		return
	}
	text, err := readSecret(path)
	if err != nil {
		d.fault(1, key, "%v", err)
		return
	}
	d.secrets[key] = text
	d.variable(variable, key, text, field)
}

// readSecret is a file's content without the newline at its end.
func readSecret(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, int64(secretBytesMax)+1))
	if err != nil {
		return "", err
	}
	if len(text) > int(secretBytesMax) {
		return "", fmt.Errorf("%s is larger than %s", path, secretBytesMax)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), nil
}

// source is what a fault of a key names: the file, or the variable that set it.
func (d *decoder) source(key string) string {
	for stated, variable := range d.sources {
		if underKey(key, stated) {
			return variable
		}
	}
	return d.file
}

var expansion = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}`)

// expand replaces ${NAME} and ${NAME:-default} in a scalar, after YAML is parsed:
// a value adds no structure. A plain scalar is then resolved as YAML resolves that text.
func (d *decoder) expand(n *yaml.Node, line int, key string) (*yaml.Node, bool) {
	if d.environment == nil || d.literal || !strings.Contains(n.Value, "${") {
		return n, true
	}
	text, why := d.expandText(n.Value)
	if why != "" {
		d.fault(line, key, "%s", why)
		return nil, false
	}
	expanded := *n
	expanded.Value = text
	if n.Style == 0 && text != "" {
		expanded.Tag = ""
	}
	return &expanded, true
}

func (d *decoder) expandText(text string) (expanded, why string) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		if !found {
			out.WriteString(text)
			return out.String(), ""
		}
		if literal, is := strings.CutSuffix(before, "$"); is {
			out.WriteString(literal + "${")
			text = rest
			continue
		}
		out.WriteString(before)
		text = text[len(before):]
		m := expansion.FindStringSubmatch(text)
		if m == nil {
			return "", fmt.Sprintf("%s is not understood; allowed: ${NAME} or ${NAME:-default}, and $${ for a literal ${", quote(text))
		}
		value, set := d.environment.values[m[1]]
		fallback := strings.Contains(m[0], ":-")
		switch {
		case !set && !fallback:
			return "", fmt.Sprintf("the environment variable %s is not set; set it, or state a default: ${%s:-default}", m[1], m[1])
		case value == "" && fallback:
			value = m[2]
		default:
			d.environment.use(m[1])
		}
		if d.expanded += len(value); d.expanded > expandedBytesMax {
			return "", fmt.Sprintf("the environment variables of the file expand to more than %s", Size(expandedBytesMax))
		}
		out.WriteString(value)
		text = text[len(m[0]):]
	}
}
