package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Adopt is a file that counts what counting says, and the words for what changes. Only the
// keys that decide what is counted, and say something else, are set; comments and all other
// keys stay. No words: the file counts that already. name is the file's, for faults. What
// the environment, in os.Environ's form, sets wins over the file, as it does in a node: a
// variable that says something else is an error.
func Adopt(name string, text []byte, environ []string, counting json.RawMessage) (adopted []byte, words []string, err error) {
	file, _, err := parseIn(name, text, newEnvironment(environ))
	if err != nil {
		return nil, nil, err
	}
	serves, err := file.CountingBy(counting)
	if err != nil {
		return nil, nil, err
	}
	if words, err = Changes(file, serves); err != nil || len(words) == 0 {
		return text, nil, err
	}
	root, err := next(yaml.NewDecoder(bytes.NewReader(text)))
	if err != nil || len(root.Content) == 0 { // it states nothing
		root = &yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.MappingNode}}}
	}
	is := file.counting()
	if file.Extends == ExtendsDefault { // from now on the file has all of it
		unset(root.Content[0], "extends")
		for i := range is {
			if slices.Contains([]string{"counters", "rules", "channels"}, is[i].key) {
				is[i].value = nil
			}
		}
	}
	if err := state(root.Content[0], is, serves.counting()); err != nil {
		return nil, nil, err
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(root), encoder.Close()); err != nil {
		return nil, nil, fmt.Errorf("config: write %s: %w", name, err)
	}
	return out.Bytes(), words, counts(name, out.Bytes(), environ, serves)
}

// counts is an error unless a file that was written counts as it was meant to: anchors
// and merge keys may tie what was set to what was not.
func counts(name string, text []byte, environ []string, serves *Config) error {
	is, _, err := parseIn(name, text, newEnvironment(environ))
	if err == nil {
		var words []string
		if words, err = Changes(is, serves); err == nil && len(words) > 0 {
			err = errors.New(strings.Join(words, "; "))
			if len(is.Variables) > 0 {
				return fmt.Errorf("config: %s is not changed: the environment sets %s, which wins over the file: unset it, here and where the nodes run: %w", name, strings.Join(is.Variables, ", "), err)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("config: %s cannot be changed by itself, perhaps because of its anchors or merge keys: set this by hand: %w", name, err)
	}
	return nil
}

// unset takes a key out of a mapping.
func unset(in *yaml.Node, key string) {
	for i := 0; i+1 < len(in.Content); i += 2 {
		if in.Content[i].Value == key {
			in.Content = slices.Delete(in.Content, i, i+2)
			return
		}
	}
}

// state sets what differs of two groups of keys in a mapping. Groups of single keys, such
// as limits, have others beside those, which stay.
func state(in *yaml.Node, is, want group) error {
	for i, e := range want {
		a, err1 := json.Marshal(is[i].value)
		b, err2 := json.Marshal(e.value)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if bytes.Equal(a, b) {
			continue
		}
		if inner, nested := e.value.(group); nested && slices.Contains([]string{"limits", "feed", "unread"}, e.key) {
			if err := state(mappingIn(in, e.key), is[i].value.(group), inner); err != nil {
				return err
			}
			continue
		}
		var value yaml.Node
		if err := yaml.Unmarshal(escape(b), &value); err != nil { // JSON is YAML
			return err
		}
		put(in, e.key, block(value.Content[0]))
	}
	return nil
}

// put sets a key of a mapping. What stood beside and above it as comments stays.
func put(in *yaml.Node, key string, value *yaml.Node) {
	for i := 0; i+1 < len(in.Content); i += 2 {
		if in.Content[i].Value == key {
			was := in.Content[i+1]
			value.HeadComment, value.LineComment, value.FootComment = was.HeadComment, was.LineComment, was.FootComment
			in.Content[i+1] = value
			return
		}
	}
	in.Content = append(in.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value)
}

// mappingIn is the mapping under a key, which is made if there is none.
func mappingIn(in *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(in.Content); i += 2 {
		if in.Content[i].Value == key && in.Content[i+1].Kind == yaml.MappingNode {
			return in.Content[i+1]
		}
	}
	value := &yaml.Node{Kind: yaml.MappingNode}
	put(in, key, value)
	return value
}

// block has groups of groups stand on lines of their own, and what is innermost on one.
func block(n *yaml.Node) *yaml.Node {
	scalars := true
	for i, c := range n.Content {
		block(c)
		isKey := n.Kind == yaml.MappingNode && i%2 == 0
		scalars = scalars && (isKey || c.Kind == yaml.ScalarNode)
	}
	if n.Style &^= yaml.FlowStyle | yaml.DoubleQuotedStyle; n.Kind != yaml.ScalarNode && scalars {
		n.Style = yaml.FlowStyle
	}
	return n
}
