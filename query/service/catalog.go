package service

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tidemark-io/tidemark/pipeline"
)

// catalog is the schema as requests ask for it: by words, with everything
// that an answer needs prepared. It does not change after newCatalog.
type catalog struct {
	counters map[string]*counter
	suffixes map[string]*counter // the counter that a suffix belongs to
	names    string              // all counters, for a 404
	endings  string              // all suffixes, for a 404

	unread        []*word           // the columns of counter "unread" that are shown
	unreadColumns []string          // their names
	kinds         []pipeline.Column // those that keep items,
	kindNames     []string          // and their names
	unreadNames   map[string]*word  // the same by name: suffixes are no names of a read
	unreadList    string            // "comment, mention", for a 404
	readable      string            // all that a read can name, for a 404
}

// counter is one counter that has something to show.
type counter struct {
	index   int
	name    string
	visible []*word          // by name, in the configuration's order
	words   map[string]*word // names and suffixes
	list    string           // "repost (cntrn), comment (cntcm)", for a 404
}

// word is a column under one of its names.
type word struct {
	column       pipeline.Column
	name         string
	key          []byte // `,"like":`
	defaultValue int64
	largest      int64 // what the column's widest form holds
	least        int64 // that an answer shows: 0, or of a signed column what its widest form holds
	set          pipeline.Members
	actors       bool // the set is of actors
	items        bool // the column keeps items
}

// shown is a stored sum as an answer shows it: not below zero, where a
// deletion has overtaken its event, unless the column is signed; and not above what the
// column may hold. What is inside stays exact, so that it comes back by itself.
func (w *word) shown(sum int64) int64 { return min(max(sum, w.least), w.largest) }

func newCatalog(schema *pipeline.Schema) *catalog {
	c := &catalog{counters: map[string]*counter{}, suffixes: map[string]*counter{}}
	var names, endings []string
	for i := range schema.Counters {
		columns := schema.Visible(i)
		if len(columns) == 0 {
			continue
		}
		entry := newCounter(schema, i, columns)
		c.counters[entry.name] = entry
		names = append(names, entry.name)
		for _, column := range columns {
			if suffix := schema.Columns[column].Suffix; suffix != "" {
				c.suffixes[suffix] = entry
				endings = append(endings, suffix)
			}
		}
	}
	c.names, c.endings = strings.Join(names, ", "), strings.Join(endings, ", ")
	c.addUnread(schema)
	return c
}

// addUnread prepares what tidemark.unread shows and tidemark.read names.
// There may be no such counter.
func (c *catalog) addUnread(schema *pipeline.Schema) {
	c.unreadNames = map[string]*word{}
	var names []string
	if counter, ok := c.counters["unread"]; ok {
		c.unread = counter.visible
	}
	for _, w := range c.unread {
		name := schema.Columns[w.column].Name
		c.unreadNames[name] = w
		names = append(names, name)
		if w.items {
			c.kinds = append(c.kinds, w.column)
			c.kindNames = append(c.kindNames, name)
		}
	}
	c.unreadColumns = slices.Clone(names)
	c.unreadList = strings.Join(names, ", ")
	c.readable = strings.Join(append(names, "feed", "channel:<name>", "all"), ", ")
}

func newCounter(schema *pipeline.Schema, index int, columns []pipeline.Column) *counter {
	c := &counter{index: index, name: schema.Counters[index].Name, words: map[string]*word{}}
	var list []string
	for _, column := range columns {
		spec := &schema.Columns[column]
		entry := spec.Name
		if spec.Suffix != "" {
			c.words[spec.Suffix] = newWord(spec.Suffix, column, spec)
			entry = fmt.Sprintf("%s (%s)", spec.Name, spec.Suffix)
		}
		list = append(list, entry)
	}
	for _, column := range columns { // a name goes before a suffix that is spelt the same
		spec := &schema.Columns[column]
		w := newWord(spec.Name, column, spec)
		c.words[spec.Name] = w
		c.visible = append(c.visible, w)
	}
	c.list = strings.Join(list, ", ")
	return c
}

func newWord(name string, column pipeline.Column, spec *pipeline.ColumnSpec) *word {
	key, _ := jsontext.AppendQuote([]byte{','}, name)
	largest := int64(math.MaxInt64)
	if spec.Max > 0 && spec.Max < 63 {
		largest = 1<<spec.Max - 1
	}
	w := &word{
		column: column, name: name, key: append(key, ':'), defaultValue: max(spec.Default, 0), largest: largest, items: spec.Set.Items > 0,
	}
	if spec.Signed {
		w.least = -largest
	}
	if spec.HasSet() {
		w.set, w.actors = spec.Set.Members, spec.Set.Actor == pipeline.WordA
	}
	return w
}

// quoted is the word as a JSON string.
func (w *word) quoted() []byte { return w.key[1 : len(w.key)-1] }

// resolve finds the counter that a request means. Without a counter, all
// columns must be suffixes of one.
func (c *catalog) resolve(name []byte, columns [][]byte) (*counter, *failure) {
	if len(name) > 0 {
		found, ok := c.counters[string(name)]
		if !ok {
			return nil, fail(codeNotFound, "counter %q is unknown; there are: %s", clip(name), c.names)
		}
		return found, nil
	}
	if len(columns) == 0 {
		return nil, fail(codeBadRequest, "counter is missing; there are: %s", c.names)
	}
	var found *counter
	for i, column := range columns {
		owner, ok := c.suffixes[string(column)]
		switch {
		case !ok && c.endings == "":
			return nil, fail(codeBadRequest, "counter is missing, and no column has a suffix to find it by; there are: %s", c.names)
		case !ok:
			return nil, fail(codeNotFound, "columns[%d]: suffix %q is unknown (a name needs a counter with it); there are: %s", i, clip(column), c.endings)
		case found != nil && owner != found:
			return nil, fail(codeBadRequest, "columns[%d]: %q is of counter %s, those before it of %s; ask one counter at a time", i, clip(column), owner.name, found.name)
		}
		found = owner
	}
	return found, nil
}

// column finds one column by its full name or its suffix.
func (c *catalog) column(name []byte) (*word, *failure) {
	counterName, columnName, full := bytes.Cut(name, []byte{'.'})
	if !full {
		owner, ok := c.suffixes[string(name)]
		switch {
		case ok:
			return owner.words[string(name)], nil
		case c.endings == "":
			return nil, fail(codeNotFound, "column: %q has no counter, and no column has a suffix; say one as post.like", clip(name))
		}
		return nil, fail(codeNotFound, "column: suffix %q is unknown (a name needs its counter, as post.like); there are: %s", clip(name), c.endings)
	}
	owner, ok := c.counters[string(counterName)]
	if !ok {
		return nil, fail(codeNotFound, "column: counter %q is unknown; there are: %s", clip(counterName), c.names)
	}
	w, ok := owner.words[string(columnName)]
	if !ok {
		return nil, fail(codeNotFound, "column: counter %s has no column %q; there are: %s", owner.name, clip(columnName), owner.list)
	}
	return w, nil
}

// find lists the asked words of one counter, each once, in the order asked.
func (c *counter) find(columns [][]byte, words []*word) ([]*word, *failure) {
	for i, column := range columns {
		w, ok := c.words[string(column)]
		if !ok {
			return nil, fail(codeNotFound, "columns[%d]: counter %s has no column %q; there are: %s", i, c.name, clip(column), c.list)
		}
		if !contains(words, w) {
			words = append(words, w)
		}
	}
	return words, nil
}

func contains(words []*word, w *word) bool {
	for _, other := range words {
		if other == w {
			return true
		}
	}
	return false
}
